"""Documents that are being indexed: in time for the first answer or not, in the background, and half-way."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ...convert.pipeline import characters_per_token
from ...library.background.reading_queue import ReadingQueue, start_reader
from ...library.document_parts import n_parts_of, with_file_name
from ...library.file_texts import FileTexts
from ...library.open_index import Indexer
from ...library.reading_job import ReadingJob
from ...library.reading_speed import ReadingSpeed
from ...library.source_text import SourceFile, SourceText
from ...library.text_store import Piece
from ...progress import ProgressOfMany
from ...runtime.llama import Llama
from ...settings import ReadSettings
from ..sources.retrieval_heads import source_heads
from .answer_context import Context
from .document_set import DocumentSet, index_again, open_document_set
from .partial_index import ReadPart, n_tokens_read, read_part, unfinished_index

#: Growth of the part of a document that is read, from which on it is taken anew: to attach it takes seconds.
_GROWTH = 1.5

#: Number of documents whose indexes stay open, and of those that a notice names.
_KEPT_OPEN, _NAMED = 4, 3

#: Endings of notebooks, programs and data.
_NOT_READ = re.compile(
    r"\.(ipynb|py|r|jl|js|ts|sh|bat|ps1|sql|c|h|cpp|hpp|cs|java|go|rs|rb|php|pl|swift|kt|css"
    r"|csv|tsv|json|jsonl|ndjson|geojson|xml|ya?ml|toml|ini|cfg|conf|log)",
    re.IGNORECASE,
)


class TimeToRead:
    """Estimates whether documents can be indexed within some seconds. It extracts their texts, until they exceed these.

    Attributes
    ----------
    indexed : list of SourceFile
        The documents that have an index.
    n_left : float
        Tokens of the others, about, without those that are in an unfinished index.
    tokens_per_s : float
        Speed of the model; 0 if it was not needed.
    """

    def __init__(self, indexer: Indexer, texts: FileTexts, files: Sequence[SourceFile], seconds: float) -> None:
        self._indexer, self._texts, self._files, self._seconds = indexer, texts, files, seconds
        self.speed = ReadingSpeed(indexer.llama, indexer.library)
        self.tokens_per_s = self.n_left = 0.0
        self.indexed = [file for file in files if indexer.has(file)]
        self._new = texts.of([file for file in files if file not in set(self.indexed)])
        self._extracted: list[SourceText] = []

    def suffices(self) -> bool:
        """Return whether the documents without an index can be indexed in time."""
        self.n_left = 0.0
        for text in self._new:
            self._extracted.append(text)
            if self._indexer.is_read(text):
                continue
            if not self.tokens_per_s:
                self.tokens_per_s = self.speed.tokens_per_s(self._texts.load(text).text)
            unfinished = unfinished_index(self._indexer, text)
            self.n_left += _n_tokens(self._indexer.llama, self._texts, text)
            self.n_left -= n_tokens_read(unfinished) if unfinished else 0
            if self.n_left > self._seconds * self.tokens_per_s:
                return False
        return True

    def usable(self) -> list[SourceFile | SourceText]:
        """Return the documents that can be used, in their order: those whose text was extracted with it."""
        extracted = {text.file: text for text in self._extracted}
        indexed = {file: file for file in self.indexed}
        return [found for file in self._files if (found := extracted.get(file) or indexed.get(file))]

    def kept(self) -> list[SourceText]:
        """Keep the texts of all documents; return them in their order."""
        kept = self._texts.keep(chain(self._extracted, self._new, self._texts.of(self.indexed)))
        order = {file: number for number, file in enumerate(self._files)}
        return sorted(kept, key=lambda text: order[text.file] if text.file else 0)


class GrowingIndexes:
    """Indexes of documents, of which some are still to be made, perhaps in the background.

    Parameters
    ----------
    texts : FileTexts
        Their texts.
    reading : ReadSettings
        Whether and how they are read in the background.
    """

    def __init__(self, indexer: Indexer, texts: FileTexts, reading: ReadSettings, progress: ProgressOfMany) -> None:
        self._indexer, self._texts, self._progress = indexer, texts, progress
        llama, self._job = indexer.llama, None
        if reading.background and llama.settings is not None:
            self._job = ReadingJob(llama.settings, llama.attention, reading).anywhere(indexer.library)
        self._sets: OrderedDict[Path, DocumentSet] = OrderedDict()
        self._part: tuple[SourceText, ReadPart] | None = None
        self._reported: set[SourceText] = set()
        self._lengths: dict[str, float] = {}
        self.is_queued = False

    def missing(self, documents: Iterable[SourceText]) -> list[SourceText]:
        """Return the documents that have no index by now."""
        self._indexer.snapshot.refresh()
        return [document for document in documents if not self._indexer.is_read(document)]

    def all_of(self, documents: Sequence[SourceText]) -> DocumentSet:
        """Open the indexes of all documents."""
        what = f"{documents[0].name} is" if len(documents) == 1 else f"All {len(documents):,} documents are"
        self._progress.notice(f"{what} read now: answers come from the whole text.")
        return open_document_set(self._indexer, documents, self._texts, self._progress)

    def whole(self, document: SourceText, piece: Piece) -> Context | None:
        """Return a document, or the part of it with a piece, from its index; None if that is missing."""
        indexer, text = self._indexer, document
        for part in indexer.parts(document.version):
            start, stop = part["part"]
            if start <= piece.start < stop:
                text = self.part_of(document, part)
        folder = indexer.find(text) if text.sha256 in indexer.snapshot.by_text else None
        if folder is None:
            return None
        of_one = self._sets.pop(folder, None)
        if of_one is None:
            of_one = DocumentSet(indexer.llama, indexer.library, {text: folder}, [], partial(self.heal, document))
        self._sets[folder] = of_one
        while len(self._sets) > _KEPT_OPEN:
            self._sets.popitem(last=False)
        return of_one.whole(of_one.documents[0])

    def read_parts(self, document: SourceText) -> tuple[DocumentSet | None, list[range]]:
        """Return the indexes of a document, or of its parts, if there are any, and the characters that they have."""
        indexer, folder = self._indexer, None
        of_splits: dict[int, dict[SourceText, tuple[Path, range]]] = {}
        if document.sha256 in indexer.snapshot.by_text:
            folder = indexer.find(document)
        if folder is not None:
            of_splits[1] = {document: (folder, range(document.length))}
        for part in indexer.parts(document.version) if folder is None else ():
            text = self.part_of(document, part)
            if (folder := indexer.find(text)) is not None:
                of_splits.setdefault(n_parts_of(part["name"]), {})[text] = folder, range(*part["part"])
        if not of_splits:
            return None, []
        read = max(of_splits.values(), key=lambda parts: sum(len(place) for _, place in parts.values()))
        heads = source_heads(indexer.llama, indexer.library, self._progress.notice)
        folders, heal = {text: folder for text, (folder, _) in read.items()}, partial(self.heal, document)
        found = DocumentSet(indexer.llama, indexer.library, folders, heads, heal)
        return found, [place for _, place in read.values()]

    def part_of(self, document: SourceText, described: dict[str, Any]) -> SourceText:
        """Return a part of a document, by its description in a manifest."""
        name, version = with_file_name(described["name"], document.name), document.version
        return SourceText(described["sha256"], name, Path(name), document.file, version=version)

    def heal(self, document: SourceText, damaged: SourceText) -> None:
        """Make the damaged index of a document, or of a part of it, again."""
        for part in self._indexer.fit(document.extracted()[0]):
            if part.sha256 == damaged.sha256:  # the others may not be read yet
                index_again(self._indexer, part, self._progress)

    def close_indexes(self) -> None:
        """Close all indexes, in any thread: one of them may have been removed."""
        self._sets.clear()
        self._part = None

    def part(self, document: SourceText) -> ReadPart | None:
        """Return the part of a document that is read so far; None if there is none, or if it cannot be used."""
        folder, llama = unfinished_index(self._indexer, document), self._indexer.llama
        if folder is None:
            return None
        kept = self._part
        before = kept[1] if kept is not None and kept[0].sha256 == document.sha256 else None
        if before is None or n_tokens_read(folder) > _GROWTH * len(before.tokens):
            text = self._texts.load(document).text
            part = read_part(llama, folder, text, llama.prompt().document(text))
            kept = self._part = None if part is None else (document, part)
        return None if kept is None else kept[1]

    def read_on(self, used: Sequence[SourceText], missing: Sequence[SourceText], is_only: bool) -> None:
        """Have documents of an answer read in the background if their indexes are missing, the likeliest first.

        Parameters
        ----------
        is_only : bool
            Whether there is only one document. Of several, notebooks, programs and data are not read: passages serve.
        """
        if self._job is None:
            return
        queue, waiting, new = ReadingQueue(), list[SourceText](), list[SourceText]()
        problems = {document.path: document.problem for document in queue.documents()}
        for document in used:
            file, version = document.file, document.version
            if document not in missing or file is None or version is None:
                continue
            if not is_only and _NOT_READ.fullmatch(document.path.suffix):
                continue
            if not self._can_read(document):
                continue
            if not (problem := problems.get(version.path)):
                if file.extraction.password is None:
                    waiting.append(document)
                    new += [document] if version.path not in problems else []
            elif document not in self._reported:
                self._progress.notice(f"{document.name} could not be read in the background: {problem}")
                self._reported.add(document)
        queue.add([document.path for document in waiting], self._indexer.library.folder, self._job.as_json())
        self.is_queued = bool(waiting)
        if new:
            self._progress.notice(f"{self._cost_of(new)} `octavo stop` ends this.")
        if waiting:
            start_reader()

    def _can_read(self, document: SourceText) -> bool:
        """Return whether a document does not make too many parts; report once that it does."""
        n_tokens = self._n_tokens(document)
        if self._indexer.can_read(n_tokens):
            return True
        if document not in self._reported:
            self._progress.notice(
                f"{document.name} has about {n_tokens:,.0f} tokens, too many to be indexed with this context of "
                f"{self._indexer.llama.n_ctx():,}: answers come from passages of it."
            )
            self._reported.add(document)
        return False

    def _cost_of(self, documents: Sequence[SourceText]) -> str:
        """Return a sentence with the documents that are read, and how much that is."""
        names = [document.name for document in documents]
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        cost = self._indexer.cost([self._n_tokens(document) for document in documents])
        return f"Reading {', '.join(names[:_NAMED])}{more} in the background: {cost}."

    def _n_tokens(self, document: SourceText) -> float:
        """Return how many tokens a document has, about. Each answer asks, so each text is estimated once."""
        if document.sha256 not in self._lengths:
            self._lengths[document.sha256] = _n_tokens(self._indexer.llama, self._texts, document)
        return self._lengths[document.sha256]


def _n_tokens(llama: Llama, texts: FileTexts, document: SourceText) -> float:
    """Return how many tokens a document has, about: figures have more for their length than prose."""
    return document.length / characters_per_token(llama, texts.load(document).text)
