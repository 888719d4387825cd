"""Read plain text and Markdown, in any encoding that can be told."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress

from ...errors import OctavoError
from .document import Document
from .markdown import document_of

#: Marks at the beginning of a text that tell its encoding; that of UTF-32 begins as that of UTF-16.
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

#: Characters that no text has, but other files do.
_CONTROLS = re.compile("[\0-\x08\x0e-\x1f\x7f-\x9f]")

#: Largest share of characters that are unlikely beside each other, as charset-normalizer counts them.
_MOST_CHAOS = 0.1

#: Bytes of a text that its encoding is guessed from, at most, and at least if no language is recognised in it.
_SAMPLE, _LEAST = 1 << 20, 64


def read_text(content: bytes, name: str) -> Document:
    """Read a text. One in UTF-8 stays as it is, but for a byte order mark.

    Parameters
    ----------
    content : bytes
        The file.
    name : str
        What errors call it.

    Raises
    ------
    OctavoError
        The file is no text, or its encoding cannot be told.
    """
    text, encoding = decode(content, name)
    notices = (
        [] if encoding.startswith("utf") else [f"{name} is read as {encoding}: save it as UTF-8 if that is wrong."]
    )
    return document_of(text, notices=notices)


def decode(content: bytes, name: str) -> tuple[str, str]:
    """Return the text of a file, and the name of its encoding.

    Raises
    ------
    OctavoError
        The file is no text, or its encoding cannot be told.
    """
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            try:
                return content.decode(encoding), encoding
            except UnicodeDecodeError as problem:
                raise OctavoError(f"{name} begins as {encoding} text but is damaged: save it as UTF-8.") from problem
    if content.count(0) > len(content) // 4:  # half of the bytes of Latin letters in UTF-16
        encoding = "utf-16-le" if content[1::2].count(0) > content[::2].count(0) else "utf-16-be"
        with suppress(UnicodeDecodeError):
            return content.decode(encoding), encoding
    try:
        return content.decode(), "utf-8"
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        where = f"{name} is not UTF-8 text: byte 0x{content[problem.start]:02x} in line {line}."
    from charset_normalizer import from_bytes

    found = list(from_bytes(content[:_SAMPLE]))
    best = found[0] if found else None
    is_known = best is not None and best.chaos <= _MOST_CHAOS
    if best is not None and not best.coherence:  # no language is recognised in it: others may do as well
        is_known = is_known and len(content) >= _LEAST and all(str(other) == str(best) for other in found)
    if best is None or not is_known or _CONTROLS.search(str(best)):
        raise OctavoError(f"{where} Nor can another encoding be told: save it as UTF-8.")
    encoding = best.encoding.replace("_", "-")
    try:
        return content.decode(encoding), encoding
    except UnicodeDecodeError as problem:
        raise OctavoError(f"{where} It begins as {encoding}, but goes on otherwise: save it as UTF-8.") from problem
