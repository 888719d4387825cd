"""Have Numba keep kernels in the user's folder, and never run damaged ones or another user's.

Numba unpickles and runs the files that it finds. So each file begins with its checksum, and a damaged file counts as
missing.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from blake3 import blake3
from numba.core import caching

from .kernel_cache import folder_of, kernel_folder

#: Versions of a file whose kernels are kept: those of two installs, and one to come back to.
_KEPT = 3

#: Names of the folders of octavo 0.3 and before.
_OLD_NAME = re.compile(r"[0-9a-f]{16}")

_CHECKSUM_BYTES = 32


class _OurFiles(caching.IndexDataCacheFile):
    """Numba's files of one function, with checksums. Unreadable files count as missing."""

    def save(self, key: Any, data: Any) -> None:
        """Keep compiled code for a signature, one process after another.

        Numba reads the index file of a function, chooses a free name for the code of a signature, and writes both. Two
        processes at once might choose the same name, and then the index would lead to the code of another signature.
        """
        folder = Path(self._cache_path)
        with suppress(OSError):  # the disk is full, or the folder gone: this process still has its kernels
            if not folder.exists():
                _remove_old(folder)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                super().save(key, data)

    def load(self, key: Any) -> Any:
        """Return the compiled code for a signature; None if it is missing or damaged."""
        _note_use(self._cache_path)
        return self._load_data(name) if (name := self._load_index().get(key)) else None

    def _load_index(self) -> dict[Any, str]:
        kept = _read(self._index_path)
        if kept is None or kept[:2] != (self._version, self._source_stamp):
            return {}
        names: dict[Any, str] = kept[2]
        return names

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._write(self._index_path, (self._version, self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:
        return _read(self._data_path(name), _OurLocator.prepare)

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _write(self, path: str, value: Any) -> None:
        content = self._dump(value)
        with self._open_for_write(path) as file:
            file.write(blake3(content).digest() + content)


def _remove_old(folder: Path) -> None:
    """Make room for a new version's folder: remove those of its file that were not used lately."""
    module = folder.name.rpartition("-")[0]
    versions = sorted(folder.parent.glob(f"{module}-*"), key=lambda each: each.stat().st_mtime)
    old = [each for each in folder.parent.iterdir() if _OLD_NAME.fullmatch(each.name)]
    for each in [*versions[: len(versions) - _KEPT + 1], *old]:
        shutil.rmtree(each, ignore_errors=True)


@cache
def _note_use(folder: str) -> None:
    """Mark a folder as used now, once in a process."""
    with suppress(OSError):
        os.utime(folder)


def _read(path: str, prepare: Callable[[bytes], object] = bytes) -> Any:
    """Return the content of a file; None if it is missing, damaged, or another user's. `prepare` takes it first."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            checksum, content = file.read(_CHECKSUM_BYTES), file.read()
    except OSError:
        return None
    if blake3(content).digest() != checksum:
        return None
    prepare(content)
    return pickle.loads(content)


class _OurLocator:
    """Tell Numba where to keep kernels, of this package and of users' own methods.

    Numba's own locators try to write in each folder, and fall back to folders beside the sources.
    """

    files: ClassVar[set[Path]] = set()
    prepare: Callable[[bytes], object] = bytes

    def __init__(self, function: Any, path: Path) -> None:
        self._path, self._line = path, function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Any, path: str) -> _OurLocator | None:
        """Return a locator for a kernel; None for other functions."""
        return cls(function, Path(path)) if Path(path) in cls.files else None

    def get_cache_path(self) -> str:
        """Return the folder of the function."""
        return str(folder_of(self._path))

    def ensure_cache_path(self) -> None:
        """Do nothing: the first write creates the folder."""

    def get_source_stamp(self) -> str:
        """Return a constant: the folder's name changes with the code, and two installs share compiled kernels."""
        return ""

    def get_disambiguator(self) -> str:
        """Return a name that distinguishes functions of one name in one file."""
        return str(self._line)


def keep_kernels(path: Path, prepare: Callable[[bytes], object]) -> None:
    """Make Numba keep the functions of a file in the user's folder from now on.

    `prepare` takes the content of each file of compiled code before the code is linked.
    """
    if not _OurLocator.files:
        caching.CompileResultCacheImpl._locator_classes.insert(0, _OurLocator)
        caching.IndexDataCacheFile = _files
        _OurLocator.prepare = prepare
    _OurLocator.files.add(path)


_NumbasFiles = caching.IndexDataCacheFile


def _files(cache_path: str, filename_base: str, source_stamp: Any) -> Any:
    """Return the files of one function: octavo's in its folder, Numba's elsewhere."""
    ours = Path(cache_path).is_relative_to(kernel_folder())
    return (_OurFiles if ours else _NumbasFiles)(cache_path, filename_base, source_stamp)
