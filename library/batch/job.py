"""Read documents with a model, in this process or in another one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...documents.document import Document
from ...errors import OctavoError
from ...progress import Progress
from ...runtime.load_model import load
from ...runtime.store.library_snapshot import LibrarySnapshot
from ...settings import DEFAULT_EXTRACTION, Extraction
from ...workers.work import CannotLoad, Message, Sender, Work
from ..document_work import GuardedFile, document_of_fields
from ..embed_texts import embed_texts
from ..file_texts import FileTexts
from ..meaning import installed_embedder
from ..open_index import Indexer
from ..reading_job import ReadingJob
from ..source_text import SourceFile, identify


class Reader:
    """Read documents with one model, which is loaded for the first document that needs it."""

    def __init__(self, job: ReadingJob, notice: Callable[[str], None]) -> None:
        self.job, self.notice = job, notice
        self.library = job.open_library(notice)
        self._snapshot = LibrarySnapshot(self.library)
        self._indexer: Indexer | None = None

    def _loaded(self) -> Indexer:
        """Load the model, if that was not done before, and return its indexer."""
        if self._indexer is None:
            job = self.job
            try:
                llama = load(job.settings, self.library, job.attention, self.notice)
            except OctavoError as problem:
                raise CannotLoad(str(problem)) from problem
            self._indexer = Indexer(llama, self._snapshot, job.reading, self.notice, job.known)
        return self._indexer

    def index(self, file: SourceFile | Document, progress: Progress) -> list[Path]:
        """Make the index of a document, or those of its parts, unless they exist or are known.

        Parameters
        ----------
        file : SourceFile or Document
            The document, or its file.

        Returns
        -------
        list of Path
            The folder of the index, or those of the parts in order if the document exceeds the context.

        Raises
        ------
        CannotLoad
            The model cannot be used.
        OctavoError
            The document cannot be read or is too long, or disk or memory do not suffice.
        """
        document = identify(file, self._snapshot, progress)  # refuse it before loading the model
        indexer = self._loaded()
        parts = indexer.with_progress(indexer.fit(document), progress)
        return [indexer.index(part, of_part) for part, of_part in parts]

    def embed(self, file: SourceFile, progress: Progress) -> None:
        """Keep the text of a file, and compute its vectors, if the embedder is installed; print why that fails."""
        if installed_embedder() is None:
            return
        try:
            texts = FileTexts(self.library, progress)
            embed_texts(texts.store, texts.keep(texts.of([file])), progress)
        except OctavoError as problem:  # words find passages, too
            self.notice(str(problem))

    def close(self) -> None:
        """Close the model, if it was loaded."""
        if self._indexer is not None:
            self._indexer.llama.close()


class ReadDocuments(Work):
    """Read documents; the settings are a job's fields, and a message is that of a document (`document_of`)."""

    def __init__(self, settings: dict[str, Any], sender: Sender) -> None:
        super().__init__(settings, sender)
        job = ReadingJob.of_json(settings)
        os.nice(job.nice)
        self._reader = Reader(job, sender.notice)

    def do(self, message: Message) -> Message:
        """Return the folders of a document's index or of its parts', as `folders` (see `Work.do`)."""
        document = document_of(message, self._reader.job.reading.extraction)
        if isinstance(document, GuardedFile):  # it is read in the background: questions come before its index
            self._reader.embed(document, self.sender)
        return {"folders": [str(folder) for folder in self._reader.index(document, self.sender)]}

    def close(self) -> None:
        """Close the model."""
        self._reader.close()


def as_message(file: SourceFile) -> Message:
    """Return the message from which a process on this machine reads a document: its path, if it can be read again.

    Raise OctavoError if the file cannot be read, neither again nor now.
    """
    if file.is_file:
        return {"path": os.path.abspath(file.path)}
    return as_text_message(file.extract())


def as_text_message(document: Document) -> Message:
    """Return the message from which a process on any machine reads a document: its text."""
    return {"document": asdict(document)}


def document_of(message: Message, extraction: Extraction = DEFAULT_EXTRACTION) -> SourceFile | Document:
    """Return the document of a message; `extraction` says how to take its text from a file.

    A `guarded` file is read by a process of its own: others wait for their turn.
    """
    if "path" in message:
        return (GuardedFile if message.get("guarded") else SourceFile)(message["path"], extraction)
    return document_of_fields(message["document"])
