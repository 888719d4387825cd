"""Read plain text, Markdown and source code, in any encoding that can be determined."""

from __future__ import annotations

import re
from pathlib import Path

from ..document import Document
from ..markdown import document_of
from .encodings import decode

#: Endings of the names of programs, whose comments are not headings.
_PROGRAM = re.compile(
    r"\.(pyi?|r|rb|pl|php|sh|bash|awk|tcl|c|h|cc|cpp|hpp|cs|jl|exs?|nix|ya?ml|toml|ini|cfg|conf|cmake|mk)",
    re.IGNORECASE,
)


def read_text(content: bytes, name: str) -> Document:
    """Read a text. UTF-8 stays as it is, without its byte order mark.

    Raises
    ------
    OctavoError
        The file is not text, or its encoding cannot be determined.
    """
    text, notices = decode(content, name)
    if _PROGRAM.fullmatch(Path(name).suffix):
        return Document(text, notices=notices)
    return document_of(text, notices=notices)
