"""Keep compiled kernels in a folder of the user, where nothing that is damaged or another user's is ever run.

Numba's cache notices an edit in the file of a compiled function, but not in the files of the functions that it calls.
The name of our folder is therefore a hash of the code of all kernel sources: an edit of code anywhere makes a new
folder, an edit of a docstring or a comment does not. Numba notices another CPU, but not that the system forbids a part
of it: the hash therefore covers what this process may use, too.

Numba unpickles what it finds, and runs it. So each file begins with its checksum, and one that is not as it was written
is as if it were not there. Where the folder cannot be written, or is not the user's alone, kernels are compiled for
this process only.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import pickle
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs
from blake3 import blake3
from numba.core import caching

_PACKAGE = Path(__file__).parents[2]

#: Folders of the package whose files are kernels.
_SOURCES = _PACKAGE / "cpu_kernels", _PACKAGE / "runtime" / "graph"

_CHECKSUM_BYTES = 32

#: Write access of others than the owner.
_OTHERS_WRITE = 0o022


@cache
def folder_for(feature: str) -> Path:
    """Return the folder of the kernels that were compiled from exactly this code.

    Parameters
    ----------
    feature : str
        What of the CPU this process may use, where it is not what Numba sees.

    Returns
    -------
    Path
        A folder inside the user's cache folder. What is compiled first creates it.
    """
    paths = [path for folder in _SOURCES for path in sorted(folder.rglob("*.py"))]
    code = [f"{path.relative_to(_PACKAGE)}\n{code_of(path.read_text('utf-8'))}\n" for path in paths]
    digest = hashlib.sha256("".join([*code, feature]).encode()).hexdigest()[:16]
    return Path(platformdirs.user_cache_dir("octavo")) / "kernels" / digest


def code_of(source: str) -> str:
    """Return a text that is the same for two sources if they differ only in comments, docstrings and layout.

    Returns
    -------
    str
        The module's syntax tree, without strings that stand alone.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [each for each in body if not _is_string(each)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_string(node: ast.AST) -> bool:
    """Return whether a statement is a string that stands alone, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@cache
def is_usable(folder: Path) -> bool:
    """Return whether kernels can be kept in a folder, which is created: it is this user's alone, and can be written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        with tempfile.TemporaryFile(dir=folder):
            return status.st_uid == os.getuid() and not status.st_mode & _OTHERS_WRITE
    except OSError:
        return False


class _OurFiles(caching.IndexDataCacheFile):
    """Numba's files of one function, with checksums. What cannot be read or written is not there."""

    def save(self, key: Any, data: Any) -> None:
        """Keep what was compiled for a signature, one process after another.

        Numba reads the index file of a function, chooses a free name for the code of a signature, and writes both. Two
        processes that do so at once may choose the same name, and then the index leads to the code of another
        signature.
        """
        folder = Path(self._cache_path)
        with suppress(OSError):  # of a full disk, or of a folder that is gone: this process has its kernels
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                super().save(key, data)

    def load(self, key: Any) -> Any:
        """Return what was compiled for a signature; None if there is nothing, or nothing that is whole."""
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
        return _read(self._data_path(name))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _write(self, path: str, value: Any) -> None:
        content = self._dump(value)
        with self._open_for_write(path) as file:
            file.write(blake3(content).digest() + content)


def _read(path: str) -> Any:
    """Return what a file of ours holds; None if it is not there, not whole, or not of this user."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            checksum, content = file.read(_CHECKSUM_BYTES), file.read()
    except OSError:
        return None
    return pickle.loads(content) if blake3(content).digest() == checksum else None


class _OurLocator:
    """Numba's question where a function is kept, answered for functions of this package.

    Numba's own answers try to write in each folder, and fall back to folders beside the sources.
    """

    folder = Path()

    def __init__(self, function: Any, path: Path) -> None:
        self._path, self._line = path, function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Any, path: str) -> _OurLocator | None:
        """Answer for a function of this package; None for others."""
        return cls(function, Path(path)) if Path(path).is_relative_to(_PACKAGE) and cls.folder != Path() else None

    def get_cache_path(self) -> str:
        """Return the folder of the function."""
        return str(self.folder / self._path.parent.relative_to(_PACKAGE))

    def ensure_cache_path(self) -> None:
        """Do nothing: what is kept creates the folder."""

    def get_source_stamp(self) -> str:
        """Return a constant: the folder's name changes with the code, and two installs share compiled kernels."""
        return ""

    def get_disambiguator(self) -> str:
        """Return what tells functions of one name in one file apart."""
        return str(self._line)


def keep_in(folder: Path) -> None:
    """Have Numba keep the functions of this package in a folder from now on."""
    if _OurLocator.folder == Path():
        caching.CompileResultCacheImpl._locator_classes.insert(0, _OurLocator)
        caching.IndexDataCacheFile = _files
    _OurLocator.folder = folder


_NumbasFiles = caching.IndexDataCacheFile


def _files(cache_path: str, filename_base: str, source_stamp: Any) -> Any:
    """Return the files of one function: ours in our folder, Numba's elsewhere."""
    ours = Path(cache_path).is_relative_to(_OurLocator.folder)
    return (_OurFiles if ours else _NumbasFiles)(cache_path, filename_base, source_stamp)
