"""Read headers of mail as mail programs show them, whatever wrote them."""

from __future__ import annotations

import binascii
import re
from contextlib import suppress
from email.message import Message
from email.quoprimime import header_decode
from typing import Any

from ..encodings import is_utf_8, named_encoding

#: A word in another encoding, and the blanks between two of them, which do not count.
_WORD = re.compile(r"=\?([^?*\s]+)(?:\*[^?\s]*)?\?([bBqQ])\?([^?]*)\?=")
_BETWEEN = re.compile(r"(?<=\?=)\s+(?==\?[^?\s]+\?[bBqQ]\?)")


def write_in_unicode(message: Message[str, str]) -> None:
    """Replace bytes beyond ASCII in the headers of a message, which the rules do not allow, by characters."""
    charsets = (part.get_content_charset() for part in message.walk())
    charset = next((each for each in charsets if each not in (None, "us-ascii", "utf-8")), "")
    for part in message.walk():
        for name, value in part.raw_items():
            if not value.isascii():
                content = value.encode(errors="surrogateescape")
                part.replace_header(name, _decoded(content, "utf-8" if is_utf_8(content) else charset or ""))


def header(message: Message[str, str], name: str) -> str:
    """Return a header of a message as one line; nothing without it."""
    return header_text(str(message.get(name, "")))


def header_text(written: str) -> str:
    """Return the text of a header in which words may be in other encodings."""
    runs: list[
        tuple[str, bytes]
    ] = []  # of words that follow one another: a character may begin in one and end in the next
    text, end = "", 0
    written = _BETWEEN.sub("", re.sub(r"\r?\n(?=[ \t])", "", written))
    for word in _WORD.finditer(written):
        content = _bytes_of(word[2].lower(), word[3])
        if runs and word.start() == end and runs[-1][0] == word[1].lower():
            content = runs.pop()[1] + content
        else:
            text += "".join(_decoded(part, charset) for charset, part in runs) + written[end : word.start()]
            runs.clear()
        runs.append((word[1].lower(), content))
        end = word.end()
    return " ".join((text + "".join(_decoded(part, charset) for charset, part in runs) + written[end:]).split())


def file_name(part: Any) -> str:
    """Return the name of an attachment; nothing without one."""
    with suppress(LookupError, UnicodeError, ValueError):
        return header_text(part.get_filename() or "")
    return ""


def _bytes_of(form: str, written: str) -> bytes:
    if form == "q":
        return header_decode(written).encode("latin-1", errors="replace")
    try:
        return binascii.a2b_base64(written + "==")
    except binascii.Error:
        return written.encode()


def _decoded(content: bytes, charset: str) -> str:
    encoding = named_encoding(charset) or ("utf-8" if is_utf_8(content) else "cp1252")
    return content.decode(encoding, errors="replace")
