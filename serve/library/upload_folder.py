"""The uploads of a library on disk: each in a folder named by its id, with what clients told of it beside it."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import OctavoError
from ...library import catalogue
from ...library.background.reading_queue import ReadingQueue
from ...library.expand_paths import composed
from ...runtime.store.library_snapshot import LibrarySnapshot
from ...runtime.store.model_library import Library
from ...system.files import disk_errors, make_private, read_json, write_json

#: Most bytes of an upload's name, where file systems take 255; most characters of its end, which is kept, and of the
#: name of its folder.
_LONGEST_NAME, _LONGEST_END, _LONGEST_FOLDER = 240, 20, 300

#: Characters of names that cannot be seen: controls, breaks, and marks that turn the direction of writing.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

#: File beside an upload until it is read: its reading resumes when the server is started again.
_UNREAD = ".unread"

#: File beside an upload with what is known about it, or in place of a copy of another upload.
_ABOUT = ".about.json"


class UploadFolder:
    """The files of uploads, the folders that they came from, and the documents that they are copies of.

    Any thread may call it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._about: dict[str, dict[str, Any]] = {}
        self._as_of: dict[str, int] = {}  # times of the files that were read
        self._copies: dict[str, list[str]] = {}
        self._looked, self._lock = -1, threading.RLock()
        self.refresh()

    def refresh(self) -> None:
        """Read what was noted since the last time, by another server, too: each note sets the time of the folder."""
        with self._lock, suppress(OSError):
            if (noted := self._path.stat().st_mtime_ns) == self._looked:
                return
            self._looked = noted
            files = {file.parent.name: file for file in self._path.glob(f"*/{_ABOUT}")}
            for gone in self._about.keys() - files.keys():
                self._about.pop(gone), self._as_of.pop(gone, None)
            for document_id, file in files.items():
                if (time_ns := file.stat().st_mtime_ns) != self._as_of.get(document_id):
                    self._as_of[document_id], self._about[document_id] = time_ns, {}
                    with suppress(OctavoError):  # it is damaged: the document is there, without its folder
                        self._about[document_id] = read_json(file)
            self._find_copies()

    def _find_copies(self) -> None:
        copies: dict[str, list[str]] = {}
        for copy, about in list(self._about.items()):
            if about.get("copy_of", copy) != copy:
                copies.setdefault(about["copy_of"], []).append(copy)
        self._copies = copies

    def holds(self, path: str) -> bool:
        """Return whether a file is that of an upload."""
        return Path(path).parent.parent == self._path

    def folders_of(self, document_id: str) -> Sequence[str]:
        """Return the folders that an upload came from, as the clients name them."""
        folders: list[str] = self._about.get(document_id, {}).get("folders", [])
        return folders

    def names_of(self, document_id: str) -> dict[str, float]:
        """Return the names under which clients uploaded a document, with the time of each."""
        names: dict[str, float] = {}
        for copy in self.copies(document_id):
            for name, at in self._about.get(copy, {}).get("names", {}).items():
                names[name] = max(at, names.get(name, 0.0))
        return names

    def copied(self, document_id: str) -> str:
        """Return the id of the document that an upload has turned out to be a copy of; its own id if it is none."""
        return str(self._about.get(document_id, {}).get("copy_of", document_id))

    def copies(self, document_id: str) -> Sequence[str]:
        """Return the ids of the uploads that are copies of a document, its own included."""
        return [document_id, *self._copies.get(document_id, ())]

    def note_upload(self, document_id: str, name: str, folder: str) -> None:
        """Note that a document was uploaded under a name, and came from a folder, too, unless that is "".

        Raise OctavoError if the disk cannot be written.
        """
        label, names = folder_label(folder), self._about.get(document_id, {}).get("names", {})
        folders = dict.fromkeys([*self.folders_of(document_id), *([label] if label else [])])
        self._note(document_id, folders=list(folders), names={**names, name: time.time()})

    def files(self, document_id: str) -> Sequence[str]:
        """Return the paths of the files of an upload and of its copies."""
        folders = [self._path / copy for copy in self.copies(document_id)]
        return [str(file.resolve()) for folder in folders if folder.is_dir() for file in self._files(folder)]

    def note_copy(self, document_id: str, original: str, is_spare: bool) -> None:
        """Note that an upload is a copy of an indexed document. Remove its file unless it is a spare (see `spares`).

        Raise OctavoError if the disk cannot be written.
        """
        self._note(document_id, copy_of=original, is_spare=is_spare)
        for file in () if is_spare else self._files(self._path / document_id):
            file.unlink()

    def spares(self) -> list[tuple[str, Path]]:
        """Return id and file of each upload whose text has the index of another file, which may change."""
        ids = [document_id for document_id, about in list(self._about.items()) if about.get("is_spare")]
        return [(each, file.resolve()) for each in ids for file in (self._path / each).glob("[!.]*")]

    def note_unread(self, document_id: str) -> None:
        """Note that a spare is to be read after all. Raise OctavoError if the disk cannot be written."""
        self._note(document_id, copy_of=document_id, is_spare=False)
        with disk_errors(self._path):
            (self._path / document_id / _UNREAD).touch(0o600)

    def store(self, document_id: str, name: str, data: bytes, is_spare: bool = False) -> Path:
        """Write an upload, whole or not at all. Return its file. Raise OctavoError if that fails.

        A spare is not to be read (see `spares`).
        """
        file = self._path / document_id / file_name(name)
        is_new, unfinished = not file.parent.exists(), file.with_name(".upload")
        make_private(self._path)
        make_private(file.parent)
        try:
            unfinished.write_bytes(data)
            unfinished.chmod(0o600)
            if is_spare:
                self._note(document_id, is_spare=True)
            else:
                if document_id in self._about:  # what it was a copy of is gone
                    self._note(document_id, copy_of=document_id, is_spare=False)
                file.with_name(_UNREAD).touch(0o600)
            unfinished.replace(file)
        except (OSError, OctavoError) as problem:
            unfinished.unlink(missing_ok=True)
            if is_new:
                shutil.rmtree(file.parent, ignore_errors=True)
            reason = problem.strerror if isinstance(problem, OSError) else problem
            raise OctavoError(f"The upload cannot be stored: {reason}.") from problem
        for other in self._files(file.parent):
            if other.name != file.name:
                other.unlink()
        return file.resolve()

    def stored(self) -> list[Path]:
        """Return the files of all uploads that have indexes of their own, or will."""
        spares = {file for _, file in self.spares()}
        return [file for file in self._path.glob("*/[!.]*") if file not in spares]

    def is_unread(self, file: Path) -> bool:
        """Return whether a file is an upload that was never read."""
        return self.holds(str(file)) and file.with_name(_UNREAD).exists()

    def note_read(self, document_id: str) -> None:
        (self._path / document_id / _UNREAD).unlink(missing_ok=True)

    def unread(self) -> Iterator[tuple[str, Path]]:
        """Yield id and file of each upload whose reading was interrupted."""
        for mark in sorted(self._path.glob(f"*/{_UNREAD}")):
            files = list(self._files(mark.parent))
            if len(files) == 1:
                yield mark.parent.name, files[0].resolve()

    def remove(self, document_id: str) -> None:
        """Remove an upload, and forget what is known about it and its copies."""
        with self._lock:
            for copy in self.copies(document_id):
                self._about.pop(copy, None)
                self._as_of.pop(copy, None)
                shutil.rmtree(self._path / copy, ignore_errors=True)
            self._find_copies()

    def _note(self, document_id: str, **more: Any) -> None:
        """Keep facts about an upload, and let other servers know that there are some."""
        with self._lock:
            about = {**self._about.get(document_id, {}), **more}
            make_private(self._path)
            make_private(self._path / document_id)
            write_json(self._path / document_id / _ABOUT, about)
            self._about[document_id] = about
            self._find_copies()
            with suppress(OSError):
                os.utime(self._path, ns=(time.time_ns(),) * 2)  # the system's own times are too coarse

    @staticmethod
    def _files(folder: Path) -> list[Path]:
        return [file for file in folder.iterdir() if not file.name.startswith(".")]


def uploads_of(library: Library) -> Path:
    """Return the folder of a library's uploads."""
    return library.folder / "uploads"


def find_upload(libraries: Iterable[Library], reference: str) -> Path | None:
    """Return the file of the newest upload with an id or a name; None if there is none."""
    found: list[tuple[float, Path]] = []
    reference = composed(reference)
    for library in libraries:
        folder = UploadFolder(uploads_of(library))
        for file in uploads_of(library).glob("*/[!.]*"):
            names = folder.names_of(file.parent.name)
            if reference in (composed(file.name), file.parent.name, *names):
                with suppress(FileNotFoundError):  # another server removes it
                    found.append((names.get(reference, file.stat().st_mtime), file))
    return max(found, default=(0.0, None))[1]


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


def file_name(name: str) -> str:
    """Return a name for an upload's file: the client's, without folders and without characters that cannot be seen."""
    base = re.split(r"[/\\]", composed(name))[-1]
    cleaned = _UNSEEN.sub("", base).strip(" .")
    if len(cleaned.encode()) > _LONGEST_NAME:
        end = cleaned[-_LONGEST_END:]
        cleaned = cleaned.encode()[: _LONGEST_NAME - len(end.encode())].decode(errors="ignore") + end
    return cleaned or "document.txt"


def folder_label(name: str) -> str:
    """Return the name of a client's folder, which is only shown and compared: octavo makes no folder of this name."""
    parts = [_UNSEEN.sub("_", part).strip() for part in re.split(r"[/\\]", composed(name))]
    return "/".join(part for part in parts if part not in ("", ".", ".."))[:_LONGEST_FOLDER].strip("/ ")


def is_in_folder(folders: Sequence[str], named: str) -> bool:
    """Return whether one of a document's folders is a folder or in it, which is named by its path or the end of it."""
    name, folders = composed(named.rstrip("/")), list(map(composed, folders))
    if name.startswith(("/", "~")):
        return any(f"{folder}/".startswith(f"{name}/") for folder in folders)
    return bool(name) and any(f"/{name}/" in f"/{folder}/" for folder in folders)
