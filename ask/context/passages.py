"""Find passages of documents that have no index: words choose them, and the model evaluates only these.

Of a document of which a part is read, the passages follow that part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...documents.document import Document, hash_text
from ...library.meaning import advice, installed_embedder
from ...library.source_text import SourceText
from ...library.text_store import Piece, TextStore
from ...runtime.llama import Llama
from ...system.working_time import working_time
from ..answer.answer import ContextShare
from ..search.ranking import Candidate, Span
from ..sources.find_sources import TokenText
from .answer_context import Context, Steps
from .excerpts import evaluate_as_text
from .partial_index import ReadPart, after

#: Most tokens of the passages of an answer, and the share of a shorter context that they take.
PASSAGE_TOKENS, _OF_CONTEXT = 2000, 0.5


class PassagePlan(NamedTuple):
    """The passages of an answer, which are still to be evaluated.

    Parameters
    ----------
    candidates : list of Candidate
        The documents that the question may be about, the likeliest first.
    pieces : tuple of Piece
        The pieces of their texts, in the order of the texts.
    part : ReadPart, optional
        What is read of the likeliest document.
    """

    candidates: list[Candidate]
    pieces: tuple[Piece, ...]
    part: ReadPart | None = None

    @property
    def documents(self) -> list[SourceText]:
        """Return the documents of the pieces and of the part, the likeliest first."""
        numbers = {piece.text for piece in self.pieces} | ({self.candidates[0].document.number} if self.part else set())
        return [each.document for each in self.candidates if each.document.number in numbers]

    @property
    def key(self) -> object:
        """Return what the context is made of (`Context.key`)."""
        return self.pieces, self.part


class PassageFinder:
    """Finds passages by words in documents whose texts are kept.

    Parameters
    ----------
    llama : Llama
        The model that evaluates the passages.
    store : TextStore
        The texts.
    documents : sequence of SourceText
        The documents, at least one.
    most : int
        Most tokens of the passages of an answer.
    note : callable, optional
        Receives the tokens of passages and the seconds of their evaluation.
    """

    def __init__(
        self,
        llama: Llama,
        store: TextStore,
        documents: Sequence[SourceText],
        most: int = PASSAGE_TOKENS,
        note: Callable[[int, float], None] = lambda n_tokens, seconds: None,
    ) -> None:
        self.documents = list(documents)
        self._llama, self._store, self._most, self._note = llama, store, most, note
        self._by_number = {document.number: document for document in documents}

    def search(self, question: str, before: str = "") -> tuple[list[Candidate], list[Piece]]:
        """Find the documents and the pieces of them that share words with a question, the likeliest first.

        Parameters
        ----------
        before : str
            The question before, whose words count less.

        Raises
        ------
        OctavoError
            A text is not kept any more: its file has changed, or is gone.
        """
        self._store.check(self.documents)
        found = self._store.search(question, list(self._by_number), before)
        best: dict[int, float] = {}
        for piece in found:
            best.setdefault(piece.text, piece.score)
        total = sum(best.values())
        return [Candidate(self._by_number[number], score / total, score) for number, score in best.items()], found

    def advice(self) -> str:
        """Return a sentence for a question for which `search` finds nothing."""
        embedder = installed_embedder()
        return advice(embedder is not None and not self._store.unembedded(self.documents, embedder.name))

    def passages_outside(
        self, document: SourceText, ranges: Sequence[range], question: str, most: int, n_batch: Callable[[], int]
    ) -> Callable[[], Steps[Context]]:
        """Return what evaluates passages of one document: the likeliest of those that begin in none of some ranges.

        Parameters
        ----------
        ranges : sequence of range
            Characters of the document.
        most : int
            Most tokens of the passages.
        """
        finder = PassageFinder(self._llama, self._store, [document], most, self._note)

        def evaluated() -> Steps[Context]:
            candidates, found = finder.search(question)
            self._llama.reset()
            outside = [piece for piece in found if not any(piece.start in each for each in ranges)]
            return (yield from finder.evaluate(finder.plan(candidates, outside), n_batch))

        return evaluated

    def plan(self, candidates: list[Candidate], found: Sequence[Piece], part: ReadPart | None = None) -> PassagePlan:
        """Choose the first of the pieces that were found, or the beginnings of the texts if none has a word.

        Parameters
        ----------
        part : ReadPart, optional
            What is read of the likeliest document. Its pieces are chosen, too: a small model finds more in text next to
            the question.
        """
        pieces = tuple(sorted(self._chosen(found if found or part is not None else self._beginnings())))
        numbers = dict.fromkeys(piece.text for piece in pieces)
        return PassagePlan(
            candidates or [Candidate(self._by_number[number], 0.0, 0.0) for number in numbers], pieces, part
        )

    def _chosen(self, found: Iterable[Piece]) -> list[Piece]:
        """Return the first pieces, as many as an answer may be given from."""
        chosen: list[Piece] = []
        n_left = min(self._most, int(self._llama.n_ctx() * _OF_CONTEXT))
        prompt, text_of = self._llama.prompt(), lru_cache(1)(self._store.document)
        for piece in found:
            document = text_of(piece.text)
            follows = any((piece.text, piece.start) == (other.text, other.stop) for other in chosen)
            head = "" if follows else document.table_heads.head(piece.start)
            n_left -= len(prompt.document(head + document.text[piece.start : piece.stop]))
            if n_left < 0 and chosen:
                break
            chosen.append(piece)
        return chosen

    def _beginnings(self) -> Iterator[Piece]:
        """Yield the first pieces of the texts, for a question without a word of any."""
        for number in self._by_number:
            yield from self._store.first_pieces(number)

    def evaluate(self, plan: PassagePlan, n_batch: Callable[[], int]) -> Steps[Context]:
        """Evaluate the pieces of a plan, those that follow one another as one passage, the likeliest passage last.

        Small models find more in text next to the question.

        Parameters
        ----------
        n_batch : callable
            Returns the number of tokens of the next batch.

        Yields
        ------
        BatchRead
            After each batch. The model may compute other sequences then.
        """
        llama, prompt, part, began = self._llama, self._llama.prompt(), plan.part, working_time()
        head, passages = prompt.head(), sorted(_joined(plan.pieces), key=lambda passage: passage.score)
        begun = [] if part is None else [plan.candidates[0].document.number]
        numbers = dict.fromkeys([*begun, *(piece.text for piece in passages)])
        texts = {number: self._store.document(number) for number in numbers}
        starts: dict[int, list[np.ndarray]] = {number: [] for number in texts}
        tokens, spans = [np.array(head, np.int32)], []
        if part is not None:
            starts[begun[0]].append(part.starts)
        for number, start, stop, _ in passages:
            content, offsets = self._with_title(number, texts[number], start, stop)
            own = prompt.document(content)
            text_of_tokens = TokenText.of([llama.piece(token) for token in own], hash_text(content))
            n_before = sum(map(len, starts[number]))
            starts[number].append(offsets[text_of_tokens.starts])
            tokens.append(np.array(own, np.int32))
            spans.append(Span(self._by_number[number], n_before, n_before + len(own)))
        index = yield from evaluate_as_text(llama, np.concatenate(tokens), len(head), n_batch)
        self._note(len(index.tokens) - len(head), working_time() - began)
        if part is not None:
            index = after(llama, part, index)
            spans.insert(0, Span(plan.candidates[0].document, 0, len(part.starts)))
        read = {
            self._by_number[number]: TokenText(text.text, np.concatenate(starts[number]), text.places)
            for number, text in texts.items()
        }
        documents = [candidate.document for candidate in plan.candidates if candidate.document in read]
        share = self._share(plan, texts, len(passages))
        return Context(index, spans, documents, share, read.__getitem__, plan.key, plan.candidates)

    def _share(self, plan: PassagePlan, texts: dict[int, Document], n_passages: int) -> ContextShare:
        """Return the number of passages, and the share of the documents' characters that the context has."""
        n_part = plan.part.n_characters if plan.part else 0
        ends = {plan.candidates[0].document.number: n_part} if plan.part else {}
        n_read = n_part + sum(max(piece.stop - max(piece.start, ends.get(piece.text, 0)), 0) for piece in plan.pieces)
        share = min(n_read / sum(len(text.text) for text in texts.values()), 1.0)
        return ContextShare("part" if plan.part else "excerpts", n_passages, share, is_begun=plan.part is not None)

    def _with_title(self, number: int, text: Document, start: int, stop: int) -> tuple[str, np.ndarray]:
        """Return a passage as the model reads it, and the character of the document that each of its characters is.

        A passage that begins in a table begins with the head of the table, and with a whole row.
        """
        title, head = self._title(number, text, start), range(0)
        if above := text.table_heads.above(start):
            head, start = range(above.start, above.stop), above.row
        passage = text.text[start:stop]
        first = start + len(passage) - len(passage.lstrip())
        passage = passage.strip()
        content = f"{title}{text.text[head.start : head.stop]}{passage}\n\n"
        after = np.arange(first, first + len(passage) + 3)
        return content, np.concatenate([np.full(len(title), first), np.array(head, int), after])

    def _title(self, number: int, text: Document, start: int) -> str:
        """Return the line before a passage: its document if there are several, its page and its headings."""
        place = text.place(start)
        named = [self._by_number[number].name] if len(self.documents) > 1 else []
        page = [f"page {place.page}"] if place and place.page else []
        heading = [place.heading] if place and place.heading else []
        where = ", ".join([*named, *page, *heading])
        return f"[{where}]\n" if where else ""


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Return passages: pieces in the order of the texts, of which those that follow one another are one."""
    passages: list[Piece] = []
    for piece in pieces:
        if passages and (passages[-1].text, passages[-1].stop) == (piece.text, piece.start):
            last = passages.pop()
            piece = Piece(piece.text, last.start, piece.stop, max(last.score, piece.score))
        passages.append(piece)
    return passages
