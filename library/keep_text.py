"""Keep the text of a document in a process of its own: a long PDF would hold up the threads of this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..settings import Extraction
from ..workers.work import Message, Sender, Work
from .document_file import DocumentFile
from .text_store import TextStore


class KeepText(Work):
    """Keep texts; the settings have the path of their store, `texts`; a message has that of a document, `path`."""

    def __init__(self, settings: dict[str, Any], sender: Sender) -> None:
        super().__init__(settings, sender)
        self._store, self._extraction = TextStore(Path(settings["texts"])), Extraction(**settings["extraction"])

    def do(self, message: Message) -> Message:
        """Return the number of the text, as `number` (see `Work.do`)."""
        return {"number": self._store.add(DocumentFile(message["path"], self._extraction).read()).number}

    def close(self) -> None:
        """Close the store."""
        self._store.close()
