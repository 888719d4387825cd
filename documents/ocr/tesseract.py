"""Recognise the text of pictures with tesseract, several at a time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from ...errors import OctavoError
from ...system.usable_cpus import default_threads

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
    """Yield a PDF for each picture, whose letters lie where those of the picture do, without the picture.

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
