"""Expand the files, folders and patterns that a user names into a list of documents, and name these."""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath

from ..documents.document import READS, STANDARD_INPUT, document_name
from ..documents.extract import may_be_document
from ..documents.opening_problem import opening_problem
from ..errors import OctavoError, shown
from ..progress import LeftOut
from ..runtime.store.model_library import LIBRARY

#: Names of files that programs leave beside documents: locks and drafts of Office, copies of editors, unfinished
#: downloads, and files in which Windows keeps how it shows a folder.
_LEFTOVER = re.compile(
    r"~\$.*|~wr[dl]\d+\.tmp|.*~|#.*#|.*\.(crdownload|part|partial|download|opdownload|filepart|aria2)|"
    r"desktop\.ini|(eh)?thumbs(_vista)?\.db",
    re.IGNORECASE | re.DOTALL,
)

Name = str | os.PathLike[str]

#: Returns whether to enter a folder, which may be a link to one.
MayEnter = Callable[[str], bool]


def listed(paths: Name | Iterable[Name]) -> list[Name]:
    """Return paths as a list; a single one is a list of one."""
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


def documents_of(
    paths: Iterable[Name],
    notice: Callable[[str], None] | None = None,
    may_enter: MayEnter = lambda folder: True,
) -> list[Name]:
    """Return the documents that paths name, each once, in the order in which they are named.

    A folder stands for the documents in it and in its folders, sorted by name, without hidden files and folders,
    octavo's own folders, files that programs leave beside documents, and files of other formats, such as pictures. A
    named file always counts: if it cannot be read, opening it raises the error.

    Parameters
    ----------
    paths : iterable of path
        Files, folders, patterns such as "reports/**/*.pdf", and "-" for standard input. A file whose name looks like a
        pattern is that file.
    notice : callable, optional
        Receives a notice about each folder that is closed, or has files of other formats.
    may_enter : callable, optional
        Returns whether to enter a folder in a folder; by default all.

    Returns
    -------
    list of path
        Documents of folders as `Path`, others unchanged.

    Raises
    ------
    OctavoError
        A folder has no documents, or a pattern matches none.
    """
    found: dict[str, Name] = {}
    for path in paths:
        for document in _named(path, notice or (lambda sentence: None), may_enter):
            name = os.fspath(document)
            found.setdefault(name if name == STANDARD_INPUT else os.path.realpath(name), document)
    return list(found.values())


def check_existence(paths: Iterable[Name]) -> None:
    """Raise OctavoError if named files do not exist. A shell or a folder names only files that do."""
    missing = [name for path in paths if not (_is_there(name := os.fspath(path)) or glob.has_magic(name))]
    if len(missing) == 1:
        raise opening_problem(missing[0], FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
    if missing:
        raise OctavoError(f"There are no documents {', '.join(missing[:-1])} and {missing[-1]}: nothing is opened.")


def _is_there(name: str) -> bool:
    return name == STANDARD_INPUT or os.path.lexists(name)


def absolute(paths: Iterable[Name]) -> tuple[str, ...]:
    """Return paths that are valid in other folders, too; standard input stays as it is."""
    names = [os.fspath(path) for path in paths]
    return tuple(name if name == STANDARD_INPUT else os.path.abspath(name) for name in names)


def names_many(path: Name) -> bool:
    """Return whether a path stands for several documents, as a folder and a pattern do."""
    name = os.fspath(path)
    return os.path.isdir(name) or (glob.has_magic(name) and not os.path.lexists(name))


def _named(path: Name, notice: Callable[[str], None], may_enter: MayEnter) -> Iterator[Name]:
    """Yield the documents of a path."""
    name = os.fspath(path)
    if not names_many(path):
        yield path
    elif os.path.isdir(name):
        yield from _documents_in(Path(path), notice, may_enter)
    else:
        matches = [Path(match) for match in sorted(glob.glob(name, recursive=True)) if not _is_leftover(match)]
        if "**" in Path(name).parts:  # it enters folders by itself
            matches = [match for match in matches if not match.is_dir()]
        if not matches:
            raise OctavoError(f"There is nothing like {name}: give a file, a folder, or another pattern.")
        for match in matches:
            yield from _documents_in(match, notice, may_enter) if match.is_dir() else [match]


def _documents_in(folder: Path, notice: Callable[[str], None], may_enter: MayEnter) -> list[Path]:
    documents: list[Path] = []
    others: list[Path] = []
    for path in sorted(files_in(folder, notice, may_enter)):
        (documents if may_be_document(path) else others).append(path)
    if not documents:
        raise OctavoError(f"There is no document in the folder {folder}: {READS}")
    if others:
        names = ", ".join(str(path.relative_to(folder)) for path in others)
        notice(LeftOut(f"{names} {'are' if others[1:] else 'is'} left out of {folder}: {READS}"))
    return documents


def files_in(folder: Path, notice: Callable[[str], None], may_enter: MayEnter = lambda folder: True) -> Iterator[Path]:
    """Yield the visible plain files in a folder and its subfolders, in any order and of any format.

    Parameters
    ----------
    folder : Path
        Folders in it with several links to them are entered once.

    Yields
    ------
    Path
        The files, in no order.
    """

    def is_closed(problem: OSError) -> None:
        notice(LeftOut(f"The folder {problem.filename} cannot be read, so it is left out: {problem.strerror}."))

    entered = set()
    for root, folders, files in os.walk(folder, onerror=is_closed, followlinks=True):
        visible = sorted(name for name in folders if not _is_left_out(name))
        folders[:] = [name for name in visible if may_enter(os.path.join(root, name))]
        real = os.path.realpath(root)
        if real in entered:
            folders.clear()
            continue
        entered.add(real)
        yield from (path for path in (Path(root, name) for name in files) if _is_file(path))


def _is_left_out(folder: str) -> bool:
    """Return whether folders of this name are hidden, or octavo's own."""
    return folder.startswith(".") or folder.endswith(LIBRARY)


def _is_leftover(path: str) -> bool:
    """Return whether a file is what programs leave beside documents, by its name."""
    return _LEFTOVER.fullmatch(os.path.basename(path)) is not None


def distinct_names(paths: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """Return a name for each path: "report.pdf", or "2023/report.pdf" where another path is "2024/report.pdf"."""
    of_name: dict[str, list[str]] = defaultdict(list)
    for path in dict.fromkeys(os.fspath(path) for path in paths):
        of_name[document_name(path)].append(path)
    names: dict[str, str] = {}
    for name, same in of_name.items():
        if len(same) == 1 or STANDARD_INPUT in same:
            names |= dict.fromkeys(same, name)
            continue
        parts = {path: PurePath(os.path.abspath(path)).parts for path in same}
        for path, own in parts.items():
            others = [other for other in parts.values() if other != own]
            n = next((n for n in range(2, len(own)) if all(own[-n:] != other[-n:] for other in others)), len(own))
            names[path] = shown(PurePath(*own[-n:]).as_posix()) if others else name
    return names


def composed(name: str) -> str:
    """Return a name in the form to compare: letters with accents may be one character, or several as on a Mac."""
    return unicodedata.normalize("NFC", name)


def _is_file(path: Path) -> bool:
    """Return whether a path is a plain, visible file: not a pipe, a broken link, or left by a program."""
    try:
        return not path.name.startswith(".") and not _is_leftover(path.name) and stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
