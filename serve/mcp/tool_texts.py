"""List documents, find passages of them by words, and read parts of them, without a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...documents.document import Document, marked_text
from ...errors import OctavoError
from ...library.file_texts import FileTexts
from ...library.source_text import SourceFile, SourceText
from ...runtime.store.library_snapshot import LibrarySnapshot
from ...runtime.store.model_library import Library
from ...settings import Extraction
from .call_progress import CallProgress
from .tool_results import DocumentList, FoundPassage, FoundPassages, ListedDocument

#: Most characters that a call reads, documents that it lists, and passages that it finds: programs refuse results that
#: are much longer.
MOST_CHARACTERS, MOST_LISTED, MOST_PASSAGES = 20_000, 200, 25


class ToolTexts:
    """The texts of documents, which a library keeps.

    Parameters
    ----------
    library : Library
        That of the model.
    extraction : Extraction
        How texts are taken from files.
    """

    def __init__(self, library: Library, extraction: Extraction) -> None:
        self._library, self._extraction = library, extraction

    def describe(self, documents: dict[str, Path], start: int, progress: CallProgress) -> DocumentList:
        """Describe documents from a number on, as far as that is known without reading them."""
        if not 0 <= start <= len(documents):
            raise OctavoError(f"There are {len(documents):,} documents: none has the number {start:,}.")
        snapshot, texts, listed = LibrarySnapshot(self._library), FileTexts(self._library, progress), []
        stop = min(start + MOST_LISTED, len(documents))
        for name, path in list(documents.items())[start:stop]:
            progress.check()
            try:
                n_bytes = path.stat().st_size
            except OSError:  # it was removed just now
                continue
            file = SourceFile(path, self._extraction)
            version = file.version
            indexed = snapshot.text_of(version) if version else None
            kept = texts.find(file)
            pages = n_pages(texts.load(kept)) if kept else 0
            listed.append(
                ListedDocument(
                    name=name,
                    bytes=n_bytes,
                    characters=kept.length if kept else None,
                    pages=pages or None,
                    is_read=indexed is not None,
                )
            )
        if stop < len(documents):
            progress.notice(f"These are {stop - start} of {len(documents):,} documents: continue with start={stop}.")
        return DocumentList(documents=listed, notices=progress.notices)

    def find(self, words: str, documents: dict[str, Path], most: int, progress: CallProgress) -> FoundPassages:
        """Find the passages that share most words with a question."""
        if not words.strip():
            raise OctavoError("The question is empty: give words to look for.")
        if not 1 <= most <= MOST_PASSAGES:
            raise OctavoError(f"1 to {MOST_PASSAGES} passages are found: not {most}.")
        texts, names = FileTexts(self._library, progress), {str(path): name for name, path in documents.items()}
        kept = {text.number: text for text in self._kept(texts, documents.values(), progress)}
        passages = []
        for piece in texts.store.search(words, list(kept))[:most]:
            document = texts.store.document(piece.text)
            place, head = document.place(piece.start), document.table_heads.head(piece.start)
            passages.append(
                FoundPassage(
                    document=names[str(kept[piece.text].path)],
                    page=place.page if place else None,
                    heading=place.heading if place else None,
                    start=piece.start,
                    stop=piece.stop,
                    text=f"{head}{marked_text(document, piece.start, piece.stop).strip()}",
                )
            )
        return FoundPassages(passages=passages, notices=progress.notices)

    def read(
        self, name: str, path: Path, pages: str | None, start: int | None, stop: int | None, progress: CallProgress
    ) -> str:
        """Return pages or characters of a document, as `octavo read` prints them, and how to read what follows.

        Raises
        ------
        OctavoError
            The document cannot be read, or has no such pages or characters.
        """
        if pages is not None and (start, stop) != (None, None):
            raise OctavoError("Give pages, or start and stop in characters: not both.")
        texts = FileTexts(self._library, progress)
        [text] = self._kept(texts, [path], progress)
        document = texts.load(text)
        length = len(document.text)
        first, last = (start or 0, length if stop is None else min(stop, length)) if pages is None else (0, 0)
        if pages is not None:
            first, last = bounds_of_pages(document, name, pages)
        elif not 0 <= first < max(last, 1):
            raise OctavoError(f"{name} has {length:,} characters: it cannot be read from {first:,} to {last:,}.")
        end = min(last, first + MOST_CHARACTERS)
        left = f" of the {last - first:,} that you want: continue with start={end}, stop={last}" if end < last else ""
        notices = "".join(f"--- {sentence}\n" for sentence in progress.notices)
        told = f"--- {name}, characters {first} to {end} of {length}{left}\n"
        return f"{marked_text(document, first, end)}{notices}{told}"

    def _kept(self, texts: FileTexts, paths: Iterable[Path], progress: CallProgress) -> list[SourceText]:
        """Return the texts of files, which are kept. Raise OctavoError if none can be read."""
        files = [SourceFile(path, self._extraction) for path in paths]
        progress.start("Taking texts from files", len(files), "files")

        def counted(found: Iterable[SourceText]) -> Iterator[SourceText]:
            for text in found:
                progress.advance(1)
                yield text

        kept = texts.keep(counted(texts.of(files)))
        if not kept:
            raise OctavoError("; ".join(texts.problems) or "There are no documents.")
        for problem in texts.problems:
            progress.notice(f"Left out: {problem}")
        return kept


def n_pages(document: Document) -> int:
    """Return the number of pages of a document; 0 if it has none."""
    return len({place.page for place in document.places if place.page is not None})


def bounds_of_pages(document: Document, name: str, pages: str) -> tuple[int, int]:
    """Return the characters of pages.

    Parameters
    ----------
    pages : str
        The label of a page, or those of the first and the last one: "iv", "3-5".

    Raises
    ------
    OctavoError
        The document does not have these pages.
    """
    labels = [place.page for place in document.places]
    known = list(dict.fromkeys(label for label in labels if label is not None))
    if not known:
        raise OctavoError(f"{name} has no pages: give start and stop, in characters.")
    both = re.fullmatch(r"(.+?)\s*[-\u2013]\s*(.+)", pages.strip())
    first, last = both.groups() if both and pages.strip() not in known else (pages.strip(),) * 2
    if first not in known or last not in known or known.index(last) < known.index(first):
        raise OctavoError(f"{name} has the pages {known[0]} to {known[-1]}: not {pages}.")
    after = len(labels) - labels[::-1].index(last)
    ends = [place.offset for place in document.places[after:]]
    return document.places[labels.index(first)].offset, ends[0] if ends else len(document.text)
