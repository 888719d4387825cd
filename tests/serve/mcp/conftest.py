"""Documents and tools that several tests share."""

import pytest
from helpers import talking_model
from helpers.pdf_files import PdfWriter


@pytest.fixture(scope="session")
def talking_file(tmp_path_factory):
    """A model that always answers `talking_model.ANSWER`."""
    return talking_model.write_model(tmp_path_factory.mktemp("talking") / "talking.gguf")


@pytest.fixture
def folder(tmp_path):
    """A folder with a PDF of three pages, a text with headings, and a file outside of it."""
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "log.md").write_text("# Ships\n\nOne was called Petrel.\n\n## Ports\n\nLeith has a dock.\n")
    pages = PdfWriter()
    for text in ("The bridge opened in March.", "Its keeper was Agnes Moir.", "The toll was two shillings."):
        pages = pages.page((60, 700, text))
    (folder / "bridge.pdf").write_bytes(pages.content())
    (tmp_path / "secret.txt").write_text("Not for you.")
    return folder
