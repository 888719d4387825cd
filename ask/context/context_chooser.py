"""Choose the context of an answer: a whole document, excerpts of documents, or passages of those without an index.

While documents are not indexed, words find passages of them; behind the part that is read, if there is one; or the
likeliest document whole, or the part of it with the likeliest passage, where that has an index. Once all are indexed,
answers come from their indexes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ...errors import OctavoError
from ...library.embed_texts import embed_texts
from ...library.file_texts import FileTexts
from ...library.open_index import Indexer
from ...library.question_words import needs_whole
from ...library.source_text import SourceFile, SourceText
from ...progress import BeforeMany, ProgressOfMany
from ...runtime.llama import Llama
from ...settings import BY_QUESTION, EXCERPTS, WHOLE, WHOLE_BY_QUESTION, WHOLE_OFF, WHOLE_ON, ReadSettings
from ...system.working_time import working_time
from ..chats.chat_file import hash_tokens
from ..search.ranking import Candidate
from ..sources.retrieval_heads import source_heads
from .answer_context import Context, Rest, Steps
from .document_set import DocumentSet, check_problems, open_document_set
from .excerpts import CannotLayOut, lay_out, n_excerpt_tokens
from .growing_indexes import GrowingIndexes, TimeToRead
from .in_time import InTime, TakesLonger
from .passages import PASSAGE_TOKENS, PassageFinder
from .whole.ask_all import AskAll, TakesTooLong, TextToAsk
from .whole.finding import PartsAnswered

#: Share of the seconds to a first answer in which passages are evaluated; documents are read in what these leave.
_FOR_PASSAGES = 0.7

#: Seconds, and share of those to a first answer if that is more, within which documents are read rather than passages:
#: who waits for an answer does not know that it will be one from the whole text.
_SOON, _SHARE = 10.0, 1 / 6

#: Longest time to prepare the meaning of passages before the first answer, in seconds.
_FOR_MEANING = 5.0

#: Longest time to ask all documents by `whole="auto"`, in seconds, and most tokens of passages of each unread one.
_MOST_SECONDS, _PASSAGES_OF_ONE = 600.0, 500


@dataclass
class ContextChooser:
    """Chooses the context of each answer among documents.

    Parameters
    ----------
    llama : Llama
        The model that answers.
    source : DocumentSet or PassageFinder
        The documents: indexed, or with texts in which words find passages.
    read : str
        What an answer is given from, one of READS (settings.py).
    growing : GrowingIndexes, optional
        Indexes of the texts, which are made meanwhile. Without them answers come from passages alone.
    whole : str
        Whether all parts or documents are asked, one of WHOLES (settings.py).
    notice : callable
        Receives sentences about the answer.
    report : callable, optional
        Receives how many have answered, and what. Without it, `notice` receives that in sentences.
    """

    llama: Llama
    source: DocumentSet | PassageFinder
    read: str = BY_QUESTION
    growing: GrowingIndexes | None = None
    whole: str = WHOLE_OFF
    notice: Callable[[str], None] = lambda sentence: None
    report: Callable[[PartsAnswered], None] | None = None

    @property
    def documents(self) -> Sequence[SourceText]:
        """Return all documents."""
        return self.source.documents

    @property
    def rest(self) -> Rest:
        """Return what happens to the text that an answer was not given from."""
        if isinstance(self.source, DocumentSet):
            return "indexed"
        return "being read" if self.growing is not None and self.growing.is_queued else "unread"

    @property
    def always(self) -> Context | None:
        """Return the one context that serves every question, or None if each question needs its own.

        Raise OctavoError if its index can neither be opened nor made again.
        """
        source = self.source
        if self.read == EXCERPTS or not isinstance(source, DocumentSet) or len(source.documents) > 1:
            return None
        return replace(source.whole(source.documents[0]), serves_all=True)

    def choose(
        self, question: str, before: str, known: Iterable[Context], n_batch: Callable[[], int] | None = None
    ) -> Steps[Context]:
        """Choose the best context that there is now. The model may hold other tokens afterwards.

        Of texts without indexes, the first step needs no model.

        Parameters
        ----------
        before : str
            The question before, which counts less: the question may refer to it.
        known : iterable of Context
            Contexts that are in memory, such as that of the answer before. If one of them is chosen, the result has its
            key and its index.
        n_batch : callable, optional
            Returns the number of tokens of the next batch, if some are evaluated.

        Yields
        ------
        BatchRead or None
            After each step. The model may compute other sequences then.

        Raises
        ------
        OctavoError
            The context cannot be opened.
        """
        n_batch, growing = n_batch or (lambda: self.llama.n_batch), self.growing
        if isinstance(self.source, PassageFinder):
            missing = self.documents if growing is None else growing.missing(self.documents)
            if growing is None or missing:
                if (of_all := (yield from self._of_all(question, n_batch))) is not None:
                    return of_all
                return (yield from self._of_texts(self.source, missing, question, before, known, n_batch))
            self.source = growing.all_of(self.documents)
        if (only := self.always) is not None:
            return only
        if (of_all := (yield from self._of_all(question, n_batch))) is not None:
            return of_all
        return (yield from self._of_indexes(self.source, question, before, known, n_batch))

    def _of_all(self, question: str, n_batch: Callable[[], int]) -> Steps[Context | None]:
        """Ask all parts or documents, if that is wanted and there are several. None if it is not, or finds nothing."""
        by_question = self.whole == WHOLE_BY_QUESTION and self.read == BY_QUESTION and needs_whole(question)
        if self.whole != WHOLE_ON and not by_question:
            return None
        indexes, unread = self._all_texts(question, n_batch)
        if sum(len(each.documents) for each in indexes) + len(unread) < 2:
            return None
        heads = next((each.heads for each in indexes), ())
        most_seconds = None if self.whole == WHOLE_ON else _MOST_SECONDS
        try:
            asking = AskAll(self.llama, heads, self.notice, self.report or self._say, n_batch, most_seconds)
            return (yield from asking.context(question, indexes, unread))
        except TakesTooLong as problem:
            self.notice(f"To ask all parts or documents takes {problem}, so none is asked unless `whole` is on.")
            return None

    def _say(self, news: PartsAnswered) -> None:
        for sentence in news.sentences:
            self.notice(sentence)

    def _all_texts(self, question: str, n_batch: Callable[[], int]) -> tuple[list[DocumentSet], list[TextToAsk]]:
        """Return the indexes of all documents, and passages of those that have none, or of their parts without one."""
        if isinstance(self.source, DocumentSet):
            return [self.source], []
        indexes, unread = list[DocumentSet](), list[TextToAsk]()
        for document in self.documents:
            read, ranges = (None, [range(0)]) if self.growing is None else self.growing.read_parts(document)
            if read is not None:
                indexes.append(read)
            if sum(map(len, ranges)) < document.length:
                unread.append(
                    TextToAsk(
                        document, self.source.passages_outside(document, ranges, question, _PASSAGES_OF_ONE, n_batch)
                    )
                )
        return indexes, unread

    def _of_indexes(
        self,
        indexes: DocumentSet,
        question: str,
        before: str,
        known: Iterable[Context],
        n_batch: Callable[[], int],
    ) -> Steps[Context]:
        """Choose the likeliest excerpts, or the likeliest document, from the indexes of all documents."""
        ranking = yield from indexes.rank_in_steps(question, before, n_batch)
        candidates = ranking.candidates
        if not reads_whole(self.read, question):
            spans = ranking.excerpts(n_excerpt_tokens(self.llama))
            if (kept := _with_key(tuple(spans), known)) is not None:
                return replace(kept, candidates=candidates)
            try:
                laid_out = yield from lay_out(self.llama, indexes, spans, n_batch)
                return replace(laid_out, candidates=candidates)
            except CannotLayOut:
                if self.read == EXCERPTS:
                    raise
        return replace(indexes.whole(candidates[0].document), candidates=candidates)

    def _of_texts(
        self,
        finder: PassageFinder,
        missing: Sequence[SourceText],
        question: str,
        before: str,
        known: Iterable[Context],
        n_batch: Callable[[], int],
    ) -> Steps[Context]:
        """Choose passages that words find; a document that has an index whole, if the question is about all of it."""
        candidates, found = finder.search(question, before)
        if not found:
            self.notice(finder.advice())
        part = None
        if self.growing is not None:
            best = candidates[0].document if candidates else missing[0]
            whole = self.growing.whole(best, found[0]) if found and reads_whole(self.read, question) else None
            if whole is not None:
                return replace(whole, candidates=candidates)
            part = self.growing.part(best)
            candidates = candidates or ([] if part is None else [Candidate(best, 0.0, 0.0)])
        plan = finder.plan(candidates, found, part)
        if self.growing is not None:
            self.growing.read_on(plan.documents, missing, is_only=len(self.documents) == 1)
        if (kept := _with_key(plan.key, known)) is not None:
            return replace(kept, candidates=plan.candidates)
        yield None
        return (yield from finder.evaluate(plan, n_batch))

    def followed_by(self, tokens_hash: str) -> Context | None:
        """Return the document with these tokens; None for excerpts, or for a document that is not one of these."""
        if isinstance(self.source, DocumentSet):
            for document in self.documents:
                if hash_tokens(self.source.tokens(document)) == tokens_hash:
                    return self.always or self.source.whole(document)
        return None


def _with_key(key: object, known: Iterable[Context]) -> Context | None:
    return next((context for context in known if context.key == key), None)


def reads_whole(read: str, question: str) -> bool:
    """Return whether a question over several documents is answered from one of them, whole; `read` is one of READS."""
    return read == WHOLE or (read == BY_QUESTION and needs_whole(question))


def open_chooser(
    indexer: Indexer, files: Sequence[SourceFile], texts: FileTexts, reading: ReadSettings, progress: ProgressOfMany
) -> ContextChooser:
    """Open documents; index those that lack an index, unless passages of them serve the first answer.

    Parameters
    ----------
    indexer : Indexer
        Finds and makes indexes. Its model is empty, before and afterwards.
    texts : FileTexts
        The texts of the files.

    Raises
    ------
    OctavoError
        No document can be used, or disk or memory do not suffice.
    """
    llama, library = indexer.llama, indexer.library
    if reading.read == EXCERPTS and not all(map(indexer.has, files)):
        kept = texts.keep(texts.of(files))
        check_problems(kept, texts.problems, progress.notice)
        _prepare_meaning(texts, kept, progress, _FOR_MEANING)
        finder = PassageFinder(llama, texts.store, kept)
        return ContextChooser(llama, finder, reading.read, None, reading.whole, progress.notice)
    if reading.read != EXCERPTS and reading.first_answer is not None:
        return _open_in_time(indexer, files, texts, reading, reading.first_answer, progress)
    heads = source_heads(llama, library, progress.notice) if reading.read == EXCERPTS else None
    if reading.read == EXCERPTS and llama.context.is_hybrid:
        progress.notice("This model keeps a recurrent state, so it reads excerpts as text, anew for each question.")
    document_set = open_document_set(indexer, files, texts, progress, heads)
    return ContextChooser(llama, document_set, reading.read, None, reading.whole, progress.notice)


def _open_in_time(
    indexer: Indexer,
    files: Sequence[SourceFile],
    texts: FileTexts,
    reading: ReadSettings,
    seconds: float,
    progress: ProgressOfMany,
) -> ContextChooser:
    """Open documents: index those that lack an index if that takes not long, or else answer from passages of all.

    Parameters
    ----------
    seconds : float
        Seconds to the first answer.
    """
    llama, to_read, began = indexer.llama, seconds * (1 - _FOR_PASSAGES), working_time()
    time_to_read = TimeToRead(indexer, texts, files, min(max(_SOON, seconds * _SHARE), to_read))
    speed = None
    if time_to_read.suffices():
        sources = time_to_read.usable()
        check_problems(sources, texts.problems, progress.notice)
        watch = InTime(progress, time_to_read.n_left, to_read)
        try:
            with watch.watched():
                document_set = open_document_set(indexer, sources, texts, watch)
            return ContextChooser(llama, document_set, reading.read, None, reading.whole, progress.notice)
        except TakesLonger:
            llama.reset()
            if speed := watch.speed:  # what notices say of the rest is of this speed
                time_to_read.speed.note(watch.n_read, watch.n_read / speed)
            progress.notice("Reading takes longer than an answer may wait, so the answer comes from passages.")
    kept = time_to_read.kept()
    check_problems(kept, texts.problems, progress.notice)
    _prepare_meaning(texts, kept, progress, min(_FOR_MEANING, max(to_read - (working_time() - began), 0.0)))
    n_tokens = min(PASSAGE_TOKENS, int(seconds * _FOR_PASSAGES * (speed or time_to_read.tokens_per_s)))
    finder = PassageFinder(llama, texts.store, kept, n_tokens, time_to_read.speed.note)
    growing = GrowingIndexes(indexer, texts, reading, progress)
    return ContextChooser(llama, finder, reading.read, growing, reading.whole, progress.notice)


def _prepare_meaning(
    texts: FileTexts, kept: Sequence[SourceText], progress: ProgressOfMany, most_seconds: float
) -> None:
    """Compute vectors of texts for some seconds. Print which share of the texts has them, or why it fails."""
    try:
        share = embed_texts(texts.store, kept, BeforeMany(progress), most_seconds)
    except OctavoError as problem:  # words find passages, too
        progress.notice(str(problem))
        return
    if share < 1:
        progress.notice(f"Words find passages; their meaning counts, too, in {share:.0%} of the text so far.")
