"""Open documents with a loaded model: whole, in parts, or from passages until they are read."""

from __future__ import annotations

from collections.abc import Sequence

from ..library.batch.job import ReadingJob
from ..library.file_texts import FileTexts
from ..library.open_index import Indexer
from ..library.source_text import SourceFile, SourceText, identify
from ..progress import Progress, ProgressOfMany, before_many, of_many
from ..runtime.llama import Llama
from ..runtime.store.library_snapshot import LibrarySnapshot
from ..runtime.store.model_library import Library
from ..settings import EXCERPTS, ReadSettings, Sampling
from .collection import Collection
from .context.answer_context import Finder, IndexFinder
from .context.context_chooser import GrowingFinder, open_growing
from .context.document_set import index_set, open_document_set
from .context.passages import open_unread
from .document_session import Document
from .sources.retrieval_heads import source_heads


class OneFile:
    """A document's file. It is read, and refused if it must be, before the model is loaded.

    Raises
    ------
    OctavoError
        The file cannot be read.
    """

    def __init__(
        self,
        library: Library,
        snapshot: LibrarySnapshot,
        file: SourceFile,
        reading: ReadSettings,
        progress: Progress | ProgressOfMany,
    ) -> None:
        self._snapshot, self._file, self._reading = snapshot, file, reading
        self._progress = of_many(progress, 1)
        before = before_many(self._progress)
        self._texts = FileTexts(library, before)
        self._hashed: SourceText | None = None
        if reading.first_answer is None:
            self._hashed = identify(file, snapshot, before)
        elif (version := file.version) is None or snapshot.text_hash(version) is None:
            self._texts.check(file)

    def open(self, llama: Llama, sampling: Sampling, system: str, sources: bool) -> Document | Collection:
        """Open the document with a loaded, empty model; make the missing indexes.

        Parameters
        ----------
        sources : bool
            Whether the session records the sources of answers.

        Returns
        -------
        Document or Collection
            The document; a collection of its parts if it is longer than the context, or of its passages.

        Raises
        ------
        OctavoError
            The document cannot be used, or disk or memory do not suffice.
        """
        reading, many, library = self._reading, self._progress, self._snapshot.library
        indexer = Indexer(llama, self._snapshot, reading, many.notice)
        hashed = self._hashed
        if reading.first_answer is not None:
            found = _growing(indexer, self._texts, [self._file], reading, many)
            if isinstance(found, GrowingFinder):
                heads = source_heads(llama, library, many.notice) if sources else None
                return Collection(llama, sampling, found, system, heads, library)
            [hashed] = found
        assert hashed is not None
        parts = indexer.fit(hashed)
        split = len(parts) > 1
        heads = source_heads(llama, library, many.notice) if sources or split else []
        recorded = heads if sources else None
        if split:
            finder = IndexFinder(llama, index_set(indexer, parts, heads, many), reading.read)
            return Collection(llama, sampling, finder, system, recorded, library)
        many.begin(1)
        of_document = many.document(hashed.name)
        described = indexer.attach(parts[0], of_document)
        of_document.end()
        return Document(llama, sampling, hashed.path, system, described, recorded, library)


def open_files(
    llama: Llama,
    snapshot: LibrarySnapshot,
    files: Sequence[SourceFile],
    reading: ReadSettings,
    progress: Progress | ProgressOfMany,
    sampling: Sampling,
    system: str,
    sources: bool,
) -> Collection:
    """Open documents with a loaded, empty model; make the missing indexes, if they are needed.

    Raises
    ------
    OctavoError
        No document can be used, or disk or memory do not suffice.
    """
    notice, library = progress.notice, snapshot.library
    indexer = Indexer(llama, snapshot, reading, notice)
    finder = finder_of(indexer, files, reading, of_many(progress, 1))
    heads = source_heads(llama, library, notice) if sources else None
    return Collection(llama, sampling, finder, system, heads, library)


def finder_of(
    indexer: Indexer,
    files: Sequence[SourceFile],
    reading: ReadSettings,
    progress: ProgressOfMany,
) -> Finder:
    """Return the finder of the texts of answers over several documents; make the missing indexes, if they are needed.

    Raises
    ------
    OctavoError
        No document can be used, or disk or memory do not suffice.
    """
    llama, library = indexer.llama, indexer.library
    documents: Sequence[SourceFile | SourceText] = files
    if reading.read == EXCERPTS and not all(map(indexer.has, files)):
        return open_unread(llama, library, files, reading.n_jobs, progress)
    if reading.read != EXCERPTS and reading.first_answer is not None:
        texts = FileTexts(library, before_many(progress), reading.n_jobs)
        found = _growing(indexer, texts, files, reading, progress)
        if isinstance(found, GrowingFinder):
            return found
        documents = found
    heads = source_heads(llama, library, progress.notice)
    if reading.read == EXCERPTS and llama.context.is_hybrid:
        progress.notice("This model keeps a recurrent state, so it reads excerpts as text, anew for each question.")
    return IndexFinder(llama, open_document_set(indexer, documents, heads, progress), reading.read)


def _growing(
    indexer: Indexer,
    texts: FileTexts,
    files: Sequence[SourceFile],
    reading: ReadSettings,
    progress: ProgressOfMany,
) -> GrowingFinder | list[SourceText]:
    """Open documents as `open_growing` does."""
    llama, job = indexer.llama, None
    if reading.background and llama.settings is not None:
        job = ReadingJob(llama.settings, llama.attention, reading).anywhere(indexer.library)
    return open_growing(indexer, texts, files, reading, None if job is None else job.as_json(), progress)
