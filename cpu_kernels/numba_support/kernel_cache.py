"""Name the folders in which a user's compiled kernels are kept.

Numba's cache notices an edit in the file of a compiled function, but not in the files of the functions that it calls.
So the functions of a file are kept in a folder whose name has a hash of the code of that file and of all that it
imports: an edit of code there makes a new folder, an edit of a docstring or comment, or of another file, does not. Of
each file the folders that were used last are kept. Numba notices another CPU, but not that the system forbids a part of
it, so the hash also covers the features that this process may use.

The hash covers Numba's version, too: one version can neither read nor keep what another one compiled.

If the folder is not writable, or not the user's alone, kernels are compiled for this process only.
"""

from __future__ import annotations

import dis
import hashlib
import os
import re
import tempfile
from functools import cache
from pathlib import Path
from types import CodeType

import numba
import numpy as np
import platformdirs

from .machine_features import HAS_AMX

_PACKAGE = Path(__file__).parents[2]

#: An import: its module, and the names, which may be in parentheses. Finding some more files does no harm.
_IMPORT = re.compile(r"^\s*from\s+([.\w]+)\s+import\s+(\((?:[^)#]|#.*)*\)|.*)", re.MULTILINE)
_WORD = re.compile(r"\w+")

#: The instruction that does nothing. Python puts one in the place of each docstring that it leaves out.
_NOP = dis.opmap["NOP"]

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
