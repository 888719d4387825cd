"""Extract plain text, Markdown and source code, in any encoding that can be determined."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path

from ...errors import OctavoError
from ..document import Document
from ..encodings import decode
from ..left_out import LeftOut
from ..markdown import document_of, without_pictures
from ..opening_problem import opening_problem
from .markup import HEADINGS

#: Endings of the names of programs, whose comments are not headings.
_PROGRAM = re.compile(
    r"\.(pyi?|r|rb|pl|php|sh|bash|awk|tcl|c|h|cc|cpp|hpp|cs|jl|exs?|nix|ya?ml|toml|ini|cfg|conf|cmake|mk)",
    re.IGNORECASE,
)


#: JSON by its file's name, a string in it, and an escape in a string: two halves of a letter, one letter, or another.
_OF_JSON = (".json", ".jsonl", ".ndjson", ".geojson")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB][\da-fA-F]{2})\\u([dD][c-fC-F][\da-fA-F]{2})|u([\da-fA-F]{4})|.)", re.DOTALL)

#: Letters that only dictionaries have: two letters that a text has by chance are not the bytes of one.
_PHONETIC = re.compile("[\u0180-\u036f]")


def extract_text(content: bytes, name: str) -> Document:
    """Extract a text. UTF-8 stays as it is, without its byte order mark and without pictures in base64.

    Raises
    ------
    OctavoError
        The file is not text, or its encoding cannot be determined.
    """
    text, notices = decode(content, name)
    suffix = Path(name).suffix.lower()
    if _PROGRAM.fullmatch(suffix):
        return Document(text, notices=notices)
    left_out = LeftOut()
    text = _with_letters(text) if _is_json(text, suffix) else text
    text = without_pictures(text, left_out)
    found = HEADINGS[suffix](text) if suffix in HEADINGS else None
    return document_of(text, notices=(*notices, *left_out.notices(name)), found=found)


def _is_json(text: str, suffix: str) -> bool:
    """Return whether a text is JSON in which letters may be written as numbers, or as the bytes of their UTF-8."""
    if not (
        re.search(r"\\u[\da-fA-F]|[\u00c2-\u00f4][\u0080-\u00bf\u2010-\u203a]", text)
    ) or not text.lstrip().startswith(("{", "[")):
        return False
    with suppress(ValueError, RecursionError):
        return suffix in _OF_JSON or bool(json.loads(text))
    return False


def _with_letters(text: str) -> str:
    """Return JSON with letters in place of their numbers, and of the bytes of their UTF-8."""
    text = _STRING.sub(lambda string: _ESCAPE.sub(_letter, string[0]), text)
    runs = {run: _of_bytes(run) for run in set(re.findall(r"[^\0-\x7f]+", text))}
    if any(found is None for found in runs.values()):
        return text
    return re.sub(r"[^\0-\x7f]+", lambda run: runs[run[0]] or "", text)


def _letter(escape: re.Match[str]) -> str:
    """Return the letter that an escape of JSON stands for, unless JSON or UTF-8 cannot hold it as it is."""
    high, low, single = escape.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    code = int(single, 16) if single else 0
    return chr(code) if code >= 0x80 and not 0xD800 <= code < 0xE000 else escape[0]


def _of_bytes(run: str) -> str | None:
    """Return the letters whose UTF-8 bytes stand for letters in a text; None if it is not such a text."""
    for encoding in ("latin-1", "cp1252"):
        with suppress(UnicodeError):
            found = run.encode(encoding).decode()
            return None if _PHONETIC.search(found) else found
    return None


def read_utf8(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 text file, without its byte order mark.

    Raises
    ------
    OctavoError
        The file cannot be opened, is not UTF-8, or is empty. The message names the position.
    """
    path = Path(path)
    if path.is_dir():
        raise OctavoError(f"{path} is a folder: give a text or Markdown file.")
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise opening_problem(path, problem) from problem
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise OctavoError(
            f"{path} is not UTF-8 text: byte 0x{content[problem.start]:02x} in line {line}. Save it as UTF-8."
        ) from problem
    if not text.strip():
        raise OctavoError(f"{path} is empty: there is nothing to read in it.")
    return text
