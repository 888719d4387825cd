"""Documents that are being indexed: in time for the first answer or not, in the background, and half-way.

How fast the model reads is known from what it has read on this machine before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path

from ...convert.pipeline import characters_per_token
from ...cpu_kernels.numba_support.machine import cpu_name
from ...errors import OctavoError
from ...library.background.reading_queue import ReadingQueue, start_reader
from ...library.file_texts import FileTexts
from ...library.open_index import Indexer
from ...library.reading_job import ReadingJob
from ...library.source_text import SourceFile, SourceText
from ...library.text_store import Piece
from ...progress import ProgressOfMany
from ...runtime.llama import Llama
from ...runtime.methods.attention import DENSE_ATTENTION
from ...runtime.store.model_library import Library
from ...settings import ReadSettings
from ...system.files import read_json, write_json
from ...system.working_time import working_time
from .answer_context import Context
from .document_set import DocumentSet, index_again, open_document_set
from .partial_index import ReadPart, n_tokens_read, read_part, unfinished_index

#: Growth of the part of a document that is read, from which on it is taken anew: to attach it takes seconds.
_GROWTH = 1.5

#: Number of documents whose indexes stay open.
_KEPT_OPEN = 4


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
        self.n_left, per_token = 0.0, 1.0
        for text in self._new:
            self._extracted.append(text)
            if self._indexer.is_read(text):
                continue
            if not self.tokens_per_s:
                sample = self._texts.load(text).text
                self.tokens_per_s = self.speed.tokens_per_s(sample)
                per_token = characters_per_token(self._indexer.llama, sample)
            unfinished = unfinished_index(self._indexer, text)
            self.n_left += text.length / per_token - (n_tokens_read(unfinished) if unfinished else 0)
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
                text = SourceText(part["sha256"], part["name"], Path(part["name"]), document.file)
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

    def read_on(self, likeliest: Sequence[SourceText], missing: Sequence[SourceText]) -> None:
        """Have the missing indexes made in the background, the likeliest documents' first."""
        if self._job is None:
            return
        queue, waiting = ReadingQueue(), []
        failed = {document.path: document.problem for document in queue.documents() if document.problem}
        for document in dict.fromkeys(chain((each for each in likeliest if each in missing), missing)):
            file, version = document.file, document.version
            if file is None or version is None:
                continue
            if (problem := failed.get(version.path)) is None:
                waiting += [document.path] if file.extraction.password is None else []
            elif document not in self._reported:
                self._progress.notice(f"{document.name} could not be read in the background: {problem}")
                self._reported.add(document)
        queue.add(waiting, self._indexer.library.folder, self._job.as_json())
        self.is_queued = bool(waiting)
        if waiting:
            start_reader()


#: File of a library with the tokens that the model reads in a second, by machine.
_FILE = "reading-speed.json"

#: Tokens of a first measurement, after as many that load the kernels; and of a reading that is kept in its place.
_FIRST, _LEAST = 64, 256

#: Change of the speed that is kept.
_CHANGE = 1.1


class ReadingSpeed:
    """How fast a model reads documents on this machine."""

    def __init__(self, llama: Llama, library: Library) -> None:
        self._llama, self._path = llama, library.folder / _FILE
        shape = f"{llama.context_params.n_threads} threads, {llama.context.kv_type}"
        self._key = f"{cpu_name()}, {shape}, {llama.context.device.name}"

    def tokens_per_s(self, text: str) -> float:
        """Return the tokens that the model reads in a second. The first time, it reads the beginning of a text."""
        kept = self._kept().get(self._key)
        if isinstance(kept, int | float) and kept > 0:
            return float(kept)
        llama = self._llama
        n_tokens = min(2 * _FIRST, llama.n_ctx() // 2)
        tokens = list(islice(cycle(llama.prompt().document(text[: 16 * _FIRST])), n_tokens))
        half = n_tokens // 2
        with llama.attending(DENSE_ATTENTION):
            llama.prefill(tokens[:half])
            began = working_time()
            llama.prefill(tokens[half:])
            speed = len(tokens[half:]) / (working_time() - began)
        self._keep(speed)
        return speed

    def note(self, n_tokens: int, seconds: float) -> None:
        """Keep what a reading took, if it was long enough to tell."""
        speed, before = n_tokens / seconds, self._kept().get(self._key, 0.0)
        if n_tokens >= _LEAST and not before / _CHANGE < speed < before * _CHANGE:
            self._keep(speed)

    def _kept(self) -> dict[str, float]:
        with suppress(OctavoError, OSError):
            return read_json(self._path)
        return {}

    def _keep(self, speed: float) -> None:
        with suppress(OctavoError, OSError):  # it is measured again
            write_json(self._path, {**self._kept(), self._key: round(speed, 1)})
