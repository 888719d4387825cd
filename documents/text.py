"""Read plain text and Markdown, in any encoding that can be determined."""

from __future__ import annotations

from .document import Document
from .encodings import decode
from .markdown import document_of


def read_text(content: bytes, name: str) -> Document:
    """Read a text. UTF-8 stays as it is, without its byte order mark.

    Raises
    ------
    OctavoError
        The file is not text, or its encoding cannot be determined.
    """
    text, notices = decode(content, name)
    return document_of(text, notices=notices)
