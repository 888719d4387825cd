"""Recognise the text of a file's pages that are only pictures, each page once."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from ...progress import Progress, Silent
from ...settings import DEFAULT_EXTRACTION, Extraction
from .recognised_pages import RecognisedFile, checksum_of, recognised_pages
from .tesseract import INSTALL, chosen_languages, is_installed, recognise

#: Dots of an inch in pictures of pages, as tesseract likes them; and most of a picture, for posters.
_DOTS, _MOST_DOTS = 300, 60_000_000

#: Points of an inch.
_POINTS = 72


class Recognition:
    """The recognition of one file's pages.

    Parameters
    ----------
    content : bytes
        Of the file.
    name : str
        Of the file, for messages.
    """

    def __init__(
        self,
        content: bytes,
        name: str,
        extraction: Extraction = DEFAULT_EXTRACTION,
        progress: Progress | None = None,
    ) -> None:
        self._content, self._name, self.extraction, self._progress = content, name, extraction, progress or Silent()
        self._pages: dict[int, bytes] = {}
        self._is_whole = True

    @cached_property
    def content_hash(self) -> str:
        """Return the SHA-256 of the file's bytes."""
        return hashlib.sha256(self._content).hexdigest()

    def pages(self, numbers: Sequence[int], picture: Callable[[int], bytes]) -> dict[int, bytes]:
        """Return pages as PDFs with their text alone: those that are kept, and with OCR the others.

        Parameters
        ----------
        numbers : sequence of int
            The pages without text, from 0.
        picture : callable
            Returns the picture of a page as a file.

        Raises
        ------
        OctavoError
            tesseract is missing or fails.
        """
        ocr, languages = self.extraction.ocr, self.extraction.ocr_languages
        store = recognised_pages(make=ocr)
        self._is_whole = not numbers
        if store is None or not numbers:
            return {}
        kept = store.of(self.content_hash, languages if ocr else None)
        pages = {number: kept[number] for number in numbers if number in kept}
        left = [number for number in numbers if number not in pages]
        if left and ocr:
            languages = chosen_languages(languages)
            self._progress.start(f"Recognising {self._name}", len(numbers), "pages", len(pages))
            for number, pdf in recognise(((number, picture(number)) for number in left), languages):
                store.add(self.content_hash, number, languages, pdf)
                pages[number] = pdf
                self._progress.advance(1)
        self._pages, self._is_whole = pages, len(pages) == len(numbers)
        return pages

    def note(self, source: str, status: os.stat_result) -> None:
        """Note with which recognised pages a file was read, for `file_version`; `status` belongs to its bytes."""
        if self._pages or self.extraction.ocr:
            store = recognised_pages(make=True)
            assert store is not None
            file = RecognisedFile(self.content_hash, self._is_whole, checksum_of(self._pages))
            store.note(source, status.st_mtime_ns, status.st_size, file)

    @property
    def notice(self) -> str:
        """Return a sentence about the recognised pages; "" without any."""
        if not self._pages:
            return ""
        n_pages = "a page" if len(self._pages) == 1 else f"{len(self._pages)} pages"
        return f"tesseract recognised the text of {n_pages} of {self._name}, and may have erred."


def remedy() -> str:
    """Return what helps with pages that are only pictures, for messages."""
    return f"{'' if is_installed() else f'{INSTALL}, then '}--ocr recognises their text"


def picture_of(page: Any) -> bytes:
    """Return the picture of a PDF's page as a TIFF file."""
    width, height = page.get_size()
    dots = min(_DOTS, (_MOST_DOTS * _POINTS**2 / max(width * height, 1)) ** 0.5)
    file = io.BytesIO()
    page.render(scale=dots / _POINTS, grayscale=True).to_pil().save(file, "TIFF", dpi=(dots, dots))
    return file.getvalue()
