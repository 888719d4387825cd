"""Extract the texts of files, and keep those that are too long for the model to prefill at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..documents.document import Document
from ..documents.ocr.recognised_pages import recognised_pages
from ..errors import OctavoError, failure
from ..progress import Progress
from ..runtime.store.library_snapshot import LibrarySnapshot
from ..runtime.store.model_library import Library
from .source_text import SourceFile, SourceText, identify, report_notices
from .text_store import TEXTS, TextStore, open_texts

#: Texts that are added at once, from which on the store is compacted.
_MANY = 100

#: Files to extract from which on processes share them.
_SHARED = 8


@dataclass
class FileTexts:
    """The texts of files, from a library's store where they are kept.

    Parameters
    ----------
    progress : Progress
        Receives notices, and the progress of recognising pages, unless several processes extract.
    n_jobs : int
        Files whose texts are extracted at once, each by a process of its own.

    Attributes
    ----------
    problems : list of str
        Why texts of files could not be extracted.
    """

    library: Library
    progress: Progress
    n_jobs: int = 1
    problems: list[str] = field(default_factory=list, init=False)
    _checked: dict[SourceFile, SourceText] = field(default_factory=dict, init=False)
    _store: TextStore | None = field(default=None, init=False)

    def check(self, file: SourceFile, snapshot: LibrarySnapshot) -> None:
        """Extract the text of a file, unless it is indexed or kept. Raise OctavoError if that fails."""
        if (version := file.version) is not None and snapshot.text_of(version) is not None:
            return
        texts = list(self.of([file]))
        if self.problems:
            raise OctavoError(self.problems[0])
        self._checked[file] = texts[0]

    def identify(self, file: SourceFile, snapshot: LibrarySnapshot) -> SourceText:
        """Return the text of a file by its hash. Raise OctavoError if it cannot be extracted."""
        return self._checked.pop(file, None) or identify(file, snapshot, self.progress)

    @property
    def store(self) -> TextStore:
        """Return the store, which is made if it is missing."""
        if self._store is None:
            self.library.make_folder()
            self._store = TextStore(self.library.folder / TEXTS)
        return self._store

    def find(self, file: SourceFile) -> SourceText | None:
        """Return the text of a file, if it is kept and the file has not changed since."""
        if self._store is None and not (self.library.folder / TEXTS).exists():
            return None
        kept = self.store.find(version) if (version := file.version) else None
        if kept is None:
            return None
        return replace(kept, name=file.name, path=Path(file.path), file=file)

    def of(self, files: Iterable[SourceFile]) -> Iterator[SourceText]:
        """Yield the texts of files, those that are kept first. Leave out the files whose text cannot be extracted."""
        missing = []
        for file in files:
            if (text := self._checked.pop(file, None)) is not None:
                yield text
            elif (text := self.find(file)) is not None:
                report_notices(text.notices, self.progress)
                yield text
            else:
                missing.append(file)
        for file, document in zip(missing, self._extract(missing), strict=True):
            if isinstance(document, OctavoError):
                self.problems.append(str(document))
                continue
            report_notices(document.notices_when_kept, self.progress)
            yield SourceText.of(document, file)

    def _extract(self, files: Sequence[SourceFile]) -> Iterator[Document | OctavoError]:
        """Yield the documents of files in their order, or why one cannot be extracted."""
        if self.n_jobs == 1 or len(files) < _SHARED:
            yield from (_extract(file, self.progress) for file in files)
            return
        from joblib import Parallel, delayed

        yield from Parallel(self.n_jobs, return_as="generator")(delayed(_extract)(file) for file in files)

    def load(self, text: SourceText) -> Document:
        """Return the document of a text, which was extracted just now or is kept."""
        return text.document or self.store.document(text.number)

    def keep(self, texts: Iterable[SourceText]) -> list[SourceText]:
        """Keep the texts that are not in the store; return all as they are kept, each once."""
        made: dict[int, SourceText] = {}
        n_added = 0
        for text in texts:
            if not text.number and text.document is not None:
                number, n_added = self.store.add(text.document).number, n_added + 1
                text = replace(text.without_document(), number=number)
            made.setdefault(text.number, text)
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


def _extract(file: SourceFile, progress: Progress | None = None) -> Document | OctavoError:
    """Extract the text of a file, or return why that fails."""
    try:
        return file.extract(progress)
    except Exception as problem:  # of any kind: others can be read
        return OctavoError(failure(file.name, problem))
