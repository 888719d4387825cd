"""Keep the text of a document in a process of its own."""

import hashlib
import subprocess
import sys

import pytest
from helpers.pdf_files import PdfWriter

from octavo.errors import OctavoError
from octavo.library.document_work import DrawPages, KeepText
from octavo.library.source_text import SourceFile
from octavo.library.text_store import TextStore
from octavo.workers.work import name_of
from octavo.workers.worker_process import WorkerProcess


def test_a_text_is_kept_under_the_version_of_its_file(tmp_path):
    file = tmp_path / "log.txt"
    file.write_text("The keeper saw a ship.")
    process = WorkerProcess(name_of(KeepText), {"texts": str(tmp_path / "texts.sqlite"), "extraction": {}})
    number = process.do({"path": str(file)}, print)["result"]["number"]
    process.end()
    with TextStore(tmp_path / "texts.sqlite") as store:
        assert store.find(SourceFile(file).version).number == number
        assert store.document(number).text == "The keeper saw a ship."


def test_what_is_not_text_is_refused(tmp_path):
    file = tmp_path / "noise.bin"
    file.write_bytes(bytes(range(256)) * 40)
    work = KeepText({"texts": str(tmp_path / "texts.sqlite"), "extraction": {}}, None)
    with pytest.raises(OctavoError, match="is not text"):
        work.do({"path": str(file)})
    work.close()


def test_a_page_is_drawn_of_the_bytes_that_were_indexed_alone(tmp_path):
    file, work = tmp_path / "book.pdf", DrawPages({}, None)
    content = PdfWriter().page((60, 700, "The keeper saw a ship.")).content()
    file.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    asked = {"path": str(file), "page": "1", "quote": "The keeper saw a ship."}
    for known in (digest, digest[:24], ""):
        assert work.do({**asked, "content": known})["png"]
    file.write_bytes(PdfWriter().page((60, 700, "The keeper saw a whale.")).content())
    with pytest.raises(OctavoError, match="The file has changed since it was indexed"):
        work.do({**asked, "content": digest})


def test_a_process_that_keeps_texts_imports_nothing_heavy():
    script = (
        "import sys\nimport octavo.library.document_work\n"
        "print([name for name in ('llama_cpp', 'numba', 'scipy', 'sklearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
