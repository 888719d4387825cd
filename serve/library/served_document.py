"""A document of the server's library: by id, by name, and with its parts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ...library.document_parts import n_parts_of


class ReadDocument(NamedTuple):
    """An indexed document, or a part of one that exceeds the context.

    Parameters
    ----------
    id : str
        Id for clients, the same for all parts of a file.
    """

    id: str
    folder: Path
    manifest: dict[str, Any]

    @property
    def key(self) -> Path:
        """Return what tells it from others."""
        return self.folder

    @property
    def described(self) -> dict[str, Any]:
        """Return the manifest's description of the document."""
        described: dict[str, Any] = self.manifest["document"]
        return described

    @property
    def name(self) -> str:
        """Return its name, such as "long.txt, part 1 of 3"."""
        return str(self.described["name"])

    @property
    def file(self) -> str:
        """Return the name of its file, such as "long.txt"."""
        is_part = "part" in self.described and "path" in self.described
        return Path(self.described["path"]).name if is_part else self.name

    @property
    def n_parts(self) -> int:
        """Return the number of parts of its file; 1 if it has none."""
        return n_parts_of(self.name) if "part" in self.described else 1

    @property
    def origin(self) -> str:
        """Return the folder of its file on this machine, with ~ for the user's own; "" of a text without a file."""
        path = self.described.get("path")
        if not path:
            return ""
        folder = Path(path).parent
        home = Path.home()
        return f"~/{folder.relative_to(home)}".removesuffix("/.") if folder.is_relative_to(home) else str(folder)

    def parts(self, documents: Iterable[ReadDocument]) -> list[ReadDocument]:
        """Return the parts of its file among some documents, in order; the document alone if it has no parts."""
        if "part" not in self.described:
            return [self]
        parts = {  # the file may have been read with another context before
            document.name: document
            for document in documents
            if document.id == self.id and document.n_parts == self.n_parts and "part" in document.described
        }
        return sorted(parts.values(), key=lambda part: part.described["part"])
