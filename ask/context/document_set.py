"""Open many indexed documents, and find the one that a question is about.

Documents are ranked in two steps; the second covers fewer documents:

1. Count the words that documents share with the question (`WordScores`).
2. Let the question's words attend to all keys of the best of these documents, by the retrieval heads
   (question_queries.py).

Both scores count in the end, each in standard deviations among the documents of the second step.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...errors import OctavoError, failure
from ...library.document_parts import n_parts_of, without_part
from ...library.file_texts import FileTexts
from ...library.open_index import Indexer
from ...library.question_words import BEFORE, says_something, with_subject
from ...library.source_text import SourceFile, SourceText
from ...progress import LeftOut, ProgressOfMany
from ...runtime.llama import Llama
from ...runtime.query_recorder import QueryHead
from ...runtime.store.index_files import note_use, open_index, read_keys, read_tokens
from ...runtime.store.model_library import Library, known_manifest
from ...system.files import DamagedError
from ...system.threads import one_thread
from ..answer.answer import ContextShare
from ..search.question_queries import HeadQueries, read_question
from ..search.ranking import PIECE, Ranking, WordScores, folding
from ..sources.retrieval_heads import source_heads
from .answer_context import Context, Steps, at_once

_Loaded = TypeVar("_Loaded")

#: Number of documents to rank by their keys.
_RANKED = 32

#: Number of indexes to keep open.
_KEPT_OPEN = 4


class DocumentSet:
    """Indexed documents.

    Parameters
    ----------
    llama : Llama
        The model that has read them.
    folders : mapping of SourceText to Path
        The documents, at least one, with the folders of their indexes.
    heads : sequence of QueryHead
        Retrieval heads (retrieval_heads.py).
    heal : callable
        Makes a damaged index again.
    """

    def __init__(
        self,
        llama: Llama,
        library: Library,
        folders: Mapping[SourceText, Path],
        heads: Sequence[QueryHead],
        heal: Callable[[SourceText], object],
    ) -> None:
        self.documents, self.folders = list(folders), folders
        self._llama, self._library, self._heads, self._heal = llama, library, heads, heal
        self._open: OrderedDict[SourceText, Context] = OrderedDict()

    @cached_property
    def texts(self) -> dict[SourceText, np.ndarray]:
        """Return the tokens of the documents, without the prompt's head."""
        return {document: self.tokens(document)[self.n_prefix(document) :] for document in self.documents}

    def tokens(self, document: SourceText) -> np.ndarray:
        """Return the tokens of a document, the prompt's head included."""
        return self._load(document, read_tokens)

    def n_prefix(self, document: SourceText) -> int:
        """Return the number of tokens of the head that a document was read with: dates in it may differ."""
        return self._load(document, lambda folder: len(known_manifest(folder)["head"]))

    @property
    def heads(self) -> Sequence[QueryHead]:
        """Return the retrieval heads."""
        return self._heads

    @cached_property
    def words(self) -> WordScores:
        """Return the scorer of the words that documents share with a question."""
        return WordScores([self._folded[document] for document in self.documents])

    def part_before(self, document: SourceText) -> SourceText | None:
        """Return the part of a long document that ends where this one begins; None without one."""
        described = self._described(document)
        of_file, start = (described.get("path"), n_parts_of(document.name)), described.get("part", (0,))[0]
        for other in self.documents if start else ():
            before = self._described(other)
            if (before.get("path"), n_parts_of(other.name), before.get("part", (0, 0))[1]) == (*of_file, start):
                return other
        return None

    def _described(self, document: SourceText) -> dict[str, Any]:
        """Return the manifest's description of a document."""
        described: dict[str, Any] = self._load(document, known_manifest)["document"]
        return described

    def whole(self, document: SourceText) -> Context:
        """Return a whole document as the context of an answer; it may be a part of one that exceeds the context.

        Raise OctavoError if its index can neither be opened nor made again.
        """
        context = self._open.pop(document, None)
        if context is None:
            index, manifest = self._load(document, lambda folder: open_index(folder, self._library.model_hash))
            note_use(self.folders[document])
            described, share = manifest["document"], ContextShare("document")
            if "part" in described:
                share = ContextShare("part", share=1 / n_parts_of(document.name))
            context = Context.of_whole(self._llama, index, described, document, share)
        context.index.check()
        self._open[document] = context
        while len(self._open) > _KEPT_OPEN:
            self._open.popitem(last=False)
        return context

    def rank(self, question: str, before: str = "") -> Ranking:
        """Rank the documents in one go. See `rank_in_steps`."""
        return at_once(self.rank_in_steps(question, before))

    def rank_in_steps(
        self, question: str, before: str, n_batch: Callable[[], int] | None = None, most: int | None = None
    ) -> Steps[Ranking]:
        """Rank the documents that share most words with a question. The model is empty afterwards.

        Parameters
        ----------
        before : str
            The question before, whose words count less.
        n_batch : callable, optional
            Returns the number of tokens of the question's next batch.
        most : int, optional
            Most documents to rank by their keys.

        Yields
        ------
        None
            After each batch, and after each document. The model may compute other sequences then.

        Raises
        ------
        OctavoError
            An index can neither be opened nor made again.
        """
        llama = self._llama
        question, before = with_subject(question, before)
        tokens = dict.fromkeys(self._subject(before), BEFORE) | dict.fromkeys(self._subject(question), 1.0)
        words = self.words.of(tokens)
        near = np.argsort(-words, kind="stable")[: most or _RANKED]
        documents = [self.documents[i] for i in near]
        queries = yield from read_question(llama, self._heads, question, before, n_batch)
        pieces = []
        for document in documents:
            with one_thread():
                pieces.append(self._load(document, partial(self._best_scores, queries, document)))
            yield None
        return Ranking(documents, [self._folded[document] for document in documents], tokens, words[near], pieces)

    @cached_property
    def _folded(self) -> dict[SourceText, np.ndarray]:
        """Return the tokens of the documents, without case and blanks."""
        table = folding(self._llama)
        return {document: table[tokens] for document, tokens in self.texts.items()}

    def _subject(self, question: str) -> list[int]:
        """Return the tokens of a question, without case, that say something about its subject; all if none does."""
        if not question:
            return []
        tokens = self._llama.prompt().question(f" {question}")
        subject = [token for token in tokens if says_something(self._llama.piece(token).decode(errors="replace"))]
        return list(map(int, folding(self._llama)[subject or tokens]))

    def _best_scores(self, queries: Sequence[HeadQueries], document: SourceText, folder: Path) -> np.ndarray:
        """Return the highest score of a key of each piece of a document, for each head and word of a question."""
        n_words, n_pieces = len(queries[0].queries) if queries else 0, max(-(-len(self.texts[document]) // PIECE), 1)
        n_prefix = self.n_prefix(document)
        scores = np.full((len(queries), n_words, n_pieces), -np.inf, np.float32)
        for head, query in enumerate(queries):
            stored = read_keys(folder, query.layer, query.head.kv_head)
            if stored is not None:
                keys, order = stored
                scores[head] = query.best(keys, order, len(keys), n_prefix, PIECE)
        return scores

    def _load(self, document: SourceText, load: Callable[[Path], _Loaded]) -> _Loaded:
        """Load something from the folder of an index; make the index again if it is damaged."""
        try:
            return load(self.folders[document])
        except DamagedError:
            self._heal(document)
            return load(self.folders[document])


def open_document_set(
    indexer: Indexer,
    files: Sequence[SourceFile | SourceText],
    texts: FileTexts,
    progress: ProgressOfMany,
    heads: Sequence[QueryHead] | None = None,
) -> DocumentSet:
    """Index the documents that lack an index, and open all. Leave out those that fail, with a notice.

    Parameters
    ----------
    files : sequence of SourceFile or SourceText
        The documents. Parts stand for a document longer than the context.
    texts : FileTexts
        Their texts, and why some cannot be used.
    heads : sequence of QueryHead, optional
        Retrieval heads (retrieval_heads.py). By default they are found if there are several documents.

    Returns
    -------
    DocumentSet
        The documents, without duplicates of the same text.

    Raises
    ------
    OctavoError
        No document can be used; of a single one, the reason.
    """
    of_files: list[list[SourceText]] = []
    problems: list[str] = []
    for file in files:
        try:
            text = texts.identify(file, indexer.snapshot) if isinstance(file, SourceFile) else file
            of_files.append(indexer.fit(text))
        except Exception as problem:  # of any kind: others can be read
            problems.append(failure(file.name, problem))
    if heads is None:
        is_one = sum(map(len, of_files)) < 2
        heads = [] if is_one else source_heads(indexer.llama, indexer.library, progress.notice)
    indexed: dict[Path, SourceText] = {}
    incomplete = []
    for parts in of_files:
        for document in parts:
            folder = indexer.find(document)
            if folder is not None:
                indexer.note_file(folder, document)
                indexed.setdefault(folder, document.without_document())
            elif parts not in incomplete:
                incomplete.append(parts)
    if incomplete:
        progress.begin(len(incomplete))
    for parts in incomplete:
        of_file = progress.document(without_part(parts[0].name))
        try:
            for document, of_part in indexer.with_progress(parts, of_file):
                try:
                    if indexer.find(document) is None:
                        indexed.setdefault(indexer.index(document, of_part), document.without_document())
                except Exception as problem:  # of any kind: others can be read
                    problems.append(failure(document.name, problem))
        finally:
            of_file.end()
    check_problems(indexed, problems, indexer.notice)
    folders = {document: folder for folder, document in indexed.items()}
    heal = partial(index_again, indexer, progress=progress)
    return DocumentSet(indexer.llama, indexer.library, folders, heads, heal)


def index_again(indexer: Indexer, damaged: SourceText, progress: ProgressOfMany) -> None:
    """Index a document whose index is damaged, and show the progress of this one alone."""
    progress.begin(1)
    of_document = progress.document(damaged.name)
    try:
        indexer.index(damaged, of_document)
    finally:
        of_document.end()


def check_problems(usable: Collection[Any], problems: Sequence[str], notice: Callable[[str], None]) -> None:
    """Print why documents are left out. Raise OctavoError if none is usable."""
    if not usable:
        raise OctavoError(problems[0] if len(problems) == 1 else "\n- ".join(["No document can be used:", *problems]))
    for sentence in problems:
        notice(LeftOut(f"Left out: {sentence}"))
