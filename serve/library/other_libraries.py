"""Uploads in the libraries of other models: an upload belongs to all models of a server."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...errors import OctavoError
from ...library import catalogue
from ...library.background.reading_queue import ReadingQueue
from ...runtime.store.library_snapshot import LibrarySnapshot
from ...runtime.store.model_library import Library
from .upload_folder import uploads_of


def find_upload(libraries: Iterable[Library], reference: str) -> Path | None:
    """Return the file of the newest upload with an id or a name; None if there is none."""
    found = [
        file
        for library in libraries
        for file in uploads_of(library).glob("*/*")
        if reference in (file.name, file.parent.name) and not file.name.startswith(".")
    ]
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def forget_upload(libraries: Iterable[Library], document_id: str) -> None:
    """Remove an upload, and its indexes, from the libraries of models that are not loaded."""
    for library in libraries:
        folder, queue = uploads_of(library) / document_id, ReadingQueue()
        for upload in queue.uploads(library.folder):
            if upload.file.parent.name == document_id:
                queue.end(upload)
        for index, manifest in LibrarySnapshot(library).indexes if folder.is_dir() else ():
            if Path(manifest["document"].get("path", "")).parent == folder.resolve():
                with suppress(OctavoError):
                    catalogue.remove(index)
        shutil.rmtree(folder, ignore_errors=True)
