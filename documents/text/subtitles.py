"""Read subtitles (SRT, VTT): a line for each, with its time, which is its place."""

from __future__ import annotations

import html
import re

from ..document import Document, Place
from .encodings import decode

#: The beginnings of subtitles, a line of times, marks within text, and the mark of a speaker.
_BEGINNING = re.compile(r"\ufeff?(?:WEBVTT(?:[ \t\n]|$)|\s*\d+[ \t]*\n\s*\d+:\d\d:\d\d[,.]\d+[ \t]*-->)")
_TIMES = re.compile(r"^[ \t]*((?:\d+:)?\d\d:\d\d)[,.]\d+[ \t]*-->[^\n]*$", re.MULTILINE)
_MARKS, _SPEAKER = re.compile(r"</?[a-zA-Z0-9][^<>]*>|\{\\[^{}]*\}"), re.compile(r"<v(?:\.[^ >]*)?[ \t]+([^<>]+)>")


def is_subtitles(content: bytes, name: str) -> bool:
    """Return whether a file has subtitles, by its beginning."""
    beginning = content[:4096].decode("utf-8", errors="ignore").replace("\r\n", "\n")
    return _BEGINNING.match(beginning) is not None and "-->" in beginning


def read_subtitles(content: bytes, name: str) -> Document:
    """Read subtitles."""
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
