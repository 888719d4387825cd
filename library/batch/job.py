"""Describe how to read documents, in a form for other processes, and read them with a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ...documents.document import Document, Place
from ...errors import OctavoError
from ...progress import Progress
from ...runtime.llama import Llama
from ...runtime.load_model import Notice, load, locate_model
from ...runtime.methods.attention import Attention
from ...runtime.store.library_snapshot import LibrarySnapshot
from ...runtime.store.model_library import Library
from ...settings import DEFAULT_EXTRACTION, PREFILL_SPARSE, STATE_EVERY, Extraction, ModelSettings
from ...workers.work import CannotLoad, Message, Sender, Work
from ..document_file import DocumentFile, hash_document
from ..open_index import Indexer


@dataclass(frozen=True)
class Job:
    """How to read documents.

    Parameters
    ----------
    settings : ModelSettings
        The model, and how it runs.
    attention : Attention
        The attention of later questions.
    prefill : str
        How to read a document, one of PREFILLS (settings.py).
    state_every : int
        Tokens after each of which an index keeps the recurrent state of a hybrid model.
    library : str, optional
        Folder of the library, in place of that of the settings.
    known : tuple of str
        Names of indexes that exist elsewhere, and are not made.
    nice : int
        Niceness of the reading process.
    extraction : Extraction
        How to take texts from files.
    """

    settings: ModelSettings
    attention: Attention
    prefill: str = PREFILL_SPARSE
    state_every: int = STATE_EVERY
    library: str | None = None
    known: tuple[str, ...] = ()
    nice: int = 0
    extraction: Extraction = DEFAULT_EXTRACTION

    def as_json(self) -> dict[str, Any]:
        """Return the fields in JSON's types."""
        settings, attention = self.settings.as_json(), self.attention.as_json()
        return {**vars(self), "settings": settings, "attention": attention, "extraction": vars(self.extraction)}

    @classmethod
    def of_json(cls, fields: dict[str, Any]) -> Job:
        """Return the job with these fields."""
        settings, attention = ModelSettings(**fields["settings"]), Attention.parse(**fields["attention"])
        known, extraction = tuple(fields["known"]), Extraction(**fields.get("extraction", {}))
        values = {"settings": settings, "attention": attention, "known": known, "extraction": extraction}
        return cls(**{**fields, **values})

    def anywhere(self, library: Library) -> Job:
        """Return the job for a library with absolute paths, for processes in other folders."""
        plan, model = self.attention.plan_file, str(library.model_path.resolve())
        settings = replace(self.settings, model=model, index_dir=None)
        attention = replace(self.attention, plan_file=plan and os.path.abspath(plan))
        return replace(self, settings=settings, attention=attention, library=str(library.folder.resolve()))

    def open_library(self, notice: Notice) -> Library:
        """Return the library for the indexes."""
        _, library = locate_model(self.settings, notice)
        return replace(library, folder=Path(self.library)) if self.library else library


class Reader:
    """Read documents with one model, which is loaded for the first document that needs it."""

    def __init__(self, job: Job, notice: Callable[[str], None]) -> None:
        self.job, self.notice = job, notice
        self.library = job.open_library(notice)
        self._snapshot = LibrarySnapshot(self.library)

    @cached_property
    def llama(self) -> Llama:
        """Return the model."""
        job = self.job
        try:
            return load(job.settings, self.library, job.attention, self.notice)
        except OctavoError as problem:
            raise CannotLoad(str(problem)) from problem

    @cached_property
    def _indexer(self) -> Indexer:
        """Return the indexer."""
        job = self.job
        return Indexer(self.llama, self._snapshot, self.notice, job.prefill, job.known, job.state_every)

    def index(self, file: DocumentFile | Document, progress: Progress) -> list[Path]:
        """Make the index of a document, or those of its parts, unless they exist or are known.

        Parameters
        ----------
        file : DocumentFile or Document
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
        document = hash_document(file, self._snapshot, progress)  # refuse it before loading the model
        return [self._indexer.index(part, progress) for part in self._indexer.fit(document)]

    def close(self) -> None:
        """Close the model, if it was loaded."""
        if "llama" in vars(self):
            self.llama.close()


class ReadDocuments(Work):
    """Read documents; the settings are a job's fields, and a message is that of a document (`document_of`)."""

    def __init__(self, settings: dict[str, Any], sender: Sender) -> None:
        super().__init__(settings, sender)
        job = Job.of_json(settings)
        os.nice(job.nice)
        self._reader = Reader(job, sender.notice)

    def do(self, message: Message) -> Message:
        """Return the folders of a document's index or of its parts', as `folders` (see `Work.do`)."""
        document = document_of(message, self._reader.job.extraction)
        return {"folders": [str(folder) for folder in self._reader.index(document, self.sender)]}

    def close(self) -> None:
        """Close the model."""
        self._reader.close()


def as_message(file: DocumentFile) -> Message:
    """Return the message from which a process on this machine reads a document: its path, if it can be read again.

    Raise OctavoError if the file cannot be read, neither again nor now.
    """
    if file.is_file:
        return {"path": os.path.abspath(file.path)}
    return as_text_message(file.read())


def as_text_message(document: Document) -> Message:
    """Return the message from which a process on any machine reads a document: its text."""
    return {"document": asdict(document)}


def document_of(message: Message, extraction: Extraction = DEFAULT_EXTRACTION) -> DocumentFile | Document:
    """Return the document of a message; `extraction` says how to take its text from a file."""
    if "path" in message:
        return DocumentFile(message["path"], extraction)
    fields = dict(message["document"])
    places = tuple(Place(*place) for place in fields.pop("places"))
    return Document(places=places, notices=tuple(fields.pop("notices")), **fields)
