"""The documents that a client may name: those in the files and folders that octavo was started with, and no others."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

from ...errors import OctavoError, shown
from ...library.expand_paths import composed, documents_of

#: Why a link is left out.
_IS_OUTSIDE = "is a link to what may not be used, so it is left out."


class NamedDocuments:
    """Finds documents by their names.

    The name of a document is its path in its folder; with several folders, the name of the folder stands before it.
    Links count as what they lead to.

    Parameters
    ----------
    paths : sequence of path
        Files, and folders, which stand for the documents in them.

    Raises
    ------
    OctavoError
        A path does not exist, or two of them have the same name.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._roots = {Path(os.path.realpath(path)): None for path in paths}
        names = [root.name for root in self._roots]
        for root in self._roots:
            if not root.exists():
                raise OctavoError(f"There is no file or folder {root}: give those whose documents may be used.")
            if names.count(root.name) > 1:
                raise OctavoError(f"Two folders have the name {root.name}: give one that holds both, or rename one.")

    @cached_property
    def _is_one_folder(self) -> bool:
        return len(self._roots) == 1 and next(iter(self._roots)).is_dir()

    def all(self, notice: Callable[[str], None] = lambda sentence: None) -> dict[str, Path]:
        """Return the documents that there are now, by name. `notice` receives why files are left out."""
        found: dict[str, Path] = {}
        for root in self._roots:
            for path in self._documents_of(root, notice):
                real, name = Path(os.path.realpath(path)), self._name(root, Path(path))
                if self._holds(real):
                    found[name] = real
                else:
                    notice(f"{name} {_IS_OUTSIDE}")
        return found

    def named(self, names: Iterable[str]) -> dict[str, Path]:
        """Return the documents of some names, by their full names.

        A name may be a path, the last part of one, or that of a folder, which stands for the documents in it.

        Raises
        ------
        OctavoError
            A name is not that of a document, or stands for several.
        """
        known = self.all()
        return {name: path for each in names for name, path in self._named(each, known).items()}

    def one(self, name: str) -> tuple[str, Path]:
        """Return the full name and the path of a single document. Raise OctavoError if there is none, or several."""
        found = self.named([name])
        if len(found) > 1:
            raise OctavoError(f"{name} stands for {len(found):,} documents: name one of them.")
        return next(iter(found.items()))

    def _named(self, name: str, known: dict[str, Path]) -> dict[str, Path]:
        """Return the document of a name, or the documents of a folder."""
        if name in known:
            return {name: known[name]}
        wanted, forms = composed(name), {each: composed(each) for each in known}
        ends = [each for each, form in forms.items() if form == wanted or form.endswith(f"/{wanted}")]
        if len(ends) > 1:
            raise OctavoError(f"Several documents are named {name}: {', '.join(ends)}. Give one of these names.")
        within = {each: path for each, path in known.items() if forms[each].startswith(f"{wanted.rstrip('/')}/")}
        if found := {each: known[each] for each in ends} or within:
            return found
        where = [] if "\0" in name else [Path(os.path.realpath(root / name)) for root in self._roots]
        places = list(filter(self._holds, where))
        if found := {each: path for each, path in known.items() if any(path.is_relative_to(at) for at in places)}:
            return found
        if where and not places:
            raise OctavoError(f"{name} is outside of what may be used, which is {self}.")
        close = difflib.get_close_matches(name, known, 1)
        meant = f" Did you mean {close[0]}?" if close else " list_documents lists all."
        raise OctavoError(f"There is no document named {name}.{meant}")

    def __str__(self) -> str:
        return ", ".join(map(str, self._roots))

    def _holds(self, real: Path) -> bool:
        """Return whether a path without links may be used."""
        return any(real.is_relative_to(root) for root in self._roots)

    def _name(self, root: Path, path: Path) -> str:
        """Return the name of a document in a file or folder."""
        return shown(path.relative_to(root if self._is_one_folder else root.parent).as_posix())

    def _documents_of(self, root: Path, notice: Callable[[str], None]) -> Iterable[str | os.PathLike[str]]:
        """Return the documents of a file or folder; none of an empty folder, which may get some later.

        A link to a folder outside is not entered: clients may not know the names of its files.
        """

        def may_enter(folder: str) -> bool:
            is_held = self._holds(Path(os.path.realpath(folder)))
            if not is_held:
                notice(f"{self._name(root, Path(folder))} {_IS_OUTSIDE}")
            return is_held

        try:
            return documents_of([root], notice, may_enter)
        except OctavoError as problem:
            notice(str(problem))
            return []
