"""Extract plain text, Markdown, source code and subtitles, in any encoding that can be determined."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

from ...errors import OctavoError
from ..document import Document, Place
from ..encodings import decode
from ..markdown import document_of

#: Endings of the names of programs, whose comments are not headings.
_PROGRAM = re.compile(
    r"\.(pyi?|r|rb|pl|php|sh|bash|awk|tcl|c|h|cc|cpp|hpp|cs|jl|exs?|nix|ya?ml|toml|ini|cfg|conf|cmake|mk)",
    re.IGNORECASE,
)

#: In subtitles: a line of times, marks within text, and the mark of a speaker.
_TIMES = re.compile(r"^[ \t]*((?:\d+:)?\d\d:\d\d)[,.]\d+[ \t]*-->[^\n]*$", re.MULTILINE)
_MARKS, _SPEAKER = re.compile(r"</?[a-zA-Z0-9][^<>]*>|\{\\[^{}]*\}"), re.compile(r"<v(?:\.[^ >]*)?[ \t]+([^<>]+)>")


def extract_text(content: bytes, name: str) -> Document:
    """Extract a text. UTF-8 stays as it is, without its byte order mark.

    Raises
    ------
    OctavoError
        The file is not text, or its encoding cannot be determined.
    """
    text, notices = decode(content, name)
    if _PROGRAM.fullmatch(Path(name).suffix):
        return Document(text, notices=notices)
    return document_of(text, notices=notices)


def extract_subtitles(content: bytes, name: str) -> Document:
    """Extract subtitles (SRT, VTT): a line for each, with its time, which is its place."""
    written, notices = decode(content, name)
    written = written.replace("\r\n", "\n").replace("\r", "\n")
    text, places = "", []
    parts = _TIMES.split(written)
    for time, part in zip(parts[1::2], parts[2::2], strict=True):
        cue = part.lstrip("\n") if part.startswith("\n\n\n") else part.removeprefix("\n")
        said = _MARKS.sub("", _SPEAKER.sub(r"\1: ", cue.partition("\n\n")[0]))
        if line := " ".join(html.unescape(said).split()):
            places.append(Place(len(text), None, time))
            text += f"[{time}] {line}\n"
    return Document(text, tuple(places), notices)


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
        raise OctavoError(f"The document {path} cannot be opened: {problem.strerror}.") from problem
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
