"""List indexes: their documents, size, age, and whether they are stale, unfinished or damaged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..convert.build_pieces import ABOUT
from ..errors import OctavoError, shown
from ..runtime.store.index_files import USED, folder_bytes, open_index
from ..runtime.store.manifest import MANIFEST, read_manifest
from ..runtime.store.plan import is_profile
from ..system.files import PARTIAL, read_json
from ..system.locks import Busy, do_not_wait, is_locked, locked
from .source_text import CHANGED, GONE, state_of_file
from .text_store import is_gone

#: Faults of an index, beside CHANGED and GONE of its document's file.
UNFINISHED, DAMAGED = "unfinished", "damaged"

#: State of an index whose document may be on a drive that is not connected.
AWAY = "away"

#: States of an index, and of a profile, that a process is making.
BEING_READ, BEING_MEASURED = "being read", "being measured"

#: What stands for the name of a document in the entry of a profile's measurements.
PROFILE = "(profile)"


@dataclass(frozen=True)
class Entry:
    """An index, finished or not, or what an unfinished profile has measured (`is_profile`).

    Parameters
    ----------
    document, model : str
        Names of document and model.
    file : str
        Name of the document's file, of which the document may be a part.
    tokens : int
        Tokens of the document; 0 if unknown.
    kv_type : str
        Type of its keys and values; "" if unknown.
    n_bytes : int
        Bytes on disk.
    created, used : datetime
        Times of its making and last use.
    state : str
        CHANGED if the document's file has another text now, GONE if it is missing, AWAY if its folder is; BEING_READ or
        BEING_MEASURED while it is made, UNFINISHED if that was interrupted, DAMAGED if it cannot be read; else "".
    path : str
        Path of the document's file; "" if unknown.
    """

    folder: Path
    document: str
    file: str
    model: str
    tokens: int
    kv_type: str
    n_bytes: int
    created: datetime
    used: datetime
    state: str
    path: str = ""

    @property
    def is_profile(self) -> bool:
        """Return whether these are the measurements of an unfinished profile."""
        return self.document == PROFILE

    @property
    def is_being_made(self) -> bool:
        """Return whether a process is making it."""
        return self.state in (BEING_READ, BEING_MEASURED)


def entries(folders: Iterable[Path]) -> list[Entry]:
    """Return the indexes in the folders of some libraries, the most recently used first."""
    found = [entry for folder in folders for entry in _entries_of(folder)]
    return sorted(found, key=lambda entry: entry.used, reverse=True)


def older_versions(found: Sequence[Entry]) -> list[Entry]:
    """Return the indexes of texts that files had before, where the same file is indexed as it is now, too."""
    current = {(entry.path, entry.model) for entry in found if entry.path and entry.state not in (CHANGED, GONE)}
    return [entry for entry in found if entry.state == CHANGED and (entry.path, entry.model) in current]


def _entries_of(library: Path) -> Iterator[Entry]:
    """Yield the indexes of a library."""
    model, names = f"{library.stem}.gguf", _names_in(library)
    for name in names:
        finished = name.removesuffix(PARTIAL)
        other = finished if name != finished else f"{name}{PARTIAL}"
        for each in (name,) if other in names else (name, other, name):  # it may have moved since they were listed
            if (entry := _entry_of(library / each, model)) is not None:
                yield entry
                break


def _names_in(library: Path) -> set[str]:
    """Return the names of all files and folders of a library: a listing may lack one that is renamed meanwhile."""
    names: set[str] | None = None
    with suppress(OSError):
        for _ in range(100):
            before, names = names, set(os.listdir(library))
            if names == before:
                break
    return names or set()


def _entry_of(folder: Path, model: str) -> Entry | None:
    """Return an index of a model's library; None for another folder, or one that is removed meanwhile."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return _read_entry(folder, model)
    return None


def _read_entry(folder: Path, model: str) -> Entry | None:
    """Return an index; None for another folder. Raise FileNotFoundError if it is removed meanwhile."""
    unfinished, changed, manifest, about = folder.name.endswith(PARTIAL), _time(folder), None, None
    if not folder.is_dir() or not (unfinished or (folder / MANIFEST).exists()):
        return None
    name = PROFILE if is_profile(folder) else folder.name.removesuffix(PARTIAL).rpartition("-")[0]
    with suppress(OctavoError):  # it is damaged, or an unfinished one of an older octavo
        about = read_json(folder / ABOUT) if unfinished else (manifest := read_manifest(folder))
    n_bytes = folder_bytes(folder)
    if about is None:
        state = _state_of_partial(folder) if unfinished else DAMAGED
        _time(folder)  # still there
        return Entry(folder, name, name, model, 0, "", n_bytes, changed, changed, state)
    document = about["document"]
    name = document["name"]
    file = shown(Path(document["path"]).name) if "part" in document and "path" in document else name
    known = folder, name, file, about["model"]["name"], document["tokens"], about["dtype"], n_bytes
    if manifest is None:
        return Entry(*known, changed, changed, _state_of_partial(folder))
    created, used = datetime.fromisoformat(manifest["created"]), None
    with suppress(FileNotFoundError):
        used = _time(folder / USED)
    return Entry(*known, created, used or created, _state(document), document.get("path", ""))


def _state_of_partial(folder: Path) -> str:
    """Return whether a process makes the index, or the profile, in a folder."""
    if not is_locked(folder):
        return UNFINISHED
    return BEING_MEASURED if is_profile(folder) else BEING_READ


def _state(document: dict[str, Any]) -> str:
    """Return what became of a document's file."""
    state, path = state_of_file(document), document.get("path", "")
    return AWAY if state == GONE and not os.path.exists(path) and not is_gone(path) else state


def _time(path: Path) -> datetime:
    """Return the modification time of a file."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def damage_of(folder: Path) -> str:
    """Return the damage of an index as a sentence, or "", after comparing all its files."""
    try:
        open_index(folder, read_manifest(folder)["model"]["sha256"], thorough=True)
    except OctavoError as problem:
        return str(problem)
    return ""


def remove(folder: Path) -> None:
    """Remove an index. Raise OctavoError if that fails."""
    try:
        with locked(folder, waiting=do_not_wait):
            (folder / MANIFEST).unlink(missing_ok=True)  # the remains of an interrupted removal are not an index
            shutil.rmtree(folder)
    except FileNotFoundError:  # another process was faster
        return
    except Busy as problem:
        raise OctavoError(
            f"{folder} is in use: another octavo is building or opening it. Try again later."
        ) from problem
    except OSError as problem:
        raise OctavoError(f"{folder} cannot be removed: {problem.strerror}.") from problem
