"""The documents of the server's library whose indexes are mapped: the last used, and all that conversations use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np

from ...ask.context.answer_context import Context
from ...errors import OctavoError
from ...runtime.sequences.sequence import n_common
from ...runtime.store.index_files import read_tokens
from .served_document import ServedDocument, with_id

#: Documents that stay mapped while no conversation uses them.
_KEPT = 16

#: The folder of an index, and the number that the file system gave it: a folder that is made anew has another one.
_Place = tuple[Path, int]


class MappedDocuments:
    """Open documents, and find the one that a prompt begins with. Any thread may call it.

    Parameters
    ----------
    map_index : callable
        Maps the index of a document. Raises OctavoError if it is damaged.
    """

    def __init__(self, map_index: Callable[[ServedDocument], Context]) -> None:
        self._map_index = map_index
        self._lock = threading.Lock()
        self._known: dict[_Place, tuple[ServedDocument, np.ndarray]] = {}
        self._last: OrderedDict[_Place, Context] = OrderedDict()
        self._in_use = WeakValueDictionary[_Place, Context]()

    def open(self, document: ServedDocument) -> Context:
        """Return a document as the context of an answer. Raise OctavoError if its index is damaged."""
        place = _place_of(document.folder)
        with self._lock:
            context = self._in_use.get(place)
            if context is None or not _is_of(context, document) or not _is_unchanged(context):
                context = self._in_use[place] = self._map_index(document)
            self._known[place] = document, context.index.tokens
            self._last[place] = context
            self._last.move_to_end(place)
            while len(self._last) > _KEPT:
                self._last.popitem(last=False)
            return context

    def know(self, documents: Iterable[ServedDocument]) -> None:
        """Read the tokens of documents, so that prompts that begin with one find it. Leave out those that fail."""
        for document in documents:
            place = _place_of(document.folder)
            if place not in self._known:
                with suppress(OctavoError):
                    self._known[place] = document, read_tokens(document.folder)

    def begun_by(self, tokens: np.ndarray) -> Context | None:
        """Find the longest document that a prompt begins with."""
        return self._longest(tokens, lambda n, n_document: n == n_document)[1]

    def shares_most(self, tokens: np.ndarray, least: int) -> tuple[int, Context | None]:
        """Find the document with the longest common prefix with a prompt, of a least length; return the length, too."""
        return self._longest(tokens, lambda n, n_document: n >= least)

    def _longest(self, tokens: np.ndarray, is_enough: Callable[[int, int], bool]) -> tuple[int, Context | None]:
        """Find the document with the longest common prefix that is enough, by the lengths of both, and that opens."""
        known = list(self._known.values())
        lengths = [n_common(own, tokens) for _, own in known]
        enough = [i for i, (_, own) in enumerate(known) if lengths[i] and is_enough(lengths[i], len(own))]
        for i in sorted(enough, key=lambda i: -lengths[i]):
            with suppress(OctavoError):
                return lengths[i], self.open(known[i][0])
        return 0, None

    def close_removed(self) -> set[Path]:
        """Close the documents whose folders were removed, so that the disk gets their space. Return these folders."""
        with self._lock:
            removed = {place for place in {*self._known, *self._in_use} if _place_of(place[0]) != place}
            for place in removed:
                self._known.pop(place, None)
                self._last.pop(place, None)
        return {folder for folder, _ in removed}


def _place_of(folder: Path) -> _Place:
    with suppress(OSError):
        return folder, folder.stat().st_ino
    return folder, 0


def _is_of(context: Context, document: ServedDocument) -> bool:
    """Return whether a context is of a document: another file may have its text now."""
    known = with_id(context.documents[0])
    return (known.id, known.version) == (document.id, document.version)


def _is_unchanged(context: Context) -> bool:
    """Return whether no other program has changed the files of an index while it was mapped."""
    try:
        context.index.check()
    except OctavoError:
        return False
    return True
