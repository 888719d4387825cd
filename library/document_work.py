"""Work on documents in processes of their own: long files would hold up a server's threads, and hostile ones end it."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from ..documents.pdf.pdf_picture import draw_page
from ..errors import OctavoError
from ..settings import Extraction
from ..workers.work import Message, Sender, Work
from .source_text import SourceFile
from .text_store import TextStore


class KeepText(Work):
    """Keep texts; the settings have the path of their store, `texts`; a message has the path of a document, `path`."""

    def __init__(self, settings: dict[str, Any], sender: Sender) -> None:
        super().__init__(settings, sender)
        self._store, self._extraction = TextStore(Path(settings["texts"])), Extraction(**settings["extraction"])

    def do(self, message: Message) -> Message:
        """Return the number of the text, as `number` (see `Work.do`)."""
        return {"number": self._store.add(SourceFile(message["path"], self._extraction).extract()).number}

    def close(self) -> None:
        """Close the store."""
        self._store.close()


class DrawPages(Work):
    """Draw pages; a message has the path of a PDF, the label of a page and the passage to mark.

    It also has the first digits of the hash of the PDF, as `content`, so that no page of another version is drawn.
    """

    def do(self, message: Message) -> Message:
        """Return the PNG file in base64, as `png`, and where the passage begins, as `top` (see `Work.do`)."""
        content = Path(message["path"]).read_bytes()
        if not hashlib.sha256(content).hexdigest().startswith(message["content"]):
            raise OctavoError("The file has changed since it was indexed.")
        picture = draw_page(content, message["page"], message["quote"])
        return {"png": base64.b64encode(picture.png).decode(), "top": picture.top}

    def close(self) -> None:
        """Do nothing: no file stays open."""
