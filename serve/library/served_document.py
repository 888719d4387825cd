"""A document of the server's library: by id, by name, and with its parts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple


class ReadDocument(NamedTuple):
    """An indexed document, or a part of one that exceeds the context.

    Parameters
    ----------
    id : str
        Id for clients, the same for all parts of an upload.
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

    def parts(self, documents: Iterable[ReadDocument]) -> list[ReadDocument]:
        """Return the parts of its file among some documents, in order; the document alone if it has no parts."""
        if "part" not in self.described:
            return [self]
        n_parts = self.name.rpartition(" of ")[2]  # the file may have been read with another context before
        parts = {
            document.name: document
            for document in documents
            if "part" in document.described
            and document.described.get("path") == self.described.get("path")
            and document.name.rpartition(" of ")[2] == n_parts
        }
        return sorted(parts.values(), key=lambda part: part.described["part"])
