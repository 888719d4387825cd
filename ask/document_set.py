"""Many documents that are indexed, and which of them a question is about.

A document is found in two steps, of which the second looks more closely at fewer documents:

1. The words that documents share with the question are counted (word_scores.py).
2. The question's words look at all keys of the best of these documents, by the heads that retrieve
   (ask/question_queries.py).

Both count in the end, each by how far a document stands out among those of the second step.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import OctavoError
from ..library.document_parts import fitting
from ..library.open_index import Source, index_document, refuse_early
from ..progress import ProgressOfMany, Silent
from ..runtime.document.index import Index
from ..runtime.llama import Llama
from ..runtime.process.threads import one_thread
from ..runtime.query_recorder import QueryHead
from ..runtime.store.files import DamagedError
from ..runtime.store.index_files import open_index, read_keys, read_tokens
from ..runtime.store.model_library import Library
from .question_queries import HeadQueries, question_queries
from .ranking import PIECE, Look
from .word_scores import WordScores

_Read = TypeVar("_Read")

#: Documents whose keys are looked at.
_LOOKED_AT = 32

#: Indexes that are kept open.
_KEPT_OPEN = 4


@dataclass(frozen=True, eq=False)
class Shelved:
    """A document on the shelf.

    Parameters
    ----------
    source : Source
        Its file.
    folder : Path
        Its index.
    """

    source: Source
    folder: Path

    @property
    def name(self) -> str:
        """Return what messages call it."""
        return self.source.name


class Shelf:
    """Documents that are indexed.

    Parameters
    ----------
    llama : Llama
        The model that has read them.
    library : Library
        Where their indexes are.
    documents : sequence of Shelved
        The documents, at least one.
    heads : sequence of QueryHead
        The heads that retrieve (retrieval_heads.py).
    heal : callable
        Makes the index of a document again that is damaged.
    """

    def __init__(
        self,
        llama: Llama,
        library: Library,
        documents: Sequence[Shelved],
        heads: Sequence[QueryHead],
        heal: Callable[[Shelved], None],
    ) -> None:
        self.documents = list(documents)
        self._llama, self._library, self._heads, self._heal = llama, library, heads, heal
        self.n_head = len(llama.prompt().head())
        self._open: OrderedDict[Path, tuple[Index, dict[str, Any]]] = OrderedDict()

    @cached_property
    def texts(self) -> dict[Shelved, np.ndarray]:
        """The tokens of the documents, without those of the prompt's head, which are in all."""
        return {each: self._read(each, lambda own: read_tokens(own.folder)[self.n_head :]) for each in self.documents}

    @cached_property
    def words(self) -> WordScores:
        """What counts the words that documents share with a question."""
        return WordScores([self.texts[each] for each in self.documents])

    def open(self, document: Shelved) -> tuple[Index, dict[str, Any]]:
        """Open the index of a document.

        Returns
        -------
        index : Index
            The index.
        described : dict
            What its manifest says of the document.

        Raises
        ------
        OctavoError
            It cannot be opened, and not be made again.
        """
        opened = self._open.pop(document.folder, None)
        if opened is None:
            index, manifest = self._read(document, lambda own: open_index(own.folder, self._library.model_hash))
            opened = index, manifest["document"]
        opened[0].check()
        self._open[document.folder] = opened
        while len(self._open) > _KEPT_OPEN:
            self._open.popitem(last=False)
        return opened

    def look(self, question: str) -> Look:
        """Look closely at the documents that a question may be about.

        Parameters
        ----------
        question : str
            The question.

        Returns
        -------
        Look
            What was seen. The model is empty afterwards.

        Raises
        ------
        OctavoError
            An index cannot be opened, and not be made again.
        """
        llama = self._llama
        own = llama.prompt().question(f" {question}")
        words = self.words.of(own)
        near = np.argsort(-words, kind="stable")[:_LOOKED_AT]
        documents = [self.documents[i] for i in near]
        queries = question_queries(llama, self._heads, question)
        with one_thread():
            pieces = [self._read(document, partial(self._best_scores, queries)) for document in documents]
        return Look(documents, [self.texts[document] for document in documents], own, words[near], pieces)

    def _best_scores(self, queries: Sequence[HeadQueries], document: Shelved) -> np.ndarray:
        """Highest score of a key of each piece of a document, for each head and word of a question."""
        n_words, n_pieces = len(queries[0].queries) if queries else 0, max(-(-len(self.texts[document]) // PIECE), 1)
        scores = np.full((len(queries), n_words, n_pieces), -np.inf, np.float32)
        for head, each in enumerate(queries):
            known = read_keys(document.folder, each.layer, each.head.kv_head)
            if known is not None:
                keys, order = known
                scores[head] = each.best(keys, order, len(keys), self.n_head, PIECE)
        return scores

    def _read(self, document: Shelved, read: Callable[[Shelved], _Read]) -> _Read:
        """Read from an index, which is made again if it is damaged."""
        try:
            return read(document)
        except DamagedError:
            self._heal(document)
            return read(document)


def open_shelf(
    llama: Llama,
    library: Library,
    sources: Sequence[Source],
    heads: Sequence[QueryHead],
    progress: ProgressOfMany,
    n_jobs: int,
    notice: Callable[[str], None],
    prefill: str,
) -> Shelf:
    """Index the documents that are not indexed yet, and open all. One that cannot be is left out, which is said.

    Parameters
    ----------
    llama, library, n_jobs, notice, prefill
        As in `index_document`.
    sources : sequence of Source
        The documents.
    heads : sequence of QueryHead
        The heads that retrieve (retrieval_heads.py).
    progress : ProgressOfMany
        Is told how far the work is.

    Returns
    -------
    Shelf
        The documents, those of the same text once.

    Raises
    ------
    OctavoError
        No document can be used; of a single one, the reason.
    """
    shelved: dict[Path, Shelved] = {}
    missing: list[Source] = []
    problems: list[str] = []
    for source in sources:
        try:
            refuse_early(source, library, notice)
            for each, folder in fitting(llama, library, source, notice, prefill):
                if folder.exists():
                    shelved.setdefault(folder, Shelved(each, folder))
                else:
                    missing.append(each)
        except OctavoError as problem:
            problems.append(str(problem))
    if missing:
        progress.begin(len(missing))
    for source in missing:
        of_document = progress.document(source.name)
        try:
            folder = index_document(llama, library, source, of_document, n_jobs, notice, prefill)
            shelved.setdefault(folder, Shelved(source, folder))
        except OctavoError as problem:
            problems.append(str(problem))
        of_document.end()
        if source.is_file:
            vars(source).pop("document", None)  # it can be read again
    if not shelved:
        raise OctavoError(problems[0] if len(problems) == 1 else "\n- ".join(["No document can be used:", *problems]))
    for sentence in problems:
        notice(f"Left out: {sentence}")

    def heal(document: Shelved) -> None:
        index_document(llama, library, document.source, Silent(), n_jobs, notice, prefill)

    return Shelf(llama, library, list(shelved.values()), heads, heal)
