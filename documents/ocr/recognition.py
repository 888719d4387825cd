"""Recognise the text of a file's pages that are only pictures, each page once, by tesseract."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

from ...errors import OctavoError
from ...progress import Progress, Silent
from ...settings import DEFAULT_EXTRACTION, Extraction
from ...system.processors import default_threads
from .recognised_pages import RecognisedFile, checksum_of, recognised_pages

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


#: How to get it, for messages.
INSTALL = "install tesseract (`apt install tesseract-ocr`, `brew install tesseract`)"

#: More languages than this make recognition slow and worse; which one is taken then.
_MOST_LANGUAGES, _ENGLISH = 4, "eng"

#: Seconds after which a page is given up.
_LONGEST = 600


def is_installed() -> bool:
    """Return whether tesseract can be called."""
    return shutil.which("tesseract") is not None


def chosen_languages(languages: str | None) -> str:
    """Return the languages to recognise: those that are named, or by default those that are installed.

    Raises
    ------
    OctavoError
        tesseract is not installed, or has not these languages.
    """
    if not is_installed():
        raise OctavoError(f"`ocr` needs a program that is missing: {INSTALL}.")
    listed = subprocess.run(["tesseract", "--list-langs"], capture_output=True, text=True, check=False).stdout
    names = [name for name in listed.splitlines()[1:] if name not in ("osd", "equ")]
    if languages is not None:
        if missing := [name for name in languages.split("+") if name not in names]:
            raise OctavoError(f"tesseract has no language '{missing[0]}' here: it has {', '.join(names) or 'none'}.")
        return languages
    installed = [name for name in names if re.fullmatch("[a-z]{3}(_[a-z]+)*", name)]  # the others are scripts
    if not installed:
        raise OctavoError("tesseract has no languages: install one (`apt install tesseract-ocr-eng`).")
    if len(installed) > _MOST_LANGUAGES:
        return _ENGLISH if _ENGLISH in installed else installed[0]
    return "+".join(sorted(installed, key=lambda name: name != _ENGLISH))


def recognise(pictures: Iterable[tuple[int, bytes]], languages: str) -> Iterator[tuple[int, bytes]]:
    """Yield a PDF for each picture, whose letters lie where the picture has them, without the picture.

    Parameters
    ----------
    pictures : iterable of (int, bytes)
        Numbers, and files of pictures in any format that tesseract reads. A file may have several pages.
    languages : str
        As tesseract names them.

    Raises
    ------
    OctavoError
        tesseract fails.
    """
    n_at_once = default_threads()
    pool = ThreadPoolExecutor(n_at_once)
    waiting: deque[tuple[int, Future[bytes]]] = deque()
    try:
        for number, picture in pictures:
            waiting.append((number, pool.submit(_pdf_of, picture, languages)))
            if len(waiting) > n_at_once:
                first, made = waiting.popleft()
                yield first, made.result()
        for first, made in waiting:
            yield first, made.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _pdf_of(picture: bytes, languages: str) -> bytes:
    """Recognise a picture. One thread each: several pictures are read at once."""
    command = ["tesseract", "stdin", "stdout", "-l", languages, "--psm", "1", "-c", "textonly_pdf=1", "pdf"]
    one_thread = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    try:
        done = subprocess.run(
            command, input=picture, capture_output=True, check=False, timeout=_LONGEST, env=one_thread
        )
    except subprocess.TimeoutExpired as problem:
        raise OctavoError(f"tesseract needed more than {_LONGEST // 60} minutes for one page.") from problem
    if done.returncode or not done.stdout.startswith(b"%PDF"):
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise OctavoError(f"tesseract failed: {lines[-1] if lines else f'it ended with {done.returncode}'}")
    return done.stdout


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
