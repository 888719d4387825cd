"""A document of the server's library: by id, by name, and with its parts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple


class ReadDocument(NamedTuple):
    """A document that was read, or a part of one that is longer than the context.

    Parameters
    ----------
    id : str
        What clients call it. All parts of an upload have the same.
    folder : Path
        Its index.
    manifest : dict
        What the index says.
    """

    id: str
    folder: Path
    manifest: dict[str, Any]

    @property
    def described(self) -> dict[str, Any]:
        """Return what the manifest says of the document."""
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
        """Return the parts of its file that some documents are, in order; the document alone if it is not a part."""
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
