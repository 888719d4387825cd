"""Many documents that are indexed, and which of them a question is about.

A document is found in three steps, each of which looks more closely at fewer documents:

1. The words of the question look at the centroids of all documents, by the heads that retrieve (runtime/routing.py).
2. They look at all keys of the best of these.
3. The model reads the question after each of the best of these: the more likely it finds the question, the likelier it
   is that the document answers it (Sachan et al. 2022, arXiv 2204.07496, section 2.3, rank passages so).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..errors import OctavoError
from ..runtime.cache.index import Index, IndexLayer
from ..runtime.cache.rows import as_floats
from ..runtime.llama import Llama
from ..runtime.methods import DENSE
from ..runtime.prompt import Prompt
from ..runtime.recorder import QueryHead
from ..runtime.routing import HeadQueries, attention_shares, question_queries
from ..runtime.store.files import DamagedError
from ..runtime.store.index_files import open_index, read_whole_layer
from ..runtime.store.library import Library
from .documents import Source, index_document, locate, refuse_early
from .progress import ProgressOfMany, Silent

_Read = TypeVar("_Read")

#: Documents whose keys are all looked at, and after which the question is read.
_LOOKED_AT, _REREAD = 32, 8

#: Rows of which a document without clusters has a mean key for the first look.
_PAGE = 16

#: Indexes that are kept open.
_KEPT_OPEN = 16


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


class _Keys(NamedTuple):
    """Keys of a document in each head that retrieves, and how many tokens it has."""

    n_tokens: int
    of_heads: list[np.ndarray]


class Found(NamedTuple):
    """A document that a question may be about.

    Parameters
    ----------
    document : Shelved
        The document.
    share : float
        Share of the attention of the question's words that it gets among the documents that were looked at closely.
    likelihood : float
        Natural logarithm of the probability of the question after the document; -inf if it was not read again.
    """

    document: Shelved
    share: float
    likelihood: float


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
        self._n_head = len(Prompt(llama).head())
        self._open: OrderedDict[Path, tuple[Index, dict[str, Any]]] = OrderedDict()
        self._means: dict[Path, _Keys] = {}

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
            index, manifest = self._healed(document, partial(open_index, document.folder, self._library.model_hash))
            opened = index, manifest["document"]
        opened[0].check()
        self._open[document.folder] = opened
        while len(self._open) > _KEPT_OPEN:
            self._open.popitem(last=False)
        return opened

    def route(self, question: str) -> list[Found]:
        """Find the documents that a question is about.

        Parameters
        ----------
        question : str
            The question.

        Returns
        -------
        list of Found
            The documents that were looked at closely, the likeliest first. The model is empty afterwards.

        Raises
        ------
        OctavoError
            An index cannot be opened, and not be made again.
        """
        queries = question_queries(self._llama, self._heads, question)
        if not queries:
            raise OctavoError(
                "Which document a question is about cannot be found: no head of this model that retrieves sees a whole "
                "document. Name one document."
            )
        shares = self._shares(queries, self.documents, self._mean_keys)
        near = [self.documents[i] for i in np.argsort(-shares, kind="stable")[:_LOOKED_AT]]
        shares = self._shares(queries, near, self._all_keys)
        order = np.argsort(-shares, kind="stable")
        reread = [near[i] for i in order[:_REREAD]]
        likelihoods = dict(zip(reread, self._read_after(reread, question), strict=True))
        found = [Found(near[i], float(shares[i]), likelihoods.get(near[i], -np.inf)) for i in order]
        return sorted(found, key=lambda each: -each.likelihood)

    def _shares(
        self,
        queries: Sequence[HeadQueries],
        documents: Sequence[Shelved],
        keys_of: Callable[[Shelved], _Keys],
    ) -> np.ndarray:
        """How the question's attention is shared by some documents, by some of their keys."""
        scores = np.full((len(queries), len(queries[0].queries), len(documents)), -np.inf, np.float32)
        for number, document in enumerate(documents):
            keys = keys_of(document)
            for head, of_head in enumerate(keys.of_heads):
                if len(of_head):
                    scores[head, :, number] = queries[head].best(of_head, keys.n_tokens)
        return attention_shares(scores)

    def _read_after(self, documents: Sequence[Shelved], question: str) -> list[float]:
        """Natural logarithm of the probability of the question's words after each of some documents."""
        llama, prompt = self._llama, Prompt(self._llama)
        tokens = prompt.first_question(question)
        stop = len(tokens) - len(prompt.tail())
        start = stop - len(prompt.question(question))
        found = []
        with _attending_densely(llama):
            for document in documents:
                index, _ = self.open(document)
                if len(index.tokens) + len(tokens) >= llama.n_ctx():  # no question about it would fit
                    found.append(-np.inf)
                    continue
                llama.attach(index)
                logits = llama.eval_all(tokens[: stop - 1])[max(start - 1, 0) :]
                words = np.array(tokens[max(start, 1) : stop])
                logits -= logits.max(axis=1, keepdims=True)
                found.append(float((logits[np.arange(len(words)), words] - np.log(np.exp(logits).sum(axis=1))).sum()))
        return found

    def _mean_keys(self, document: Shelved) -> _Keys:
        """Centroids of a document's keys, and the keys that are in no cluster. They are kept."""
        if document.folder not in self._means:
            self._means[document.folder] = self._keys(document, _means)
        return self._means[document.folder]

    def _all_keys(self, document: Shelved) -> _Keys:
        """Return all keys of a document."""
        return self._keys(document, lambda layer, place, own: as_floats(layer.keys[place][own]))

    def _keys(self, document: Shelved, of_head: Callable[[IndexLayer, int, np.ndarray], np.ndarray]) -> _Keys:
        """Return keys of a document for each head that retrieves: none of a head that streamed while it was read."""
        n_tokens, made = 0, []
        for head, number in self._places:
            layer = self._healed(document, partial(read_whole_layer, document.folder, number))
            n_tokens = layer.keys.shape[1]
            if head.kv_head not in layer.heads:
                made.append(np.zeros((0, 0), np.float32))
                continue
            place = layer.heads.index(head.kv_head)
            own = np.flatnonzero(layer.positions(place) >= self._n_head)  # all documents begin with the prompt's head
            made.append(of_head(layer, place, own))
        return _Keys(n_tokens, made)

    @property
    def _places(self) -> list[tuple[QueryHead, int]]:
        """The heads whose window does not slide, each with its cached layer."""
        nodes = self._llama.context.nodes
        return [(head, nodes[head.node].kv_layer) for head in self._heads if not nodes[head.node].window]

    def _healed(self, document: Shelved, read: Callable[[], _Read]) -> _Read:
        """Read from an index, which is made again if it is damaged."""
        try:
            return read()
        except DamagedError:
            self._means.pop(document.folder, None)
            self._heal(document)
            return read()


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
            folder, _ = locate(llama, library, source, prefill)
        except OctavoError as problem:
            problems.append(str(problem))
            continue
        if folder.exists():
            shelved.setdefault(folder, Shelved(source, folder))
        else:
            missing.append(source)
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
    if not shelved:
        raise OctavoError(problems[0] if len(problems) == 1 else "\n- ".join(["No document can be used:", *problems]))
    for sentence in problems:
        notice(f"Left out: {sentence}")

    def heal(document: Shelved) -> None:
        index_document(llama, library, document.source, Silent(), n_jobs, notice, prefill)

    return Shelf(llama, library, list(shelved.values()), heads, heal)


def _means(layer: IndexLayer, place: int, own: np.ndarray) -> np.ndarray:
    """Mean keys of parts of a document: of its clusters, and of pages of the rows that are in none."""
    n_clustered = int(layer.cluster_starts[place, -1]) if layer.n_clusters else 0
    rest = as_floats(layer.keys[place][own[own >= n_clustered]])
    pages = [rest[start : start + _PAGE].mean(axis=0) for start in range(0, len(rest), _PAGE)]
    return np.concatenate([layer.centroids[place].astype(np.float32), np.array(pages).reshape(-1, rest.shape[1])])


@contextmanager
def _attending_densely(llama: Llama) -> Iterator[None]:
    """Have a model attend densely, as that copies no rows of a document. It is empty before and afterwards."""
    attention, budget = llama.attention, llama.budget
    llama.set_attention(DENSE)
    try:
        yield
    finally:
        llama.reset()
        llama.set_attention(attention, budget)
