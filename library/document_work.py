"""Work on documents in processes of their own: long files would hold up a server's threads, and hostile ones end it."""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..documents.document import Document, Place
from ..documents.pdf.pdf_picture import draw_page
from ..errors import NoRoom, OctavoError
from ..progress import Progress, Silent
from ..settings import Extraction
from ..workers.work import Message, Sender, Work, WorkLimits, name_of, receive
from ..workers.worker_process import Died, WorkerProcess
from .source_text import SourceFile
from .text_store import TextStore

#: Seconds of computing for a page.
_SECONDS_OF_PAGE = 20.0


class KeepText(Work):
    """Keep texts; the settings have the path of their store, `texts`; a message has the path of a document, `path`."""

    def __init__(self, settings: dict[str, Any], sender: Sender) -> None:
        super().__init__(settings, sender)
        self._store, self._extraction = TextStore(Path(settings["texts"])), Extraction(**settings["extraction"])

    def do(self, message: Message) -> Message:
        """Return the number of the text, as `number` (see `Work.do`)."""
        return {"number": self._store.add(SourceFile(message["path"], self._extraction).extract()).number}

    def limits(self, message: Message) -> WorkLimits:
        """Return the limits of a text (see `Work.limits`)."""
        return WorkLimits.of_file(message["path"])

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

    def limits(self, message: Message) -> WorkLimits:
        """Return the limits of a page, for which someone waits (see `Work.limits`)."""
        return WorkLimits.of_file(message["path"])._replace(seconds=_SECONDS_OF_PAGE)

    def close(self) -> None:
        """Do nothing: no file stays open."""


class ExtractText(Work):
    """Extract texts; the settings are an extraction's, and a message has the path of a document, `path`."""

    def do(self, message: Message) -> Message:
        """Return the fields of the document (see `Work.do`)."""
        return asdict(SourceFile(message["path"], Extraction(**self.settings)).extract(self.sender))

    def limits(self, message: Message) -> WorkLimits:
        """Return the limits of a text (see `Work.limits`)."""
        return WorkLimits.of_file(message["path"])

    def close(self) -> None:
        """Do nothing: no file stays open."""


@dataclass(frozen=True)
class GuardedFile(SourceFile):
    """A file whose text a process of its own extracts, within limits."""

    def extract(self, progress: Progress | None = None) -> Document:
        """Extract the text. Raise OctavoError if that fails, or takes too long or too much memory."""
        process, to = WorkerProcess(name_of(ExtractText), vars(self.extraction)), progress or Silent()
        try:
            result = process.do({"path": os.fspath(self.path)}, lambda message: receive(message, to, to.notice))
        except Died as problem:
            raise OctavoError(f"{self.name} cannot be read: the process that reads it ended with {problem}.") from None
        finally:
            process.end()
        if "error" in result:
            raise (NoRoom if result.get("may_succeed") else OctavoError)(str(result["error"]))
        return document_of_fields(result["result"])


def document_of_fields(fields: dict[str, Any]) -> Document:
    """Return the document with these fields, which were sent in JSON."""
    places = tuple(Place(*place) for place in fields["places"])
    notices, left_out = tuple(fields["notices"]), tuple(fields["left_out"])
    return Document(**{**fields, "places": places, "notices": notices, "left_out": left_out})
