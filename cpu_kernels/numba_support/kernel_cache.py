"""Keep compiled kernels in a folder of the user, and never run damaged ones or another user's.

Numba's cache notices an edit in the file of a compiled function, but not in the files of the functions that it calls.
So the functions of a file are kept in a folder whose name has a hash of the code of that file and of all that it
imports: an edit of code there makes a new folder, an edit of a docstring or comment, or of another file, does not. Of
each file the folders that were used last are kept. Numba notices another CPU, but not that the system forbids a part of
it, so the hash also covers the features that this process may use.

The hash covers Numba's version, too: one version can neither read nor keep what another one compiled.

Numba unpickles and runs what it finds. So each file begins with its checksum, and a damaged file counts as missing. If
the folder is not writable, or not the user's alone, kernels are compiled for this process only.
"""

from __future__ import annotations

import dis
import fcntl
import hashlib
import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

import numba
import numpy as np
import platformdirs
from blake3 import blake3
from numba.core import caching

from .machine_features import HAS_AMX

_PACKAGE = Path(__file__).parents[2]

#: Versions of a file whose kernels are kept: those of two installs, and one to come back to.
_KEPT = 3

#: Names of the folders of octavo 0.3 and before.
_OLD_NAME = re.compile(r"[0-9a-f]{16}")

#: An import: its module, and the names, which may be in parentheses. Finding some more files does no harm.
_IMPORT = re.compile(r"^\s*from\s+([.\w]+)\s+import\s+(\((?:[^)#]|#.*)*\)|.*)", re.MULTILINE)
_WORD = re.compile(r"\w+")

#: The instruction that does nothing. Python puts one in the place of each docstring that it leaves out.
_NOP = dis.opmap["NOP"]

_CHECKSUM_BYTES = 32

#: Write access for others than the owner.
_OTHERS_WRITE = 0o022


@cache
def kernel_folder() -> Path:
    """Return the folder of all compiled kernels, in the user's cache folder."""
    return Path(platformdirs.user_cache_dir("octavo")) / "kernels"


@cache
def folder_of(path: Path) -> Path:
    """Return the folder of the kernels of a file, compiled from exactly this code."""
    module = ".".join(_name(path).with_suffix("").parts).strip("/.")
    return kernel_folder() / f"{module}-{version_of([path])}"


def version_of(paths: list[Path]) -> str:
    """Return a hash of the code of some files, and of all files of this package that they import.

    A file elsewhere, a user's own method, may import in other ways than a search finds: it depends on all kernels.
    """
    waiting, code = list(paths), dict[str, str]()
    if not all(path.is_relative_to(_PACKAGE) for path in paths):
        waiting += (_PACKAGE / "cpu_kernels").rglob("*.py")
    while waiting:
        path = waiting.pop()
        name = str(_name(path))
        if name not in code:
            code[name] = _code_in(path)
            waiting += _imports_of(path)
    described = "".join(f"{name}\n{code[name]}\n" for name in sorted(code))
    return hashlib.sha256(f"{described}{HAS_AMX} {numba.__version__}".encode()).hexdigest()[:16]


def _name(path: Path) -> Path:
    """Return the path of a file in this package: the same for two installs. A user's own method is elsewhere."""
    return path.relative_to(_PACKAGE) if path.is_relative_to(_PACKAGE) else Path(path.name)


@cache
def _code_in(path: Path) -> str:
    return code_of(path.read_text("utf-8"))


@cache
def _imports_of(path: Path) -> list[Path]:
    """Return the files of this package that a file imports."""
    found = []
    for module, names in _IMPORT.findall(path.read_text("utf-8")):
        place = module.lstrip(".")
        level = len(module) - len(place)
        if level:
            base = path.parents[level - 1].joinpath(*place.split("."))
        elif place.split(".")[0] == "octavo":
            base = _PACKAGE.joinpath(*place.split(".")[1:])
        else:
            continue
        found += [base.with_suffix(".py"), *(base / f"{each}.py" for each in _WORD.findall(names))]
    return [each for each in found if each.is_file()]


def code_of(source: str) -> str:
    """Return a module's bytecode without docstrings: equal for sources that differ only in comments and layout."""
    return repr(_described(compile(source, "", "exec", dont_inherit=True, optimize=2)))


def _described(constant: object) -> object:
    """Return what a constant of compiled code is, without the places of code, the same in each process."""
    if isinstance(constant, frozenset):
        return sorted(map(repr, constant))
    if not isinstance(constant, CodeType):
        return constant
    names = constant.co_names, constant.co_varnames, constant.co_freevars, constant.co_cellvars
    arguments = constant.co_argcount, constant.co_posonlyargcount, constant.co_kwonlyargcount, constant.co_flags
    instructions = np.frombuffer(constant.co_code, np.uint8).reshape(-1, 2)
    code = instructions[instructions[:, 0] != _NOP].tobytes()
    return code, names, arguments, [_described(each) for each in constant.co_consts]


@cache
def is_usable(folder: Path) -> bool:
    """Create a folder, and return whether it can keep kernels: it is writable, and this user's alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        with tempfile.TemporaryFile(dir=folder):
            return status.st_uid == os.getuid() and not status.st_mode & _OTHERS_WRITE
    except OSError:
        return False


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
