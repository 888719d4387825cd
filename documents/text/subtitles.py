"""Extract subtitles (SRT, VTT): each line with its time, which is its place."""

from __future__ import annotations

import html
import re
from itertools import pairwise
from typing import NamedTuple

from ..document import Document, Place
from ..encodings import decode

#: A line of times, marks within text, and the mark of a speaker.
_TIMES = re.compile(
    r"^[ \t]*((?:\d+:)?\d\d:\d\d)[,.](\d+)[ \t]*-->[ \t]*((?:\d+:)?\d\d:\d\d)[,.](\d+)[^\n]*$", re.MULTILINE
)
_MARKS, _SPEAKER = re.compile(r"</?[a-zA-Z0-9][^<>]*>|\{\\[^{}]*\}"), re.compile(r"<v(?:\.[^ >]*)?[ \t]+([^<>]+)>")

#: Blocks of VTT that are not shown, and the beginning of a line that names or marks a speaker.
_NOT_SHOWN = re.compile(r"(?:NOTE|STYLE|REGION)(?:[ \t\n]|$)")
_SPEAKS = re.compile(r"(?:[-\u2010-\u2014][ \t]*\S|>>|\ue000|[^\W\d_a-z][^a-z:]+:)")

#: Least share of subtitles that repeat lines of the one before them in captions that roll, and most seconds between.
_LEAST_ROLLING, _GAP = 0.5, 0.5


class _Cue(NamedTuple):
    time: str
    start: float
    end: float
    lines: list[str]


def extract_subtitles(content: bytes, name: str) -> Document:
    """Extract subtitles (SRT, VTT): a line for each, and for each speaker in it, with its time, which is its place."""
    written, notices = decode(content, name)
    cues = _cues(written.replace("\r\n", "\n").replace("\r", "\n"))
    text, places = "", []
    for time, lines in _unrolled(cues) if _roll(cues) else [(cue.time, cue.lines) for cue in cues]:
        places += [Place(len(text), None, time)] if lines else []
        text += "".join(f"[{time}] {line}\n" for line in _by_speaker(lines))
    return Document(text, tuple(places), notices)


def _cues(written: str) -> list[_Cue]:
    """Return the subtitles of a file. A blank line in one does not end it, but in VTT notes follow it."""
    fields = _TIMES.split(written)
    cues = []
    for number in range(1, len(fields), 5):
        time, fraction, end, end_fraction, said = fields[number : number + 5]
        is_last = number + 5 >= len(fields)
        first, *others = re.split(r"\n[ \t]*(?=\n)", said.removeprefix("\n"))
        blocks = [first, *(block for block in others if not _NOT_SHOWN.match(block.strip("\n")))]
        if not is_last:  # the last line is the number or the name of the next one
            *blocks, last = blocks
            before, _, identifier = last.rstrip("\n").rpartition("\n")
            is_identifier = not last.endswith("\n\n") and (identifier.strip().isdigit() or not before.strip())
            blocks.append(before if is_identifier and (blocks or before or last.startswith("\n")) else last)
        said = _SPEAKER.sub("\ue000\\1: ", re.sub(r"(?<=[^\n])[ \t]*(?=<v[. ])", "\n", "\n".join(blocks)))
        lines = [" ".join(html.unescape(_MARKS.sub("", line)).split()) for line in said.split("\n")]
        cues.append(_Cue(time, _seconds(time, fraction), _seconds(end, end_fraction), list(filter(None, lines))))
    return cues


def _seconds(time: str, fraction: str) -> float:
    seconds = 0
    for part in time.split(":"):
        seconds = 60 * seconds + int(part)
    return seconds + float(f"0.{fraction}")


def _repeated(before: list[str], lines: list[str]) -> int:
    """Return how many lines at the beginning are the last lines before."""
    longest = min(len(before), len(lines))
    return next((number for number in range(longest, 0, -1) if before[-number:] == lines[:number]), 0)


def _grows(before: list[str], lines: list[str]) -> bool:
    """Return whether the first line is the last line before with more words."""
    return bool(before and lines) and lines[0].startswith(before[-1] + " ")


def _roll(cues: list[_Cue]) -> bool:
    """Return whether captions roll: each repeats the line before, and adds words or a line."""
    said = [cue for cue in cues if cue.lines]
    repeats = [
        later.start - earlier.end < _GAP
        and (_repeated(earlier.lines, later.lines) > 0 or _grows(earlier.lines, later.lines))
        for earlier, later in pairwise(said)
    ]
    return sum(repeats) > 1 and sum(repeats) >= _LEAST_ROLLING * len(repeats)


def _unrolled(cues: list[_Cue]) -> list[tuple[str, list[str]]]:
    """Return the lines of captions that roll, each once, with the time at which it begins."""
    shown: list[tuple[str, list[str]]] = []
    before: list[str] = []
    for cue in filter(lambda cue: cue.lines, cues):
        if shown and _grows(before, cue.lines):
            shown[-1][1][-1:] = [cue.lines[0]]
            fresh = cue.lines[1:]
        else:
            fresh = cue.lines[_repeated(before, cue.lines) :]
        shown += [(cue.time, fresh)] if fresh else []
        before = cue.lines
    return shown


def _by_speaker(lines: list[str]) -> list[str]:
    """Return the lines of a subtitle as one, or as one for each of its speakers."""
    if sum(_SPEAKS.match(line) is not None for line in lines) < 2:
        lines = [" ".join(lines)] if lines else []
    said: list[str] = []
    for line in lines:
        if said and not _SPEAKS.match(line):
            said[-1] += f" {line}"
        else:
            said.append(line)
    return [line.replace("\ue000", "") for line in said]
