"""Answer at once from what is likely, and better as more is read.

While documents are not read, words find the text of an answer: passages of them; behind the part that is read, if there
is one; or the likeliest document whole, or the part of it with the likeliest passage, where that has an index. Once all
are read, answers come from their indexes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ...library.background.background_reader import start_reader
from ...library.background.reading_queue import ReadingQueue
from ...library.file_texts import FileTexts
from ...library.open_index import Indexer
from ...library.reading_speed import ReadingSpeed, characters_per_token
from ...library.source_text import SourceFile, SourceText, identify
from ...library.text_store import Piece, TextStore
from ...progress import ProgressOfMany, Silent, before_many
from ...settings import ReadSettings
from ..search.ranking import Candidate
from ..sources.retrieval_heads import source_heads
from .answer_context import FoundText, IndexFinder, Rest, WholeText, reads_whole
from .document_set import DocumentSet, check_problems, open_document_set
from .partial_index import ReadPart, UnfinishedIndex
from .passages import PASSAGE_TOKENS, PassageFinder

#: Growth of the part that is read from which on it is taken anew: to attach it takes seconds.
_GROWTH = 1.5

#: Share of the seconds to a first answer in which passages are read.
_FOR_PASSAGES = 0.7


class GrowingFinder:
    """Finds the text of an answer among documents. Some of them are not read yet.

    Parameters
    ----------
    indexer : Indexer
        Finds their indexes.
    store : TextStore
        Their texts.
    passages : PassageFinder
        Finds passages of all documents.
    reads : str
        What is read for an answer, one of READS (settings.py).
    job : dict, optional
        How to read the documents in the background: the fields of a `Job`. None leaves them unread.
    """

    def __init__(
        self,
        indexer: Indexer,
        store: TextStore,
        passages: PassageFinder,
        reads: str,
        job: dict[str, Any] | None,
        progress: ProgressOfMany,
    ) -> None:
        self._indexer, self._store, self._passages = indexer, store, passages
        self._reads, self._job, self._progress = reads, job, progress
        self._whole: IndexFinder | None = None
        self._read: dict[Path, IndexFinder] = {}
        self._part: tuple[SourceText, ReadPart] | None = None
        self._told: set[str] = set()
        self._is_queued = False

    @property
    def documents(self) -> Sequence[Any]:
        """Return all documents."""
        return self._passages.documents if self._whole is None else self._whole.documents

    @property
    def only(self) -> WholeText | None:
        """Return the only document, once it is read."""
        return None if self._whole is None else self._whole.only

    @property
    def rest(self) -> Rest:
        """Return what becomes of the text that is not read yet."""
        if self._whole is not None:
            return "indexed"
        return "being read" if self._is_queued else "unread"

    def find(self, question: str, current: FoundText | None, before: str = "") -> tuple[FoundText, list[Candidate]]:
        """Find the best text that there is now. See `Finder.find`."""
        if self._whole is None:
            self._indexer.snapshot.refresh()
            unread = [document for document in self._passages.documents if not self._indexer.is_read(document)]
            if unread:
                return self._find(question, current, before, unread)
            self._whole = self._move_over()
        return (self.only, []) if self.only is not None else self._whole.find(question, current, before)

    def followed_by(self, tokens_hash: str) -> FoundText | None:
        """Return the text with these tokens, once all documents are read."""
        return None if self._whole is None else self._whole.followed_by(tokens_hash)

    def _move_over(self) -> IndexFinder:
        """Open the indexes of all documents, which are read now."""
        documents = self._passages.documents
        what = f"{documents[0].name} is" if len(documents) == 1 else f"All {len(documents):,} documents are"
        self._progress.notice(f"{what} read now: answers come from the whole text.")
        indexer, several = self._indexer, len(documents) > 1
        heads = source_heads(indexer.llama, indexer.library, indexer.notice) if several else []
        return IndexFinder(indexer.llama, open_document_set(indexer, documents, heads, self._progress), self._reads)

    def _find(
        self, question: str, current: FoundText | None, before: str, unread: Sequence[SourceText]
    ) -> tuple[FoundText, list[Candidate]]:
        """Find the text for a question while some documents are not read."""
        candidates, found = self._passages.search(question, before)
        self._read_on([candidate.document for candidate in candidates], unread)
        best = candidates[0].document if candidates else unread[0]
        whole = self._whole_of(best, found[0]) if found and reads_whole(self._reads, question) else None
        if whole is not None:
            return whole, candidates
        part = self._part_of(best)
        if part is not None and not candidates:
            candidates = [Candidate(best, 0.0, 0.0)]
        choice = self._passages.choose(candidates, found, part)
        return self._passages.passages(choice, current), choice.candidates

    def _whole_of(self, document: SourceText, piece: Piece) -> WholeText | None:
        """Return a document, or the part of it with a piece, from its index; None if that is not read."""
        indexer, text = self._indexer, document
        for part in indexer.parts(document.version):
            start, stop = part["part"]
            if start <= piece.start < stop:
                text = SourceText(part["sha256"], part["name"], Path(part["name"]), document.file)
        folder = indexer.find(text) if indexer.snapshot.indexes_of(text.sha256) else None
        if folder is None:
            return None

        def heal(damaged: SourceText) -> None:
            for part in indexer.fit(document.extracted()[0]):
                if part.sha256 == damaged.sha256:  # the others may not be read yet
                    indexer.index(part, Silent())

        if folder not in self._read:
            document_set = DocumentSet(indexer.llama, indexer.library, {text: folder}, [], heal)
            self._read[folder] = IndexFinder(indexer.llama, document_set)
        return self._read[folder].only

    def _part_of(self, document: SourceText) -> ReadPart | None:
        """Return the part of a document that is read so far; None if there is none, or if it cannot be used."""
        unfinished = UnfinishedIndex.of(self._indexer, document)
        if unfinished is None:
            return None
        before = self._part[1] if self._part is not None and self._part[0] == document else None
        if before is None or unfinished.n_tokens > _GROWTH * len(before.tokens):
            text = self._store.document(document.number).text
            part = unfinished.read(text, self._indexer.llama.prompt().document(text))
            self._part = None if part is None else (document, part)
        return None if self._part is None else self._part[1]

    def _read_on(self, likeliest: Sequence[SourceText], unread: Sequence[SourceText]) -> None:
        """Have the documents read in the background, the likeliest first."""
        if self._job is None:
            return
        queue, library = ReadingQueue(), self._indexer.library.folder
        failed = {document.path: document for document in queue.documents() if document.problem}
        waiting = []
        for document in dict.fromkeys(chain((each for each in likeliest if each in unread), unread)):
            file, version = document.file, document.version
            if version is not None and (problem := failed.get(version.path)) is not None:
                if document.name not in self._told:
                    self._progress.notice(f"{document.name} could not be read in the background: {problem.problem}")
                    self._told.add(document.name)
            elif version is not None and file is not None and file.extraction.password is None:
                waiting.append(document.path)
        queue.add(waiting, library, self._job)
        self._is_queued = bool(waiting)
        if waiting:
            start_reader()


def open_growing(
    indexer: Indexer,
    texts: FileTexts,
    files: Sequence[SourceFile],
    reading: ReadSettings,
    job: dict[str, Any] | None,
    progress: ProgressOfMany,
) -> GrowingFinder | list[SourceText]:
    """Find out whether documents can be read in time; if not, return the finder of what there is.

    Parameters
    ----------
    texts : FileTexts
        Reads their texts.
    reading : ReadSettings
        What is read for an answer, and the seconds within which the first one should begin.
    job : dict or None
        See `GrowingFinder`.

    Returns
    -------
    GrowingFinder or list of SourceText
        The finder; or the documents, if they can be read in time or are read.

    Raises
    ------
    OctavoError
        No document can be read; of a single one, the reason.
    """
    llama, first_answer = indexer.llama, reading.first_answer or 0.0
    read, order = {file for file in files if indexer.has(file)}, {file: i for i, file in enumerate(files)}
    speed = ReadingSpeed(llama, indexer.library)
    found: list[SourceText] = []
    n_left, most, per_s, per_token = 0.0, 0.0, 0.0, 1.0
    new = texts.of([file for file in files if file not in read])
    for text in new:
        found.append(text)
        if indexer.is_read(text):
            continue
        if not per_s:
            sample = texts.load(text).text
            per_s, per_token = speed.tokens_per_s(sample), characters_per_token(llama, sample)
            most = first_answer * per_s
        unfinished = UnfinishedIndex.of(indexer, text)
        n_left += text.length / per_token - (unfinished.n_tokens if unfinished else 0)
        if n_left > most:
            break
    else:
        check_problems([*read, *found], texts.problems, progress.notice)
        identified = {file: identify(file, indexer.snapshot, before_many(progress)) for file in read}
        identified |= {text.file: text for text in found if text.file}
        return [identified[file] for file in files if file in identified]
    kept = texts.keep(chain(found, new, texts.of(read)))
    check_problems(kept, texts.problems, progress.notice)
    documents = sorted(kept, key=lambda text: order[text.file] if text.file else 0)
    n_passages = min(PASSAGE_TOKENS, int(first_answer * _FOR_PASSAGES * per_s))
    finder = PassageFinder(llama, texts.store, documents, n_passages, speed.note)
    return GrowingFinder(indexer, texts.store, finder, reading.read, job, progress)
