"""Read RTF: its text, without styles."""

from __future__ import annotations

from ..errors import OctavoError
from .document import Document
from .markdown import document_of


def read_rtf(content: bytes, name: str) -> Document:
    """Read RTF.

    Raises
    ------
    OctavoError
        The file is damaged.
    """
    from striprtf.striprtf import rtf_to_text

    try:
        text = rtf_to_text(content.decode("latin-1"), errors="replace")
    except (ValueError, LookupError, IndexError, TypeError) as problem:
        raise OctavoError(f"{name} is damaged: save it again, or as DOCX or PDF.") from problem
    return document_of(text.replace("\r\n", "\n"))
