"""Read old Word files (DOC) by a program that is installed: antiword or LibreOffice."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from ..errors import OctavoError
from .archive import Archive
from .document import Document
from .docx import read_docx
from .markdown import document_of

#: Seconds that a program may take.
_PATIENCE = 120


def is_old_word(content: bytes) -> bool:
    """Return whether an OLE file is a Word document."""
    return "WordDocument".encode("utf-16-le") in content


def read_old_word(content: bytes, name: str) -> Document:
    """Read an old Word file.

    Raises
    ------
    OctavoError
        Neither program is installed, or the one that is fails.
    """
    antiword, office = shutil.which("antiword"), shutil.which("soffice") or shutil.which("libreoffice")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "document.doc")
        path.write_bytes(content)
        if office:
            profile = f"-env:UserInstallation={Path(folder, 'profile').as_uri()}"  # another may be open
            _run([office, profile, "--headless", "--convert-to", "docx", "--outdir", folder, str(path)], name)
            if (made := path.with_suffix(".docx")).exists():
                return read_docx(Archive(made.read_bytes(), name))
        elif antiword:
            return document_of(_run([antiword, "-m", "UTF-8.txt", "-w", "0", str(path)], name))
    if office:
        raise OctavoError(f"{name} cannot be read by LibreOffice: save it as DOCX or PDF.")
    raise OctavoError(f"{name} is an old Word file: install antiword or LibreOffice, or save it as DOCX or PDF.")


def _run(command: list[str], name: str) -> str:
    """Return what a program prints."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as problem:
        program = Path(command[0]).name
        raise OctavoError(f"{name} cannot be read by {program}: save it as DOCX or PDF.") from problem
    return done.stdout.decode(errors="replace")
