"""Turn what a user names (files, folders, patterns) into a list of documents."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..documents.read import STANDARD_INPUT, may_be_document
from ..errors import OctavoError
from ..runtime.store.model_library import LIBRARY

#: What octavo reads, to explain what it leaves out.
_READS = "octavo reads text, Markdown, HTML, PDF, EPUB and DOCX."

Name = str | os.PathLike[str]


def documents_of(paths: Iterable[Name], notice: Callable[[str], None] | None = None) -> list[Name]:
    """Return the documents that paths name, each once, in the order in which they are named.

    A folder stands for the documents in it and in its folders, sorted by name. Left out of it are hidden files and
    folders, octavo's own folders, and files that octavo does not read, such as pictures. A file that is named itself is
    never left out: if it cannot be read, opening it says why.

    Parameters
    ----------
    paths : iterable of path
        Files, folders, patterns such as "reports/**/*.pdf", and "-" for standard input. A file whose name looks like a
        pattern is that file.
    notice : callable, optional
        Receives a sentence for each folder in which there are files that octavo does not read, or that is closed.

    Returns
    -------
    list of path
        The documents. Those of folders are of the class `Path`, others are as they were given.

    Raises
    ------
    OctavoError
        A folder has no document in it, or a pattern fits nothing.
    """
    found: dict[str, Name] = {}
    for path in paths:
        for document in _named(path, notice or (lambda sentence: None)):
            name = os.fspath(document)
            found.setdefault(name if name == STANDARD_INPUT else os.path.realpath(name), document)
    return list(found.values())


def names_many(path: Name) -> bool:
    """Return whether a path stands for several documents: a folder does, and a pattern that is not a file's name."""
    name = os.fspath(path)
    return os.path.isdir(name) or (glob.has_magic(name) and not os.path.lexists(name))


def _named(path: Name, notice: Callable[[str], None]) -> Iterator[Name]:
    """Yield the documents that one path names."""
    name = os.fspath(path)
    if not names_many(path):
        yield path
    elif os.path.isdir(name):
        yield from _documents_in(Path(path), notice)
    else:
        matches = [Path(match) for match in sorted(glob.glob(name, recursive=True))]
        if "**" in Path(name).parts:  # which goes into folders by itself
            matches = [match for match in matches if not match.is_dir()]
        if not matches:
            raise OctavoError(f"There is nothing like {name}: give a file, a folder, or another pattern.")
        for match in matches:
            yield from _documents_in(match, notice) if match.is_dir() else [match]


def _documents_in(folder: Path, notice: Callable[[str], None]) -> list[Path]:
    """Return the documents that a folder stands for."""
    documents: list[Path] = []
    others: list[Path] = []
    for path in sorted(files_in(folder, notice)):
        (documents if may_be_document(path) else others).append(path)
    if not documents:
        raise OctavoError(f"There is no document in the folder {folder}: {_READS}")
    if others:
        what = f"{len(others):,} files, such as {others[0].name}, are" if others[1:] else f"{others[0].name} is"
        notice(f"{what} left out of {folder}: {_READS}")
    return documents


def files_in(folder: Path, notice: Callable[[str], None]) -> Iterator[Path]:
    """Yield the files in a folder and its folders that are documents if they are of a kind that octavo reads.

    Parameters
    ----------
    folder : Path
        The folder. A folder in it that links lead to once more is entered once.
    notice : callable
        Receives a sentence for each folder that is closed.

    Yields
    ------
    Path
        The files, in no order.
    """

    def is_closed(problem: OSError) -> None:
        notice(f"The folder {problem.filename} cannot be read, so it is left out: {problem.strerror}.")

    entered = set()
    for root, folders, files in os.walk(folder, onerror=is_closed, followlinks=True):
        folders[:] = sorted(name for name in folders if not _is_left_out(name))
        real = os.path.realpath(root)
        if real in entered:
            folders.clear()
            continue
        entered.add(real)
        yield from (path for path in (Path(root, name) for name in files) if _is_file(path))


def _is_left_out(folder: str) -> bool:
    """Return whether folders of this name are hidden, or octavo's own."""
    return folder.startswith(".") or folder.endswith(LIBRARY)


def _is_file(path: Path) -> bool:
    """Return whether a path is a plain file that is not hidden: no pipe, and no link that leads nowhere."""
    try:
        return not path.name.startswith(".") and stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
