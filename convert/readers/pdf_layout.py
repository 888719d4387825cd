"""Rebuild a page's layout from pieces of its lines: columns, lines, paragraphs, headings, lists and tables.

All lengths are in points, and y grows upwards, as in a PDF.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: A column is at least this share of the page's text wide, and has so many lines; and a gutter so many font sizes.
_LEAST_COLUMN, _LEAST_LINES, _GUTTER = 0.2, 5, 0.8

#: Share of a column that its lines fill on average: cells of a table fill less.
_FILLED = 0.55

#: Gap between the words of two cells, in font sizes; and how far cells of a column may begin apart.
_CELL_GAP, _ALIGNED = 1.5, 1.0

#: A line is a heading if its letters are so much larger than the text's.
_HEADING_SIZE = 1.12

_BULLET = re.compile(r"[•◦▪‣●○■\u2013\u2014·*-]\s+(?=\S)")

#: Dots that lead from an entry of a table of contents to its page.
LEADER = re.compile(r"(\s*\.){4,}\s*")
_NUMBERED = re.compile(r"\(?(\d{1,3}|[a-z])[.)]\s+(?=\S)")


@dataclass(frozen=True)
class Piece:
    """Words that stand on a line without a wide gap between them.

    Parameters
    ----------
    text : str
        The words.
    left, right, y : float
        Where they begin and end, and their baseline.
    size : float
        Size of the font.
    bold : bool
        Whether most of it is bold.
    fixed : bool
        Whether its letters are all of one width, as those of code.
    """

    text: str
    left: float
    right: float
    y: float
    size: float
    bold: bool
    fixed: bool


@dataclass(frozen=True)
class Line:
    """The pieces that stand on a baseline in a column, from the left to the right."""

    pieces: tuple[Piece, ...]
    column: tuple[float, float]

    @property
    def text(self) -> str:
        """Return the line's words."""
        return " ".join(piece.text for piece in self.pieces)

    @property
    def left(self) -> float:
        """Return where the line begins."""
        return self.pieces[0].left

    @property
    def right(self) -> float:
        """Return where the line ends."""
        return self.pieces[-1].right

    @property
    def y(self) -> float:
        """Return the line's baseline."""
        return self.pieces[0].y

    @property
    def size(self) -> float:
        """Return the size of the line's largest font."""
        return max(piece.size for piece in self.pieces)

    @property
    def bold(self) -> bool:
        """Return whether all of the line is bold."""
        return all(piece.bold for piece in self.pieces)

    @property
    def fixed(self) -> bool:
        """Return whether the line is code."""
        return all(piece.fixed for piece in self.pieces)


@dataclass
class Block:
    """A paragraph, a heading, an item of a list, a table, code, or an entry of a table of contents.

    Parameters
    ----------
    lines : list of Line
        Its lines.
    kind : str
        "text", "heading", "item", "table", "code" or "entry".
    """

    lines: list[Line]
    kind: str


def lines_in_order(pieces: Sequence[Piece]) -> list[Line]:
    """Return a page's lines in the order in which they are read: column after column, between lines across them.

    Parameters
    ----------
    pieces : sequence of Piece
        What stands on the page.
    """
    if not pieces:
        return []
    left, right = min(piece.left for piece in pieces), max(piece.right for piece in pieces)
    gutter = _gutter(pieces, left, right)
    if gutter is None:
        return _lines(pieces, (left, right))
    ordered: list[Line] = []
    band: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: -piece.y):
        if piece.left < gutter < piece.right:
            ordered += _columns(band, gutter) + _lines([piece], (left, right))
            band = []
        else:
            band.append(piece)
    return _joined_baselines(ordered + _columns(band, gutter))


def _columns(band: Sequence[Piece], gutter: float) -> list[Line]:
    """Return the lines of both sides of a gutter, each of which may have columns again."""
    sides = [piece for piece in band if piece.right <= gutter], [piece for piece in band if piece.left >= gutter]
    return [line for side in sides for line in lines_in_order(side)]


def _gutter(pieces: Sequence[Piece], left: float, right: float) -> float | None:
    """Return the middle of the gap between two columns that few pieces cross, if there is one."""
    width, size = right - left, statistics.median(piece.size for piece in pieces)
    edges = sorted({piece.right for piece in pieces})
    best: tuple[int, float] | None = None
    for edge in edges:
        if not left + _LEAST_COLUMN * width < edge < right - _LEAST_COLUMN * width:
            continue
        middle = edge + _GUTTER * size / 2
        crossing = sum(piece.left < middle + _GUTTER * size / 2 and piece.right > edge for piece in pieces)
        if best is None or crossing < best[0]:
            best = crossing, middle
    if best is None or best[0] > 0.2 * len(pieces):
        return None
    for side, edge in ((1, left), (-1, right)):
        own = [p for p in pieces if (p.right <= best[1] if side == 1 else p.left >= best[1])]
        baselines = {round(piece.y) for piece in own}
        if len(baselines) < _LEAST_LINES:
            return None
        room = abs(best[1] - edge)
        if sum(piece.right - piece.left for piece in own) < _FILLED * room * len(baselines):
            return None
    return best[1]


def _lines(pieces: Iterable[Piece], column: tuple[float, float]) -> list[Line]:
    """Return the lines of one column, from the top."""
    lines: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: (-piece.y, piece.left)):
        if lines and abs(lines[-1][0].y - piece.y) < 0.4 * min(piece.size, lines[-1][0].size):
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return [Line(tuple(sorted(line, key=lambda piece: piece.left)), column) for line in lines]


def _joined_baselines(lines: list[Line]) -> list[Line]:
    """Join neighbours on one baseline: pieces of a line across the columns."""
    joined: list[Line] = []
    for line in lines:
        if joined and line.column == joined[-1].column and abs(line.y - joined[-1].y) < 0.4 * line.size:
            pieces = sorted((*joined.pop().pieces, *line.pieces), key=lambda piece: piece.left)
            line = Line(tuple(pieces), line.column)
        joined.append(line)
    return joined


def blocks(lines: Sequence[Line], body_size: float) -> list[Block]:
    """Group lines into paragraphs, headings, items of lists, and tables.

    Parameters
    ----------
    lines : sequence of Line
        A page's lines in order.
    body_size : float
        Size of the text's font.
    """
    leading = _leading(lines)
    made: list[Block] = []
    rest = list(lines)
    while rest:
        n_rows = 0 if rest[0].fixed else _table_rows(rest)
        if n_rows:
            made.append(Block(rest[:n_rows], "table"))
            del rest[:n_rows]
            continue
        line = rest.pop(0)
        kind = _kind(line, body_size)
        if made and kind != "item" and _goes_on(made[-1], line, kind, leading):
            made[-1].lines.append(line)
        else:
            made.append(Block([line], kind))
    return made


def _leading(lines: Sequence[Line]) -> float:
    """Return the usual distance between lines of a paragraph, in font sizes."""
    steps = [(a.y - b.y) / a.size for a, b in pairwise(lines) if a.column == b.column and a.y > b.y]
    steps = [step for step in steps if step < 2.5]
    return statistics.median_low(steps) if steps else 1.2


def _kind(line: Line, body_size: float) -> str:
    """Return what a line begins."""
    text = line.text
    if line.fixed:
        return "code"
    if LEADER.search(text):
        return "entry"
    if _BULLET.match(text) or _NUMBERED.match(text):
        return "item" if line.size < _HEADING_SIZE * body_size and not line.bold else "heading"
    is_short = len(text) < 120 and not text.endswith((".", ",", ";", ":"))
    if is_short and re.search(r"\w", text) and (line.size >= _HEADING_SIZE * body_size or line.bold):
        return "heading"
    return "text"


def _goes_on(block: Block, line: Line, kind: str, leading: float) -> bool:
    """Return whether a line belongs to the block before it."""
    last = block.lines[-1]
    if kind == "entry" or block.kind == "entry":
        return False
    if block.kind == "code" or kind == "code":
        return block.kind == kind and line.column == last.column and 0 < last.y - line.y < 3 * line.size
    if block.kind == "heading" or kind == "heading":
        same = block.kind == kind and abs(line.size - last.size) < 0.5 and line.bold == last.bold
        return same and line.column == last.column and 0 < last.y - line.y < 1.6 * line.size
    if block.kind == "table" or abs(line.size - last.size) > 0.2 * last.size:
        return False
    if line.column != last.column or line.y > last.y:  # at a new column a sentence may go on
        return not last.text.endswith((".", "!", "?", ":")) and line.text[:1].islower()
    if last.y - line.y > (leading + 0.35) * line.size:
        return False
    indent = line.left - line.column[0]
    if block.kind == "item":
        return line.left > block.lines[0].left + 0.3 * line.size or len(block.lines) > 1
    first_indent = block.lines[0].left - line.column[0]
    is_indented = indent > first_indent + 0.7 * line.size
    is_short = last.right < last.column[1] - 0.15 * (last.column[1] - last.column[0])
    return not is_indented and not (is_short and last.text.endswith((".", "!", "?", ":")))


def _table_rows(lines: Sequence[Line]) -> int:
    """Return how many of the next lines are the rows of a table: 0, or at least three."""
    starts = _cell_starts(lines[0])
    if len(starts) < 2:
        return 0
    n_rows = 1
    for line in lines[1:]:
        own = _cell_starts(line)
        aligned = len(own) == len(starts) and line.column == lines[0].column
        if not aligned or any(abs(a - b) > _ALIGNED * line.size for a, b in zip(own, starts, strict=True)):
            break
        n_rows += 1
    return n_rows if n_rows >= 3 else 0


def _cell_starts(line: Line) -> list[float]:
    """Return where the cells of a line begin, if it is one of a table."""
    return [cell[0].left for cell in cells(line)]


def cells(line: Line) -> list[list[Piece]]:
    """Return the pieces of each cell of a line: what a wide gap parts."""
    own: list[list[Piece]] = [[line.pieces[0]]]
    for before, piece in pairwise(line.pieces):
        if piece.left - before.right > _CELL_GAP * piece.size:
            own.append([])
        own[-1].append(piece)
    return own


def list_item(text: str) -> str:
    """Return the text of an item with Markdown's mark."""
    if _BULLET.match(text):
        return "- " + _BULLET.sub("", text, count=1)
    numbered = _NUMBERED.match(text)
    if numbered and numbered[1].isdigit():
        return f"{numbered[1]}. {text[numbered.end() :]}"
    return f"- {text}"


def code(lines: Sequence[Line]) -> str:
    """Return lines of code, with their indents, as a block of Markdown."""
    left, width = min(line.left for line in lines), 0.6 * lines[0].size
    return "\n".join(["```", *(" " * round((line.left - left) / width) + line.text for line in lines), "```"])
