"""Find passages of documents that the model has not read: words choose them, and the model reads only these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np

from ..documents.document import Document, Place
from ..errors import OctavoError
from ..library.document_file import DocumentFile
from ..library.text_store import TEXTS, Piece, TextStore
from ..progress import ProgressOfMany
from ..runtime.document.index import Index
from ..runtime.llama import Llama
from ..runtime.store.model_library import Library, hash_text
from .document_set import check_problems
from .excerpts import LaidOut, at_once, read_as_text
from .passages import Passage, TokenText
from .ranking import Candidate, Excerpt

#: Most tokens of the passages of an answer, and the share of a shorter context that they take.
PASSAGE_TOKENS, _OF_CONTEXT = 2000, 0.5

#: Texts that are added at once, from which on the store is compacted.
_MANY = 100


@dataclass(frozen=True)
class UnreadDocument:
    """A document whose text is kept without an index.

    Parameters
    ----------
    path : Path
        Its file.
    number : int
        Number of its text in the store.
    """

    name: str
    path: Path
    number: int


@dataclass(frozen=True, eq=False)
class Passages:
    """Passages of documents that were read as one text, each after a line that says where it stands.

    Parameters
    ----------
    documents : sequence of UnreadDocument
        Their documents, the likeliest first.
    pieces : sequence of Piece
        The pieces that they consist of.
    laid_out : LaidOut
        The passages as tokens of `texts`, and their index.
    texts : dict
        Of each document, its text with the tokens of its passages, and the places of its pages and headings.
    """

    documents: Sequence[UnreadDocument]
    pieces: Sequence[Piece]
    laid_out: LaidOut
    texts: dict[UnreadDocument, tuple[TokenText, list[Place]]]

    @property
    def index(self) -> Index:
        """Return the index of the passages."""
        return self.laid_out.index

    @property
    def share(self) -> float:
        """Return the share of the documents' characters that was read."""
        n_read = sum(piece.stop - piece.start for piece in self.pieces)
        return n_read / sum(len(text.text) for text, _ in self.texts.values())

    def passages(self, attended: np.ndarray, most: int) -> list[tuple[UnreadDocument, Passage]]:
        """Find the passages with most attention. See `LaidOut.passages`."""
        return self.laid_out.passages(attended, self.texts.__getitem__, most)


class PassageFinder:
    """Finds passages by words in documents that were not read.

    Parameters
    ----------
    llama : Llama
        The model that reads the passages.
    store : TextStore
        The texts.
    documents : sequence of UnreadDocument
        The documents, at least one.
    """

    only = None

    def __init__(self, llama: Llama, store: TextStore, documents: Sequence[UnreadDocument]) -> None:
        self.documents = list(documents)
        self._llama, self._store = llama, store

    @cached_property
    def _by_number(self) -> dict[int, UnreadDocument]:
        return {document.number: document for document in self.documents}

    def find(self, question: str, current: object) -> tuple[Passages, list[Candidate]]:
        """Find and read the passages that share most words with a question. See `Finder.find`."""
        found = self._store.search(question, list(self._by_number))
        pieces = sorted(self._chosen(found or self._beginnings()))
        best: dict[int, float] = {}
        for piece in found or pieces:
            best.setdefault(piece.text, piece.score)
        total = sum(best.values()) or 1.0
        candidates = [Candidate(self._by_number[number], score / total, score) for number, score in best.items()]
        if isinstance(current, Passages) and current.pieces == pieces:
            return current, candidates
        likeliest = sorted({piece.text for piece in pieces}, key=lambda number: -best[number])
        return self._read(pieces, [self._by_number[number] for number in likeliest]), candidates

    def followed_by(self, tokens_hash: str) -> None:
        """Return None: passages depend on the question."""

    def _chosen(self, found: Iterable[Piece]) -> list[Piece]:
        """Return the first pieces, as many as an answer may be given from."""
        chosen: list[Piece] = []
        n_left = min(PASSAGE_TOKENS, int(self._llama.n_ctx() * _OF_CONTEXT))
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

    def _read(self, pieces: Sequence[Piece], documents: Sequence[UnreadDocument]) -> Passages:
        """Read pieces of documents in their order, those that follow one another as one passage."""
        llama, prompt = self._llama, self._llama.prompt()
        head = prompt.head()
        parts, excerpts = [np.array(head, np.int32)], []
        texts: dict[UnreadDocument, tuple[TokenText, list[Place]]] = {}
        for number, of_text in groupby(pieces, lambda piece: piece.text):
            document, text = self._by_number[number], self._store.document(number)
            starts: list[np.ndarray] = []
            for start, stop in _joined(list(of_text)):
                title, passage = self._title(text, start), text.text[start:stop]
                content = f"{title}{passage.strip()}\n\n"
                tokens = prompt.document(content)
                text_of_tokens = TokenText.of([llama.piece(token) for token in tokens], hash_text(content))
                n_before = sum(map(len, starts))
                first = start + len(passage) - len(passage.lstrip())
                starts.append(first + np.maximum(text_of_tokens.starts - len(title), 0))
                parts.append(np.array(tokens, np.int32))
                excerpts.append(Excerpt(document, n_before, n_before + len(tokens)))
            texts[document] = TokenText(text.text, np.concatenate(starts)), list(text.places)
        index = at_once(read_as_text(llama, np.concatenate(parts), len(head), lambda: llama.n_batch))
        return Passages(documents, pieces, LaidOut(excerpts, index), texts)

    def _title(self, text: Document, start: int) -> str:
        """Return the line before a passage: its document if there are several, its page and its headings."""
        place = text.place(start)
        named = [text.name] if len(self.documents) > 1 else []
        page = [f"page {place.page}"] if place and place.page else []
        heading = [place.heading] if place and place.heading else []
        where = ", ".join([*named, *page, *heading])
        return f"[{where}]\n" if where else ""


def _joined(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """Return the bounds of passages: pieces of a text, in order, of which those that follow one another are one."""
    bounds: list[tuple[int, int]] = []
    for piece in pieces:
        if bounds and bounds[-1][1] == piece.start:
            bounds[-1] = bounds[-1][0], piece.stop
        else:
            bounds.append((piece.start, piece.stop))
    return bounds


def open_unread(
    llama: Llama, library: Library, files: Sequence[DocumentFile], progress: ProgressOfMany
) -> PassageFinder:
    """Keep the texts of documents, to find passages in them. Leave out those that cannot be read, with a notice.

    Raises
    ------
    OctavoError
        No document can be read; of a single one, the reason.
    """
    library.make_folder()
    store = TextStore(library.folder / TEXTS)
    documents: dict[int, UnreadDocument] = {}
    problems: list[str] = []
    n_added = 0
    for file in files:
        try:
            number = store.find(*version) if (version := file.version) else None
            if number is None:
                number, n_added = _add(store, file, progress), n_added + 1
            documents.setdefault(number, UnreadDocument(file.name, Path(file.path), number))
        except OctavoError as problem:
            problems.append(str(problem))
    check_problems(documents, problems, progress.notice)
    if n_added >= _MANY:
        store.compact()
    return PassageFinder(llama, store, list(documents.values()))


def _add(store: TextStore, file: DocumentFile, progress: ProgressOfMany) -> int:
    """Read a document's file, keep its text, and return its number. Raise OctavoError if that fails."""
    document = file.read()
    for sentence in document.notices:
        progress.notice(sentence)
    return store.add(document)
