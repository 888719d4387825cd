"""Find passages of documents that the model has not read: words choose them, and the model reads only these.

Of a document of which the model has read a part, the passages follow that part.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from ...documents.document import Document, Place
from ...library.file_texts import FileTexts
from ...library.source_text import SourceFile, SourceText
from ...library.text_store import Piece, TextStore
from ...progress import ProgressOfMany, before_many
from ...runtime.document.index import Index
from ...runtime.llama import Llama
from ...runtime.store.model_library import Library, hash_text
from ...system.working_time import working_time
from ..answer.answer import Basis
from ..search.ranking import Candidate, Excerpt
from ..sources.find_sources import Passage, TokenText
from .answer_context import Rest
from .document_set import check_problems
from .excerpts import BatchRead, LaidOut, at_once, read_as_text
from .partial_index import ReadPart, after

#: Most tokens of the passages of an answer, and the share of a shorter context that they take.
PASSAGE_TOKENS, _OF_CONTEXT = 2000, 0.5


@dataclass(frozen=True, eq=False)
class Passages:
    """Passages of documents that were read as one text, each after a line that says where it stands.

    Parameters
    ----------
    documents : sequence of SourceText
        Their documents, the likeliest first.
    pieces : sequence of Piece
        The pieces that they consist of.
    laid_out : LaidOut
        The passages as tokens of `texts`, and their index.
    texts : dict
        Of each document, its text with the tokens of its passages, and the places of its pages and headings.
    part : ReadPart, optional
        The part of the likeliest document that the model has read, before the passages.
    """

    documents: Sequence[SourceText]
    pieces: Sequence[Piece]
    laid_out: LaidOut
    texts: dict[SourceText, tuple[TokenText, list[Place]]]
    part: ReadPart | None = None

    @property
    def index(self) -> Index:
        """Return the index of the passages."""
        return self.laid_out.index

    @property
    def read_now(self) -> Sequence[Excerpt]:
        """Return the passages, without the part that was read before."""
        return self.laid_out.excerpts[self.part is not None :]

    @property
    def basis(self) -> Basis:
        """Return the number of passages, and the share of the documents' characters that was read."""
        number, n_part = (self.documents[0].number, self.part.n_characters) if self.part else (0, 0)
        begun = {number: n_part}
        n_read = n_part + sum(max(piece.stop - max(piece.start, begun.get(piece.text, 0)), 0) for piece in self.pieces)
        share = min(n_read / sum(len(text.text) for text, _ in self.texts.values()), 1.0)
        n_passages = len(self.read_now)
        return Basis("part" if self.part else "excerpts", n_passages, share, is_begun=self.part is not None)

    def passages(self, attended: np.ndarray, most: int) -> list[tuple[SourceText, Passage]]:
        """Find the passages with most attention. See `LaidOut.passages`."""
        return self.laid_out.passages(attended, self.texts.__getitem__, most)


class Choice(NamedTuple):
    """The passages of an answer, which are still to be read.

    Parameters
    ----------
    candidates : list of Candidate
        The documents that the question may be about, the likeliest first.
    pieces : list of Piece
        The pieces to read, in the order of the texts.
    part : ReadPart, optional
        What the model has read of the likeliest document.
    """

    candidates: list[Candidate]
    pieces: list[Piece]
    part: ReadPart | None = None


class PassageFinder:
    """Finds passages by words in documents that were not read.

    Parameters
    ----------
    llama : Llama
        The model that reads the passages.
    store : TextStore
        The texts.
    documents : sequence of SourceText
        The documents, at least one.
    most : int
        Most tokens of the passages of an answer.
    read : callable, optional
        Receives the tokens of passages and the seconds of their reading.
    """

    only = None
    rest: Rest = "unread"

    def __init__(
        self,
        llama: Llama,
        store: TextStore,
        documents: Sequence[SourceText],
        most: int = PASSAGE_TOKENS,
        read: Callable[[int, float], None] = lambda n_tokens, seconds: None,
    ) -> None:
        self.documents = list(documents)
        self._llama, self._store, self._most, self._has_read = llama, store, most, read

    @cached_property
    def _by_number(self) -> dict[int, SourceText]:
        return {document.number: document for document in self.documents}

    def find(self, question: str, current: object, before: str = "") -> tuple[Passages, list[Candidate]]:
        """Find and read the passages that share most words with a question. See `Finder.find`."""
        choice = self.choose(*self.search(question, before))
        return self.passages(choice, current), choice.candidates

    def search(self, question: str, before: str = "") -> tuple[list[Candidate], list[Piece]]:
        """Find the documents and the pieces of them that share words with a question, the likeliest first.

        Parameters
        ----------
        before : str
            The question before, whose words count less.
        """
        found = self._store.search(question, list(self._by_number), before)
        best: dict[int, float] = {}
        for piece in found:
            best.setdefault(piece.text, piece.score)
        total = sum(best.values())
        return [Candidate(self._by_number[number], score / total, score) for number, score in best.items()], found

    def choose(self, candidates: list[Candidate], found: list[Piece], part: ReadPart | None = None) -> Choice:
        """Choose the first of the pieces that were found, or the beginnings of the texts if none has a word.

        Parameters
        ----------
        part : ReadPart, optional
            What the model has read of the likeliest document. Its pieces are chosen, too: a small model finds more in
            what stands next to the question.
        """
        if part is not None:
            return Choice(candidates, sorted(self._chosen(found)), part)
        pieces = sorted(self._chosen(found or self._beginnings()))
        numbers = dict.fromkeys(piece.text for piece in pieces)
        return Choice(candidates or [Candidate(self._by_number[number], 0.0, 0.0) for number in numbers], pieces)

    def passages(self, choice: Choice, current: object) -> Passages:
        """Read the passages of a choice, or return `current` if it is the same text."""
        if isinstance(current, Passages) and current.pieces == choice.pieces and current.part is choice.part:
            return current
        began = working_time()
        passages = at_once(self.read(choice, lambda: self._llama.n_batch))
        self._has_read(sum(stop - start for _, start, stop in passages.read_now), working_time() - began)
        return passages

    def followed_by(self, tokens_hash: str) -> None:
        """Return None: passages depend on the question."""

    def _chosen(self, found: Iterable[Piece]) -> list[Piece]:
        """Return the first pieces, as many as an answer may be given from."""
        chosen: list[Piece] = []
        n_left = min(self._most, int(self._llama.n_ctx() * _OF_CONTEXT))
        prompt, text_of = self._llama.prompt(), lru_cache(1)(self._store.document)
        for piece in found:
            n_left -= len(prompt.document(text_of(piece.text).text[piece.start : piece.stop]))
            if n_left < 0 and chosen:
                break
            chosen.append(piece)
        return chosen

    def _beginnings(self) -> Iterator[Piece]:
        """Yield the first pieces of the texts, for a question without a word of any."""
        for number in self._by_number:
            yield from self._store.first_pieces(number)

    def read(self, choice: Choice, room: Callable[[], int]) -> Generator[BatchRead, None, Passages]:
        """Read the pieces of a choice, those that follow one another as one passage, the likeliest passage last.

        Small models find more in what stands next to the question.

        Parameters
        ----------
        room : callable
            Returns the number of tokens of the next batch.

        Yields
        ------
        BatchRead
            After each batch. The model may compute other sequences then.
        """
        llama, prompt, part = self._llama, self._llama.prompt(), choice.part
        head = prompt.head()
        parts, excerpts = [np.array(head, np.int32)], []
        passages = sorted(_joined(choice.pieces), key=lambda passage: passage.score)
        begun = None if part is None else choice.candidates[0].document
        numbers = dict.fromkeys([*([] if begun is None else [begun.number]), *(piece.text for piece in passages)])
        kept = {number: self._store.document(number) for number in numbers}
        starts: dict[int, list[np.ndarray]] = {number: [] for number in numbers}
        if part is not None and begun is not None:
            starts[begun.number].append(part.starts)
        for number, start, stop, _ in passages:
            title, text = self._title(kept[number], start), kept[number].text[start:stop]
            content = f"{title}{text.strip()}\n\n"
            tokens = prompt.document(content)
            text_of_tokens = TokenText.of([llama.piece(token) for token in tokens], hash_text(content))
            n_before = sum(map(len, starts[number]))
            first = start + len(text) - len(text.lstrip())
            starts[number].append(first + np.maximum(text_of_tokens.starts - len(title), 0))
            parts.append(np.array(tokens, np.int32))
            excerpts.append(Excerpt(self._by_number[number], n_before, n_before + len(tokens)))
        index = yield from read_as_text(llama, np.concatenate(parts), len(head), room)
        if part is not None and begun is not None:
            excerpts.insert(0, Excerpt(begun, 0, len(part.starts)))
            index = after(llama, part, index)
        texts = {
            self._by_number[number]: (TokenText(text.text, np.concatenate(starts[number])), list(text.places))
            for number, text in kept.items()
        }
        documents = [candidate.document for candidate in choice.candidates if candidate.document in texts]
        return Passages(documents, choice.pieces, LaidOut(excerpts, index), texts, part)

    def _title(self, text: Document, start: int) -> str:
        """Return the line before a passage: its document if there are several, its page and its headings."""
        place = text.place(start)
        named = [text.name] if len(self.documents) > 1 else []
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


def open_unread(
    llama: Llama, library: Library, files: Sequence[SourceFile], n_jobs: int, progress: ProgressOfMany
) -> PassageFinder:
    """Keep the texts of documents, to find passages in them. Leave out those that cannot be read, with a notice.

    Parameters
    ----------
    n_jobs : int
        Files whose texts are extracted at once.

    Raises
    ------
    OctavoError
        No document can be read; of a single one, the reason.
    """
    texts = FileTexts(library, before_many(progress), n_jobs)
    kept = texts.keep(texts.of(files))
    check_problems(kept, texts.problems, progress.notice)
    return PassageFinder(llama, texts.store, kept)
