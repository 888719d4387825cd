"""Rebuild a page's layout from pieces of its lines: columns, lines, paragraphs, headings, lists and tables.

All lengths are in points, and y grows upwards, as in a PDF.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from itertools import pairwise

from .pdf_blocks import Block, Line, Piece
from .pdf_tables import ROW_GAP, cells, find_table

#: Least width of a column as a share of the page's text; its fewest lines; and a gutter's width in font sizes.
_LEAST_COLUMN, _LEAST_LINES, _GUTTER = 0.2, 5, 0.8

#: Places across the page that are tried as the end of a column.
_MOST_EDGES = 300

#: Most that exponents and note numbers rise above their line, in font sizes.
_RAISED = 0.45

#: Most that parts of a line differ in height, and the width of letters of code, in font sizes.
_LEVEL, _FIXED_WIDTH = 0.4, 0.6

#: Share of a column that its lines fill on average, as cells of a table fill less; share of it that full lines fill;
#: and their share of lines in a column that also has pictures with words, or formulas.
_FILLED, _FULL, _FULL_LINES = 0.55, 0.8, 0.25

#: Most that lines of a paragraph, and of an unfinished sentence, are further apart than is usual, in font sizes; and
#: the most distance of the lines of a heading and of code, in font sizes.
_EXTRA_LEADING, _OPEN_LEADING = 0.35, 1.0
_HEADING_LEADING, _CODE_LEADING = 1.6, 3.0

#: Most distance of lines that counts as that of a paragraph, and the usual one where there is none, in font sizes.
_MOST_LEADING, _USUAL_LEADING = 2.5, 1.2

#: Points within which lines have the same size; and most that lines of a paragraph differ in size, as a share.
_SAME_SIZE, _SIMILAR_SIZE = 0.5, 0.2

#: Share of its column that a line leaves free at most: a justified one, a full one, and one that may be full.
_JUSTIFIED, _RAGGED, _VERY_RAGGED = 0.1, 0.15, 0.4

#: Least indents, in font sizes: of the second line of an item, and of the first line of a paragraph.
_ITEM_INDENT, _PARAGRAPH_INDENT = 0.3, 0.7

#: Letters of a heading are larger than the text's by this factor.
_HEADING_SIZE = 1.12

_BULLET = re.compile(r"[•◦▪‣●○■\u2013\u2014·*-]\s+(?=\S)")

#: Marks of items that mark nothing else; and most between such a mark and its text, in font sizes.
_MARK, _MARK_GAP = re.compile("[•◦▪‣●○■]"), 3.0
_SURE_BULLET = re.compile(rf"{_MARK.pattern}\s+(?=\S)")

#: The beginnings of captions of pictures and tables.
_CAPTION = re.compile(r"(fig(ure|\.)|table|listing|algorithm)\s+[\dIVX]", re.IGNORECASE)

#: Dots that lead from an entry of a table of contents to its page, or to a price, which may begin with a dot.
LEADER = re.compile(r"((\s*\.){3,}(?=\s+\.\d)|(\s*\.){4,})\s*")
#: The number of an item; and the fewest of them that tell columns.
_ORDINAL, _LEAST_NUMBERS = re.compile(r"\(?(\d{1,3})[.)]\s+(?=\S)"), 3

_NUMBERED = re.compile(r"\(?(\d{1,3}|[a-z])[.)]\s+(?=\S)")


def lines_in_order(pieces: Sequence[Piece]) -> list[Line]:
    """Return a page's lines in reading order: column by column, between lines across the columns."""
    if not pieces:
        return []
    pieces = _with_marks(pieces)
    left, right = min(piece.left for piece in pieces), max(piece.right for piece in pieces)
    gutter = _gutter(pieces, left, right)
    if gutter is None:
        return column_lines(pieces, (left, right))
    ordered: list[Line] = []
    band: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: -piece.y):
        if piece.left < gutter < piece.right:
            ordered += _columns(band, gutter) + column_lines([piece], (left, right))
            band = []
        else:
            band.append(piece)
    return _joined_baselines(ordered + _columns(band, gutter))


def _with_marks(pieces: Iterable[Piece]) -> list[Piece]:
    """Join the mark of an item, such as a bullet, and the text after a wide gap."""
    joined: list[Piece] = []
    for piece in (piece for line in column_lines(pieces, (0.0, 0.0)) for piece in line.pieces):
        mark = joined[-1] if joined and _MARK.fullmatch(joined[-1].text) else None
        is_level = mark and abs(mark.y - piece.y) < _RAISED * piece.size and not _MARK.fullmatch(piece.text)
        if mark and is_level and 0 < piece.left - mark.right < _MARK_GAP * piece.size:
            joined[-1] = replace(piece, text=f"{mark.text} {piece.text}", left=mark.left)
        else:
            joined.append(piece)
    return joined


def _columns(band: Sequence[Piece], gutter: float) -> list[Line]:
    """Return the lines on both sides of a gutter; each side may have columns in turn."""
    sides = [piece for piece in band if piece.right <= gutter], [piece for piece in band if piece.left >= gutter]
    return [line for side in sides for line in lines_in_order(side)]


def _gutter(pieces: Sequence[Piece], left: float, right: float) -> float | None:
    """Return the middle of the gap between two columns that run side by side for some lines; None without columns."""
    width, size = right - left, statistics.median(piece.size for piece in pieces)
    falling = sorted(pieces, key=lambda piece: -piece.y)
    best: list[Piece] = []
    most, gutter = 0, 0.0
    step = width / _MOST_EDGES
    for edge in sorted({left + math.ceil((piece.right - left) / step) * step for piece in pieces}):
        if left + _LEAST_COLUMN * width < edge < right - _LEAST_COLUMN * width:
            n_beside, beside = _longest_run(falling, edge, edge + _GUTTER * size)
            if n_beside > most:
                most, best, gutter = n_beside, beside, edge + _GUTTER * size / 2
    sides = [[p for p in best if p.right <= gutter], [p for p in best if p.left >= gutter]]
    if all(_are_items(side) for side in sides):
        return gutter
    are_lines = [_are_lines(side, width) for side, width in zip(sides, (gutter - left, right - gutter), strict=True)]
    return gutter if all(are_lines) or (None not in are_lines and _are_numbered_on(*sides)) else None


def _are_items(pieces: Sequence[Piece]) -> bool:
    """Return whether most of some pieces begin with the marks of lists."""
    n_items = sum(bool(_SURE_BULLET.match(piece.text) or _ORDINAL.match(piece.text)) for piece in pieces)
    return n_items > 1 and 2 * n_items > len(pieces)


def _are_lines(pieces: Sequence[Piece], width: float) -> bool | None:
    """Return whether pieces are the lines of a column: they fill most of it, or some fill all; None if they are few."""
    filled: dict[int, float] = defaultdict(float)
    for piece in pieces:
        filled[round(piece.y)] += (piece.right - piece.left) / width
    if len(filled) < _LEAST_LINES:
        return None
    n_full = sum(share > _FULL for share in filled.values())
    is_text = n_full >= max(_LEAST_LINES, _FULL_LINES * len(filled))
    return is_text or sum(filled.values()) >= _FILLED * len(filled)


def _are_numbered_on(before: Sequence[Piece], after: Sequence[Piece]) -> bool:
    """Return whether numbers at the beginnings of a column's pieces, down the page, continue in the column after it."""
    numbers = [
        [int(found[1]) for piece in sorted(side, key=lambda p: -p.y) if (found := _ORDINAL.match(piece.text))]
        for side in (before, after)
    ]
    first, second = numbers
    all_numbers = first + second
    continues = all(b - a == 1 for a, b in pairwise(all_numbers))
    return bool(first and second) and len(all_numbers) >= _LEAST_NUMBERS and continues


def _longest_run(falling: Sequence[Piece], left: float, right: float) -> tuple[int, list[Piece]]:
    """Return the longest run of pieces down the page that leaves a gap free, and the count on its emptier side."""
    runs: list[list[Piece]] = [[]]
    for piece in falling:
        if piece.left < right and piece.right > left:
            runs.append([])
        else:
            runs[-1].append(piece)
    n_left = [sum(piece.right <= left for piece in run) for run in runs]
    return max(
        ((min(n, len(run) - n), run) for n, run in zip(n_left, runs, strict=True)), key=lambda counted: counted[0]
    )


def column_lines(pieces: Iterable[Piece], column: tuple[float, float]) -> list[Line]:
    """Return the lines of one column from top to bottom."""
    lines: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: (-piece.y, piece.left)):
        first = lines[-1][0] if lines and not piece.table and not lines[-1][0].table else None
        if first and first.y - piece.y < _RAISED * max(piece.size, first.size):
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return [Line(tuple(sorted(line, key=lambda piece: piece.left)), column) for line in lines]


def _joined_baselines(lines: list[Line]) -> list[Line]:
    """Join neighbours on one baseline: they are parts of a line across the columns."""
    joined: list[Line] = []
    for line in lines:
        last = joined[-1] if joined and not line.table and not joined[-1].table else None
        if last and line.column == last.column and abs(line.y - last.y) < _LEVEL * line.size:
            pieces = sorted((*joined.pop().pieces, *line.pieces), key=lambda piece: piece.left)
            line = Line(tuple(pieces), line.column)
        joined.append(line)
    return joined


def plain(title: str) -> str:
    """Return the letters and digits of a title without its number, to match it with the outline."""
    return re.sub(r"\W+", "", re.sub(r"^[\dA-Z]{1,3}([.][\d.]*|\s)\s*(?=\w)", "", title)).lower()


def blocks(lines: Sequence[Line], body_size: float, titles: Set[str]) -> list[Block]:
    """Group lines into paragraphs, headings, items of lists, and tables.

    Parameters
    ----------
    titles : set of str
        Titles in the outline for this page, after `plain`.
    """
    leading = _leading(lines)
    n_cells = [_n_cells(line) for line in lines]
    grouped: list[Block] = []
    position = searched = 0
    while position < len(lines):
        line, after = lines[position], lines[position + 1] if position + 1 < len(lines) else None
        n_rows, columns = find_table(lines[position:], n_cells[position:]) if position >= searched else (0, ())
        searched = max(searched, position + n_rows // 2)
        if columns:
            grouped.append(Block(list(lines[position : position + n_rows]), "table", columns))
            position += n_rows
            continue
        if line.table:
            grouped.append(Block([line], "table"))
            position += 1
            continue
        kind = "heading" if plain(line.text) in titles else _kind(line, body_size)
        before = grouped[-1].lines[-1] if grouped else None
        if n_cells[position] > 1 and kind == "text" and _has_neighbour(grouped, n_cells[position + 1 : position + 2]):
            kind = "rows"
        elif before and grouped[-1].kind == "text" and kind == "item" and not _SURE_BULLET.match(line.text):
            kind = "text" if _runs_on(before, line, leading) and abs(before.left - line.left) < line.size else kind
        elif _is_bold_only(line, kind, body_size, titles) and _in_text(grouped, line, after, leading):
            kind = "text"
        if grouped and kind != "item" and _continues(grouped[-1], line, kind, leading):
            grouped[-1].lines.append(line)
        else:
            grouped.append(Block([line], kind))
        position += 1
    return grouped


def _n_cells(line: Line) -> int:
    """Return the number of a line's cells; 0 if it is code, an item of a list, or an entry of a table of contents."""
    n = len(cells(line))
    is_item = n == 2 and (_BULLET.match(line.text) or _NUMBERED.match(line.text))
    return 0 if line.fixed or line.table or is_item or LEADER.search(line.text) else n


def _is_bold_only(line: Line, kind: str, body_size: float, titles: Set[str]) -> bool:
    """Return whether only bold type makes a line a heading."""
    return kind == "heading" and line.size < _HEADING_SIZE * body_size and plain(line.text) not in titles


def _has_neighbour(made: Sequence[Block], n_cells_after: Sequence[int]) -> bool:
    """Return whether there are lines with cells above or below the line after the last block."""
    return bool(made and made[-1].kind in ("rows", "table")) or any(n > 1 for n in n_cells_after)


def _runs_on(line: Line, after: Line, leading: float) -> bool:
    """Return whether a line is full and closely followed by the next one, as within a paragraph."""
    left, right = line.column
    is_close = line.column == after.column and 0 < line.y - after.y <= (leading + _EXTRA_LEADING) * after.size
    return is_close and line.right > right - _JUSTIFIED * (right - left)


def _in_text(made: Sequence[Block], line: Line, after: Line | None, leading: float) -> bool:
    """Return whether a bold line is within a paragraph, or begins one or a caption, and so is not a heading."""
    if line.text.endswith("-") or _CAPTION.match(line.text):
        return True
    before = made[-1].lines[-1] if made and made[-1].kind == "text" else None
    if before and abs(before.size - line.size) < _SAME_SIZE and _runs_on(before, line, leading):
        return True
    has_same_size = after and not after.bold and abs(after.size - line.size) < _SAME_SIZE
    return bool(after and has_same_size and _runs_on(line, after, leading))


def _leading(lines: Sequence[Line]) -> float:
    """Return the usual distance between lines of a paragraph, in font sizes."""
    steps = [(a.y - b.y) / a.size for a, b in pairwise(lines) if a.column == b.column and a.y > b.y]
    steps = [step for step in steps if step < _MOST_LEADING]
    return statistics.median_low(steps) if steps else _USUAL_LEADING


def _kind(line: Line, body_size: float) -> str:
    text = line.text
    if line.fixed:
        return "code"
    if LEADER.search(text):
        return "entry"
    if _SURE_BULLET.match(text):
        return "item"
    if _BULLET.match(text) or _NUMBERED.match(text):
        return "item" if line.size < _HEADING_SIZE * body_size and not line.bold else "heading"
    is_short = len(text) < 120 and not text.endswith((".", ",", ";", ":"))
    if is_short and re.search(r"\w", text) and (line.size >= _HEADING_SIZE * body_size or line.bold):
        return "heading"
    return "text"


def _continues(block: Block, line: Line, kind: str, leading: float) -> bool:
    last = block.lines[-1]
    if kind == "entry" or block.kind == "entry":
        return False
    if "rows" in (kind, block.kind):
        return block.kind == kind and line.column == last.column and 0 < last.y - line.y < ROW_GAP * line.size
    if block.kind == "code" or kind == "code":
        return block.kind == kind and line.column == last.column and 0 < last.y - line.y < _CODE_LEADING * line.size
    if block.kind == "heading" or kind == "heading":
        same = block.kind == kind and abs(line.size - last.size) < _SAME_SIZE and line.bold == last.bold
        return same and line.column == last.column and 0 < last.y - line.y < _HEADING_LEADING * line.size
    if block.kind == "table" or abs(line.size - last.size) > _SIMILAR_SIZE * last.size:
        return False
    if line.column != last.column or line.y > last.y:  # a sentence may continue in a new column
        return not last.text.endswith((".", "!", "?", ":")) and line.text[:1].islower()
    width = last.column[1] - last.column[0]
    is_full = last.right > last.column[1] - _RAGGED * width
    is_within_sentence = line.text[:1].islower() and last.text[-1:].isalpha()
    is_open = is_within_sentence and last.right > last.column[1] - _VERY_RAGGED * width
    if last.y - line.y > (leading + (_OPEN_LEADING if is_open else _EXTRA_LEADING)) * line.size:
        return False
    indent = line.left - line.column[0]
    if block.kind == "item":
        return line.left > block.lines[0].left + _ITEM_INDENT * line.size or len(block.lines) > 1
    first_indent = block.lines[0].left - line.column[0]
    is_indented = indent > first_indent + _PARAGRAPH_INDENT * line.size
    return not is_indented and (is_full or not last.text.endswith((".", "!", "?", ":")))


def list_item(text: str) -> str:
    """Return the text of a list item with Markdown's mark, or its own number."""
    if _BULLET.match(text):
        return "- " + _BULLET.sub("", text, count=1)
    numbered = _NUMBERED.match(text)
    return text if numbered and numbered[1].isdigit() else f"- {text}"


def code(lines: Sequence[Line]) -> str:
    """Return lines of code with their indents, as a block of Markdown."""
    left, width = min(line.left for line in lines), _FIXED_WIDTH * lines[0].size
    return "\n".join(["```", *(" " * round((line.left - left) / width) + line.text for line in lines), "```"])
