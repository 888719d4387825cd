"""Keep the texts of documents, and find pieces of them by words: one SQLite file beside the indexes.

SQLite's FTS5 indexes which words a block of some thousand characters has, in a tenth of the text's size. The blocks
with the rarest words of a question are then cut into pieces of a few sentences, which BM25 scores (question_words.py).
Words count without their endings and accents; a character of Chinese, Japanese or Korean is a word. Where pieces have
vectors (embed_texts.py), their meaning counts, too (meaning.py).
"""

from __future__ import annotations

import itertools
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import numpy as np

from ..documents.document import Document, Place, hash_text, sentences
from ..documents.extract import extract_document
from ..errors import OctavoError
from ..settings import Extraction
from ..system.files import DamagedError, FileVersion
from ..system.sqlite_file import SqliteFile, bound
from .document_parts import heading_offsets, ranges_of
from .meaning import WEIGHT, Embedder, installed_embedder
from .question_words import BEFORE, MOST, rarity, relative_lengths, saturated, subject_words, with_subject
from .source_text import SourceText

_Result = TypeVar("_Result")

#: File of a library with its texts.
TEXTS = "texts.sqlite"

#: Most characters of a block: shorter ones make the index larger than a tenth of the text.
BLOCK = 6_000

#: Most characters of a piece: more than a sentence has (`sentences` cuts longer ones).
PIECE = 800

#: Blocks of a question whose pieces are scored, and pieces of nearest meaning whose blocks are, too.
_BLOCKS = _NEAREST = 64

#: Characters that are words of their own, as no blanks separate words.
_CHARACTER_WORDS = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff])")

#: Where systems connect drives.
_DRIVES = ("/mnt/", "/media/", "/run/media/", "/Volumes/")

_HAS_CHANGED = "A document has changed since it was opened: open it again."

#: A Markdown heading alone.
_HEADING = re.compile(r"\s*#[^\n]*\s*")

_WORDS = "tokenize = 'porter unicode61 remove_diacritics 2'"

_TABLES = f"""
CREATE TABLE IF NOT EXISTS texts (
    number INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT UNIQUE, name TEXT, mtime_ns INTEGER, n_bytes INTEGER,
    sha256 TEXT, length INTEGER, places TEXT, text BLOB, mark TEXT DEFAULT '', content TEXT DEFAULT ''
);
CREATE TABLE IF NOT EXISTS notices (text_number INTEGER PRIMARY KEY, sentences TEXT);
CREATE TABLE IF NOT EXISTS blocks (number INTEGER PRIMARY KEY, text INTEGER, start INTEGER, stop INTEGER);
CREATE TABLE IF NOT EXISTS meaning (
    sha256 TEXT, start INTEGER, embedder TEXT, vectors BLOB, PRIMARY KEY (sha256, start)
);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (text, content = '', detail = none, columnsize = 0, {_WORDS});
CREATE VIRTUAL TABLE IF NOT EXISTS temp.places_of_words USING fts5vocab (main, words, instance);
CREATE VIRTUAL TABLE IF NOT EXISTS temp.pieces USING fts5 (text, {_WORDS});
CREATE VIRTUAL TABLE IF NOT EXISTS temp.piece_words USING fts5vocab (temp, pieces, instance);
"""

#: Version of the tables; what empties a file of an older version. Newer tables need a file of another name: versions of
#: octavo may take turns.
_VERSION = 2
_NEW = (
    *(f"DROP TABLE IF EXISTS {table}" for table in ("texts", "blocks", "words")),
    f"PRAGMA user_version = {_VERSION}",
)


#: What replaces, before and after the tables are made, the texts of an older octavo, which used the numbers of removed
#: texts again. Older versions of octavo can use the new table, too.
_RENAME = "ALTER TABLE texts RENAME TO older_texts"
_COPY = (
    "INSERT INTO texts SELECT number, source, name, mtime_ns, n_bytes, sha256, length, places, text, '', '' "
    "FROM older_texts",
    "DROP TABLE older_texts",
)


class _DamagedText(DamagedError):
    """A text is not as it was kept."""

    def __init__(self, number: int) -> None:
        super().__init__("A text that was kept is damaged.")
        self.number = number


class Piece(NamedTuple):
    """Some sentences of a text, from character `start` up to `stop`, and how well they match a question."""

    text: int
    start: int
    stop: int
    score: float


class Block(NamedTuple):
    """A part of a text whose words are indexed together, from character `start` up to `stop`."""

    text: int
    start: int
    stop: int


class _Nearness(NamedTuple):
    """How near pieces are to the meaning of a question.

    Parameters
    ----------
    blocks : int64 array, shape (n_pieces, 2)
        For each piece the number of its text, and the first character of its block.
    bounds : int32 array, shape (n_pieces, 2)
        First character, and the one after the last.
    values : float32 array, shape (n_pieces,)
        Nearness in standard deviations from the mean.
    """

    blocks: np.ndarray
    bounds: np.ndarray
    values: np.ndarray


class TextStore(SqliteFile):
    """The texts of documents, by number.

    Parameters
    ----------
    path : Path
        Its file, made if it is missing.
    heals : bool
        Whether to read damaged texts again. Otherwise they raise `DamagedError`, and `add` replaces them.
    """

    def __init__(self, path: Path, heals: bool = True) -> None:
        super().__init__(path, "The texts of documents", "octavo makes it anew")
        self._heals = heals
        with self._reporting():
            if self._is_older():
                with self._transaction("IMMEDIATE"):
                    if self._is_older():  # no other process has made it meanwhile
                        for statement in _NEW:
                            self._db.execute(statement)
            if self._uses_numbers_again():
                with self._transaction("IMMEDIATE"):
                    if self._uses_numbers_again():
                        for statement in (_RENAME, *filter(str.strip, _TABLES.split(";")), *_COPY):
                            self._db.execute(statement)
            self._db.executescript(_TABLES)

    def _uses_numbers_again(self) -> bool:
        """Return whether the number of a removed text serves the next one."""
        made = self._db.execute("SELECT sql FROM sqlite_master WHERE name = 'texts'").fetchone()
        return made is not None and "AUTOINCREMENT" not in made[0]

    def _is_older(self) -> bool:
        """Return whether an older octavo has made the file, whose texts are read again; or nothing has."""
        return int(self._db.execute("PRAGMA user_version").fetchone()[0]) < _VERSION

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def find(self, version: FileVersion) -> SourceText | None:
        """Return the text of this version of a file, if it is kept."""
        columns = "mtime_ns, n_bytes, ifnull(mark, ''), ifnull(content, ''), sha256, name, number, length, sentences"
        with self._reporting():
            query = f"SELECT {columns} FROM texts LEFT JOIN notices ON text_number = number WHERE source = ?"
            kept = self._db.execute(query, (bound(version.path),)).fetchone()
        if kept is None or not (of_kept := FileVersion(version.path, *kept[:4])).is_kept(version):
            return None
        sha256, name, number, length, sentences = kept[4:]
        path, notices = Path(version.path), tuple(json.loads(sentences or "[]"))  # older octavos kept none
        return SourceText(sha256, os.fsdecode(name), path, None, None, of_kept, number, length, notices)

    def add(self, document: Document) -> SourceText:
        """Keep a document's text, in place of the text that its file had before. The same text keeps its number."""
        source, text, sha256 = document.path or document.name, document.text, hash_text(document.text)
        places, packed = _stored(document)
        of_file = bound(document.name), document.mtime_ns, document.n_bytes, document.mark, document.content
        with self._reporting(), self._transaction("IMMEDIATE"):
            same = "SELECT number FROM texts WHERE (source, sha256, places) = (?, ?, ?)"
            kept = self._db.execute(same, (bound(source), sha256, places)).fetchone()
            if kept is not None:
                number = int(kept[0])
            else:
                self._remove(source)
                new = "INSERT INTO texts (source, sha256, length, places) VALUES (?, ?, ?, ?)"
                row = bound(source), sha256, len(text), places
                number = int(self._db.execute(new, row).lastrowid or 0)
                for start, stop in ranges_of(text, 0, len(text), heading_offsets(document.places), BLOCK):
                    block = "INSERT INTO blocks (text, start, stop) VALUES (?, ?, ?)"
                    block_number = int(self._db.execute(block, (number, start, stop)).lastrowid or 0)
                    self._add_words(block_number, text[start:stop])
            columns = "name = ?, mtime_ns = ?, n_bytes = ?, mark = ?, content = ?, text = ?"
            self._db.execute(f"UPDATE texts SET {columns} WHERE number = ?", (*of_file, packed, number))
            sentences = json.dumps(document.notices)
            self._db.execute("INSERT OR REPLACE INTO notices VALUES (?, ?)", (number, sentences))
        known = Path(source), None, None, document.version, number, len(text), document.notices
        return SourceText(sha256, document.name, *known)

    def _remove(self, source: str) -> None:
        """Forget a text, inside a transaction."""
        kept = self._db.execute("SELECT number, sha256 FROM texts WHERE source = ?", (bound(source),)).fetchone()
        if kept is None:
            return
        text_number, sha256 = kept
        blocks = self._db.execute("SELECT number, start, stop FROM blocks WHERE text = ?", (text_number,)).fetchall()
        is_whole = True
        try:
            text = self._load(text_number).text
            for number, start, stop in blocks:
                delete = "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)"
                self._db.execute(delete, (number, split_characters(text[start:stop])))
        except DamagedError:
            is_whole = False
        self._db.execute("DELETE FROM blocks WHERE text = ?", (text_number,))
        self._db.execute("DELETE FROM texts WHERE number = ?", (text_number,))
        self._db.execute("DELETE FROM notices WHERE text_number = ?", (text_number,))
        unshared = "DELETE FROM meaning WHERE sha256 = ? AND sha256 NOT IN (SELECT sha256 FROM texts)"
        self._db.execute(unshared, (sha256,))
        if not is_whole:
            self._index_words_anew()

    def _add_words(self, block: int, text: str) -> None:
        """Index the words of a block."""
        self._db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (block, split_characters(text)))

    def _index_words_anew(self) -> None:
        """Index the words of all texts, inside a transaction: SQLite forgets only words that it is given."""
        self._db.execute("INSERT INTO words (words) VALUES ('delete-all')")
        for (number,) in self._db.execute("SELECT number FROM texts").fetchall():
            with suppress(DamagedError):  # its words are in the index once it is healed
                text = self._load(number).text
                blocks = "SELECT number, start, stop FROM blocks WHERE text = ?"
                for block, start, stop in self._db.execute(blocks, (number,)).fetchall():
                    self._add_words(block, text[start:stop])

    def compact(self) -> None:
        """Merge the parts of the index that many additions left: it gets a tenth smaller."""
        with self._reporting():
            self._db.execute("INSERT INTO words (words) VALUES ('optimize')")

    def sources(self) -> list[str]:
        """Return the paths of the files whose texts are kept."""
        with self._reporting():
            return [os.fsdecode(source) for (source,) in self._db.execute("SELECT source FROM texts")]

    def forget(self, chosen: Callable[[str], bool]) -> int:
        """Forget the texts of the files whose paths are chosen. Return how many."""
        sources = list(filter(chosen, self.sources()))
        with self._reporting():
            if sources:
                with self._transaction("IMMEDIATE"):
                    for source in sources:
                        self._remove(source)
                self.compact()
                self._erase_forgotten()
        return len(sources)

    def document(self, number: int) -> Document:
        """Return a text with its pages and headings. A damaged one is read again from its file.

        Raise OctavoError if it has changed, or is damaged and cannot be read again.
        """
        return self._healing(lambda: self._load(number))

    def _load(self, number: int) -> Document:
        """Return a text. Raise _DamagedText if it is not as it was kept."""
        columns = "name, places, text, length"
        kept = self._db.execute(f"SELECT {columns} FROM texts WHERE number = ?", (number,)).fetchone()
        if kept is None:
            raise OctavoError(_HAS_CHANGED)
        name, places, content, length = kept
        try:
            text = zlib.decompress(content).decode("utf-8", "surrogatepass")
            document = Document(text, tuple(Place(*place) for place in json.loads(places)), name=os.fsdecode(name))
        except (zlib.error, ValueError, TypeError) as problem:
            raise _DamagedText(number) from problem
        if len(text) != length:
            raise _DamagedText(number)
        return document

    def _healing(self, look: Callable[[], _Result]) -> _Result:
        """Return what a look at the texts finds; heal damaged ones before. Raise OctavoError for one that stays so."""
        while True:
            try:
                with self._reporting():
                    return look()
            except _DamagedText as damage:
                if not self._heals:
                    raise
                self._heal(damage.number)

    def _heal(self, number: int) -> None:
        """Read a damaged text again; forget it, and raise OctavoError, if its file does not have it any more."""
        with self._reporting():
            query = "SELECT source, sha256, ifnull(mark, '') FROM texts WHERE number = ?"
            kept = self._db.execute(query, (number,)).fetchone()
        if kept is None:  # another process was faster
            return
        source, sha256 = os.fsdecode(kept[0]), kept[1]
        document = None
        with suppress(OctavoError):
            document = extract_document(source, Extraction(encoding=FileVersion(source, 0, 0, kept[2]).encoding))
        with self._reporting(), self._transaction("IMMEDIATE"):
            if document is not None and hash_text(document.text) == sha256:
                change = "UPDATE texts SET length = ?, places = ?, text = ? WHERE number = ?"
                self._db.execute(change, (len(document.text), *_stored(document), number))
                self._index_words_anew()
                return
            self._remove(source)
        raise OctavoError(
            f"The text that was kept of {Path(source).name} was damaged, and is forgotten: open the document again."
        )

    def check(self, texts: Iterable[SourceText]) -> None:
        """Raise OctavoError if a text is not kept any more: in a new file its number may belong to another one."""
        with self._reporting():
            kept = set(self._db.execute("SELECT number, sha256 FROM texts"))
        if any((text.number, text.sha256) not in kept for text in texts):
            raise OctavoError(_HAS_CHANGED)

    def first_pieces(self, number: int) -> list[Piece]:
        """Return the pieces of a text's beginning."""
        document = self.document(number)
        return list(_pieces_of(document, number, 0, min(len(document.text), BLOCK)))

    def unembedded(self, texts: Iterable[SourceText], embedder: str) -> list[Block]:
        """Return the blocks of texts whose pieces lack vectors of an embedder."""
        kept = "SELECT start FROM meaning WHERE sha256 = ? AND embedder = ?"
        lacking = f"SELECT text, start, stop FROM blocks WHERE text = ? AND start NOT IN ({kept}) ORDER BY start"
        with self._reporting():
            return [
                Block(*row) for text in texts for row in self._db.execute(lacking, (text.number, text.sha256, embedder))
            ]

    def keep_vectors(self, block: Block, embedder: str, pieces: Sequence[Piece], vectors: np.ndarray) -> None:
        """Keep the vectors of a block's pieces, in half precision, unless its text was forgotten meanwhile."""
        rows = np.zeros(len(pieces), _vectors_of(vectors.shape[1]))
        rows["vector"] = vectors
        for row, piece in zip(rows, pieces, strict=True):
            row["bounds"] = piece.start, piece.stop
        new = "INSERT OR REPLACE INTO meaning SELECT sha256, ?, ?, ? FROM texts WHERE number = ?"
        with self._reporting():
            self._db.execute(new, (block.start, embedder, rows.tobytes(), block.text))

    def search(self, question: str, numbers: Sequence[int], before: str = "") -> list[Piece]:
        """Find the pieces of texts that share words with a question, or mean the same if they have vectors.

        Parameters
        ----------
        numbers : sequence of int
            Texts to search.
        before : str
            The question before, whose words count less.

        Returns
        -------
        list of Piece
            The best first; none if no text has a word of the question, nor vectors.
        """
        both = with_subject(question, before)
        return self._healing(lambda: self._search(numbers, *both))

    def _search(self, numbers: Sequence[int], question: str, before: str) -> list[Piece]:
        with self._transaction("DEFERRED"):  # other processes add and forget texts meanwhile
            return self._found(numbers, question, before)

    def _found(self, numbers: Sequence[int], question: str, before: str) -> list[Piece]:
        blocks = np.array(
            self._db.execute("SELECT number, text, start, stop FROM blocks ORDER BY number").fetchall(), np.int64
        ).reshape(-1, 4)
        scores = np.zeros(len(blocks))
        weights = {}
        shares = dict.fromkeys(self._words_of(subject_words(before)), BEFORE)
        shares |= dict.fromkeys(self._words_of(subject_words(question)), 1.0)
        for word, share in shares.items():
            having = self._db.execute("SELECT doc FROM places_of_words WHERE term = ?", (word,))
            rows = np.searchsorted(blocks[:, 0], np.fromiter((number for (number,) in having), np.int64))
            weights[word] = share * rarity(len(rows), len(blocks))
            scores[rows] += weights[word]
        scores[~np.isin(blocks[:, 1], numbers)] = 0
        best = [i for i in np.argsort(-scores, kind="stable")[:_BLOCKS].tolist() if scores[i] > 0]
        embedder = installed_embedder()
        near = None if embedder is None else self._near(embedder, numbers, question, before)
        if near is not None:
            first = np.argsort(-near.values, kind="stable")[:_NEAREST]
            nearest = set(map(tuple, near.blocks[first].tolist()))
            best = sorted({*best, *(i for i, row in enumerate(blocks.tolist()) if tuple(row[1:3]) in nearest)})
        return self._score_pieces(weights, blocks[best], near)

    def _near(self, embedder: Embedder, numbers: Sequence[int], question: str, before: str) -> _Nearness | None:
        """Compare the pieces of texts with a question; None if none has vectors."""
        kept = "SELECT start, vectors FROM meaning JOIN texts USING (sha256) WHERE number = ? AND embedder = ?"
        blocks, parts = list[np.ndarray](), list[np.ndarray]()
        for number in numbers:
            for start, vectors in self._db.execute(kept, (number, embedder.name)):
                parts.append(np.frombuffer(vectors, _vectors_of(embedder.n_values)))
                blocks.append(np.tile([number, start], (len(parts[-1]), 1)))
        if not sum(map(len, parts)):
            return None
        pieces, sought = np.concatenate(parts), embedder.of_question(question)
        if before:
            sought = sought + BEFORE * embedder.of_question(before)
        products = pieces["vector"].astype(np.float32) @ sought
        values = (products - products.mean()) / max(float(products.std()), 1e-9)
        if len(values) == 1:  # there is nothing that it could be nearer than
            values = np.ones(1)
        return _Nearness(np.concatenate(blocks), pieces["bounds"], values)

    def _words_of(self, question: str) -> list[str]:
        """Return the words of a question, each once, as FTS5 stores them."""
        self._fill([question])
        return [word for (word,) in self._db.execute("SELECT DISTINCT term FROM piece_words")]

    def _fill(self, texts: Sequence[str]) -> None:
        """Put texts in place of the pieces, numbered from 0."""
        self._db.execute("DELETE FROM temp.pieces")
        rows = enumerate(map(split_characters, texts))
        self._db.executemany("INSERT INTO temp.pieces (rowid, text) VALUES (?, ?)", rows)

    def _score_pieces(self, weights: dict[str, float], blocks: np.ndarray, near: _Nearness | None) -> list[Piece]:
        """Return the pieces of blocks that score, the best first, by the weights of the words and the meaning."""
        pieces: list[Piece] = []
        texts: list[str] = []
        for number in dict.fromkeys(blocks[:, 1].tolist()):
            document = self._load(number)
            for start, stop in np.sort(blocks[blocks[:, 1] == number, 2:], axis=0).tolist():
                for piece, text in pieces_with_heads(document, number, start, stop):
                    pieces.append(piece)
                    texts.append(text)
        if not pieces:
            return []
        self._fill(texts)
        longer, scores = relative_lengths(np.array([len(text) for text in texts])), np.zeros(len(pieces))
        for word, weight in weights.items():
            counted = "SELECT doc, COUNT(*) FROM piece_words WHERE term = ? GROUP BY doc"
            numbers, counts = np.array(self._db.execute(counted, (word,)).fetchall(), np.int64).reshape(-1, 2).T
            scores[numbers] += weight * saturated(counts, longer[numbers])
        if near is not None:
            best = MOST * sum(weights.values()) or 1.0
            of_pieces = zip(near.blocks[:, 0].tolist(), *near.bounds.T.tolist(), strict=True)
            values = dict(zip(of_pieces, near.values.tolist(), strict=True))
            scores += [WEIGHT * best * values.get(piece[:3], 0.0) for piece in pieces]
        order = np.argsort(-scores, kind="stable").tolist()
        return [pieces[i]._replace(score=float(scores[i])) for i in order if scores[i] > 0]


def _stored(document: Document) -> tuple[str, bytes]:
    """Return the places and the text of a document as a file has them."""
    return json.dumps(document.places), zlib.compress(document.text.encode("utf-8", "surrogatepass"), 1)


def is_gone(source: str) -> bool:
    """Return whether the file of a text is gone. A text without a file stays, and one whose drive may be unconnected.

    Without its drive a file has no folder, or the folder is empty where systems connect drives.
    """
    folder = os.path.dirname(source)
    if not os.path.isabs(source) or os.path.exists(source) or not os.path.isdir(folder):
        return False
    return not folder.startswith(_DRIVES) or bool(os.listdir(folder))


def open_texts(folder: Path) -> TextStore | None:
    """Open the texts in the folder of a library; None if there are none."""
    return TextStore(folder / TEXTS) if (folder / TEXTS).exists() else None


def _vectors_of(n_values: int) -> np.dtype[np.void]:
    """Return the form in which vectors are kept: the characters of a piece, and its vector."""
    return np.dtype([("bounds", "<i4", 2), ("vector", "<f2", n_values)])


def pieces_with_heads(document: Document, number: int, start: int, stop: int) -> Iterator[tuple[Piece, str]]:
    """Yield the pieces of a part of a text, each with its text below its headings and the head of its table."""
    for piece in _pieces_of(document, number, start, stop):
        place = document.place(piece.start)
        above = f"{place.heading if place else ''}\n{document.table_heads.head(piece.start)}"
        yield piece, f"{above}{document.text[piece.start : piece.stop]}"


def _pieces_of(document: Document, number: int, start: int, stop: int) -> Iterator[Piece]:
    """Yield the pieces of a part of a text, which begin at headings; a heading alone is none."""
    headings = [offset for offset in heading_offsets(document.places) if start < offset < stop]
    for bounds in itertools.pairwise([start, *headings, stop]):
        for first, last in _of_sentences(document.text, *bounds):
            if not _HEADING.fullmatch(document.text, first, last):
                yield Piece(number, first, last, 0.0)


def _of_sentences(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of parts of a text that have as many whole sentences as fit in a piece."""
    first = start
    for begin, end in itertools.pairwise(sentences(text[start:stop])):
        if start + end - first > PIECE:
            yield first, start + begin
            first = start + begin
    yield first, stop


def split_characters(text: str) -> str:
    """Put blanks around characters that are words of their own."""
    return _CHARACTER_WORDS.sub(r" \1 ", text)
