"""List the indexes of a library once for a command or a request, and find them by file or text."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import OctavoError
from ...system.files import FileVersion
from .index_files import read_tokens
from .manifest import file_version_of
from .model_library import Library

#: Folder and manifest of an index.
FoundIndex = tuple[Path, dict[str, Any]]


class LibrarySnapshot:
    """The finished indexes of a library: by file, and by hash of the text.

    It is read when it is made, and again by `refresh`.

    Attributes
    ----------
    indexes : list of (Path, dict)
        Folder and manifest of each index, newest first.
    by_text : dict of str to list of (Path, dict)
        The same by the hash of the text.
    by_digest : dict of str to Path
        Folders by what the names end with (`Library.digest`).
    described : dict of Path to dict
        The manifest's entry of the text of each index, by the folder.
    by_path : dict of str to list of dict
        These entries by the file that the document was read from, or is a part of.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self.indexes: list[FoundIndex] = []
        self._tokens: dict[Path, np.ndarray | None] = {}
        self.refresh()

    def refresh(self) -> None:
        """Add new indexes, and forget removed ones. Each manifest is read once."""
        before = {folder.name for folder, _ in self.indexes}
        names = self.library.folder_names()
        there = [found for found in self.indexes if found[0].name in names]
        new = self.library.indexes(names - before)
        self.indexes = sorted([*new, *there], key=lambda index: str(index[1].get("created")), reverse=True)
        self.described = {folder: manifest["document"] for folder, manifest in self.indexes}
        self.by_digest: dict[str, Path] = {}
        self.by_text: defaultdict[str, list[FoundIndex]] = defaultdict(list)
        self.by_path: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for folder, manifest in self.indexes:
            document, digest = manifest["document"], folder.name.rpartition("-")[2]
            self.by_digest[digest] = min(folder, self.by_digest.get(digest, folder))
            self.by_text[document["sha256"]].append((folder, manifest))
            if "path" in document:
                self.by_path[document["path"]].append(document)

    def text_of(self, version: FileVersion) -> dict[str, Any] | None:
        """Return the manifest's entry of the whole text of this version of a file; None without one."""
        return next((text for text in self.texts_at(version) if "part" not in text), None)

    def texts_at(self, version: FileVersion) -> list[dict[str, Any]]:
        """Return the manifests' entries of the text of this version of a file, or of parts of it, newest first."""
        texts = ((text, file_version_of(text)) for text in self.by_path.get(version.path, ()))
        return [text for text, read in texts if read is not None and read.is_kept(version)]

    def tokens_of(self, folder: Path) -> np.ndarray | None:
        """Return the tokens of an index, the prompt's head included; None if it is damaged."""
        if folder not in self._tokens:
            try:
                self._tokens[folder] = read_tokens(folder)
            except OctavoError:
                self._tokens[folder] = None
        return self._tokens[folder]
