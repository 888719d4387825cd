"""Read the texts of files, and keep those that are too long to be read by the model at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ..documents.document import Document
from ..documents.ocr.recognised_pages import recognised_pages
from ..errors import OctavoError
from ..progress import Progress
from ..runtime.store.model_library import Library
from .document_file import DocumentFile, HashedDocument
from .text_store import TEXTS, KeptText, TextStore, open_texts

#: Texts that are added at once, from which on the store is compacted.
_MANY = 100

#: Files to extract from which on processes share them.
_SHARED = 8


class FileText(NamedTuple):
    """The text of a file.

    Parameters
    ----------
    hashed : HashedDocument
        The document, with its text if it was read just now.
    kept : KeptText or None
        The text in the store; None if it is not there.
    """

    file: DocumentFile
    hashed: HashedDocument
    kept: KeptText | None

    @property
    def length(self) -> int:
        """Return the number of its characters."""
        if self.kept is not None:
            return self.kept.length
        assert self.hashed.document is not None
        return len(self.hashed.document.text)


class FileTexts:
    """The texts of files, from a library's store where they are kept.

    Parameters
    ----------
    progress : Progress
        Receives notices, and the progress of recognising pages, unless several processes read.
    n_jobs : int
        Files that are read at once, each by a process of its own.

    Attributes
    ----------
    problems : list of str
        Why files could not be read.
    """

    def __init__(self, library: Library, progress: Progress, n_jobs: int = 1) -> None:
        self._library, self._progress, self._n_jobs = library, progress, n_jobs
        self.problems: list[str] = []
        self._checked: dict[DocumentFile, FileText] = {}

    def check(self, file: DocumentFile) -> None:
        """Read a file, unless its text is kept. Raise OctavoError if that fails."""
        self._checked = {text.file: text for text in self.of([file])}
        if self.problems:
            raise OctavoError(self.problems[0])

    @cached_property
    def store(self) -> TextStore:
        """Return the store, which is made if it is missing."""
        self._library.make_folder()
        return TextStore(self._library.folder / TEXTS)

    def find(self, file: DocumentFile) -> KeptText | None:
        """Return the text of a file, if it is kept and the file has not changed since."""
        has_store = "store" in vars(self) or (self._library.folder / TEXTS).exists()
        return self.store.find(*version) if has_store and (version := file.version) else None

    def of(self, files: Iterable[DocumentFile]) -> Iterator[FileText]:
        """Yield the texts of files, those that are kept first, without the files that cannot be read."""
        missing = []
        for file in files:
            if file in self._checked:
                yield self._checked.pop(file)
                continue
            kept = self.find(file)
            if kept is None:
                missing.append(file)
            else:
                yield FileText(file, HashedDocument(kept.sha256, file), kept)
        for file, document in zip(missing, self._read(missing), strict=True):
            if isinstance(document, OctavoError):
                self.problems.append(str(document))
                continue
            for sentence in document.notices_when_kept:
                self._progress.notice(sentence)
            yield FileText(file, HashedDocument.of(document, file), None)

    def _read(self, files: Sequence[DocumentFile]) -> Iterator[Document | OctavoError]:
        """Yield the documents of files in their order, or why one cannot be read."""
        if self._n_jobs == 1 or len(files) < _SHARED:
            yield from (_read(file, self._progress) for file in files)
            return
        from joblib import Parallel, delayed

        yield from Parallel(self._n_jobs, return_as="generator")(delayed(_read)(file) for file in files)

    def text(self, text: FileText) -> str:
        """Return a text itself."""
        if text.hashed.document is not None:
            return text.hashed.document.text
        assert text.kept is not None
        return self.store.document(text.kept.number).text

    def keep(self, texts: Iterable[FileText]) -> list[FileText]:
        """Keep the texts that are not in the store; return all as they are kept, each once."""
        made: dict[int, FileText] = {}
        n_added = 0
        for text in texts:
            kept = text.kept
            if kept is None:
                assert text.hashed.document is not None
                kept, n_added = self.store.add(text.hashed.document), n_added + 1
            made.setdefault(kept.number, FileText(text.file, text.hashed.without_text(), kept))
        if n_added >= _MANY:
            self.store.compact()
        return list(made.values())


def kept_texts(folders: Iterable[Path]) -> set[str]:
    """Return the paths of the files whose texts libraries keep, or of which pages were recognised."""
    recognised = recognised_pages()
    sources = set(recognised.sources() if recognised is not None else ())
    for folder in folders:
        if (texts := open_texts(folder)) is not None:
            with texts:
                sources.update(texts.sources())
    return sources


def forget_texts(folders: Iterable[Path], chosen: Callable[[str], bool]) -> int:
    """Forget the texts that libraries keep of the files whose paths are chosen, and what was recognised of these files.

    Return how many there were.
    """
    n_forgotten = 0
    for folder in folders:
        if (texts := open_texts(folder)) is not None:
            with texts:
                n_forgotten += texts.forget(chosen)
    recognised = recognised_pages()
    return n_forgotten + (recognised.forget(chosen) if recognised is not None else 0)


def _read(file: DocumentFile, progress: Progress | None = None) -> Document | OctavoError:
    """Read a document, or return why that fails."""
    try:
        return file.read(progress)
    except OctavoError as problem:
        return problem
