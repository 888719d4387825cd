"""Extract old files of Word (DOC) and PowerPoint (PPT) by LibreOffice, if it is installed, and DOC by antiword."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from ...errors import OctavoError
from ..archive import Archive
from ..document import Document
from ..markdown import document_of
from .docx import extract_docx
from .slides import extract_slides

#: Seconds that a program may take.
_PATIENCE = 120


def extract_old_word(content: bytes, name: str) -> Document:
    """Extract an old Word file.

    Raises
    ------
    OctavoError
        Neither program is installed, or the one that is fails.
    """
    if (made := _by_office(content, name, "doc", "docx")) is not None:
        return extract_docx(made)
    if antiword := shutil.which("antiword"):
        with tempfile.NamedTemporaryFile(suffix=".doc") as file:
            file.write(content)
            file.flush()
            return document_of(_run([antiword, "-m", "UTF-8.txt", "-w", "0", file.name], name, "DOCX"))
    raise OctavoError(f"{name} is an old Word file: install antiword or LibreOffice, or save it as DOCX or PDF.")


def extract_old_slides(content: bytes, name: str) -> Document:
    """Extract an old PowerPoint file.

    Raises
    ------
    OctavoError
        LibreOffice is not installed, or fails.
    """
    if (made := _by_office(content, name, "ppt", "pptx")) is not None:
        return extract_slides(made)
    raise OctavoError(f"{name} is an old PowerPoint file: install LibreOffice, or save it as PPTX or PDF.")


def _by_office(content: bytes, name: str, old: str, new: str) -> Archive | None:
    """Return what LibreOffice makes of a file, in a new format; None where it is not installed."""
    office = shutil.which("soffice") or shutil.which("libreoffice")
    if office is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"document.{old}")
        path.write_bytes(content)
        profile = f"-env:UserInstallation={Path(folder, 'profile').as_uri()}"  # another may be open
        _run([office, profile, "--headless", "--convert-to", new, "--outdir", folder, str(path)], name, new.upper())
        if (made := path.with_suffix(f".{new}")).exists():
            return Archive(made.read_bytes(), name)
    raise OctavoError(f"{name} cannot be read by LibreOffice: save it as {new.upper()} or PDF.")


def _run(command: list[str], name: str, other: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as problem:
        program = Path(command[0]).name
        raise OctavoError(f"{name} cannot be read by {program}: save it as {other} or PDF.") from problem
    return done.stdout.decode(errors="replace")
