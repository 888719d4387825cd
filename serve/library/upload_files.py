"""Files of uploads: each model has a library with a folder for them, and an upload belongs to all models."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...errors import OctavoError
from ...library import catalogue
from ...runtime.store.files import make_private
from ...runtime.store.library_snapshot import LibrarySnapshot
from ...runtime.store.model_library import Library

#: Largest length of an upload's name.
_LONGEST_NAME = 120

#: File beside an upload until it is read: its reading resumes when the server is started again.
UNREAD = ".unread"


def upload_folder(library: Library) -> Path:
    """Return the folder of a library's uploads: it has a folder for each, which is named by the upload's id."""
    return library.folder / "uploads"


def find_upload(libraries: Iterable[Library], reference: str) -> Path | None:
    """Return the file of the newest upload with an id or a name; None if there is none."""
    found = [
        file
        for library in libraries
        for file in upload_folder(library).glob("*/*")
        if reference in (file.name, file.parent.name) and not file.name.startswith(".")
    ]
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def forget_upload(libraries: Iterable[Library], document_id: str) -> None:
    """Remove an upload, and its indexes, from the libraries of models that are not loaded."""
    for library in libraries:
        folder = upload_folder(library) / document_id
        for index, manifest in LibrarySnapshot(library).indexes if folder.is_dir() else ():
            if Path(manifest["document"].get("path", "")).parent == folder.resolve():
                with suppress(OctavoError):
                    catalogue.remove(index)
        shutil.rmtree(folder, ignore_errors=True)


def file_name(name: str) -> str:
    """Return a name for an upload's file without folders."""
    base = re.split(r"[/\\]", name)[-1]
    cleaned = re.sub(r"[^\w.,()+ -]", "_", base).strip(" .")
    if len(cleaned) > _LONGEST_NAME:
        cleaned = cleaned[: _LONGEST_NAME - 20] + cleaned[-20:]
    return cleaned or "document.txt"


def store_upload(file: Path, data: bytes) -> None:
    """Write an upload, whole or not at all."""
    make_private(file.parent.parent)
    make_private(file.parent)
    for other in file.parent.iterdir():
        other.unlink()
    unfinished = file.with_name(".upload")
    try:
        file.with_name(UNREAD).touch(0o600)
        unfinished.write_bytes(data)
        unfinished.chmod(0o600)
        unfinished.replace(file)
    except OSError as problem:
        raise OctavoError(f"The upload cannot be stored: {problem.strerror}.") from problem
