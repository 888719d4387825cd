"""Part the columns of a PDF's page, but not the rows of its tables, and put its lines in the order of reading.

A gap down the page parts two columns, which are read one after the other, or the cells of rows, which belong together.
Rows have their blocks of lines on both sides at the same heights: their first lines, their middles or their last lines
are level. Columns of text, side bars and notes do not, or their words continue from the foot of one to the top of the
next, as in an index.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

from .pdf_blocks import Line, Piece, Span
from .pdf_tables import ROW_GAP, cells, is_number, runs_on, words_of

#: Least width of a column as a share of the page's text; a gutter's width in font sizes; and the fewest letters of a
#: column.
_LEAST_COLUMN, _GUTTER, _LEAST_LETTERS = 0.08, 0.8, 12

#: Places across the page that are tried as the end of a column, and most gaps that are looked at closely.
_MOST_EDGES, _MOST_GAPS = 300, 4

#: Most that exponents and note numbers rise above their line, that parts of a line differ in height, and lines that are
#: beside one another, in font sizes.
_RAISED, _LEVEL, _BESIDE = 0.45, 0.4, 1.2

#: Most distance of lines of a block, in usual ones; and the share of lines that continue others in sentences.
_BLOCK_LEADING, _TEXT = 1.3, 0.3

#: Share of their column that full lines fill.
_FULL = 0.75

#: Fewest rows; the least share of a side's blocks that are in rows of their own, and of rows whose sides are level.
_FEWEST_ROWS, _ROWS, _LEVEL_ROWS = 3, 0.75, 0.75

#: Marks of items that mark nothing else; and most between such a mark and its text, in font sizes.
_MARK, _MARK_GAP = re.compile("[•◦▪‣●○■]"), 3.0

#: The number or the letter of an item; and the fewest of them that show columns.
ORDINAL, _LEAST_ORDINALS = re.compile(r"[(\[]?(\d{1,3}|[A-Za-z])[.)\]]\s+(?=\S)"), 3

#: Fewest entries of a sorted list; and the least share of them that are in order.
_LEAST_SORTED, _SORTED = 4, 0.9

#: A blank across a page is wider by this factor than the usual distance of its lines.
_WIDER = 1.5

#: The least width of one of two texts side by side, as a share of the other's; and most that the baselines of a row
#: across a gutter differ, in font sizes.
_AS_WIDE, _EXACT = 0.6, 0.02

#: Most lines of an address and the like, the most distance of its lines, in font sizes, and what a label ends with.
_SHORT, _SOLID, _LABEL = 5, 1.45, re.compile(r"[:?]$")


def lines_in_order(pieces: Sequence[Piece]) -> list[Line]:
    """Return a page's lines in reading order: column by column, between lines across the columns."""
    return _in_order(_with_marks(pieces), _extent(pieces)) if pieces else []


def _left(of: Piece | Line) -> float:
    return of.left


def _right(of: Piece | Line) -> float:
    return of.right


def _height(piece: Piece) -> float:
    return piece.y


def _extent(pieces: Sequence[Piece]) -> Span:
    return min(map(_left, pieces)), max(map(_right, pieces))


def _in_order(pieces: Sequence[Piece], extent: Span) -> list[Line]:
    left, right = extent
    gutter = _gutter(pieces, left, right)
    if gutter is None:
        return column_lines(pieces, extent)
    ordered: list[Line] = []
    band: list[Piece] = []
    for line in column_lines(pieces, extent):
        if any(piece.left < gutter < piece.right for piece in line.pieces):
            ordered += [*_band(band, gutter, extent, line), line]
            band = []
        else:
            band += line.pieces
    return [*ordered, *_band(band, gutter, extent, None)]


def _band(band: Sequence[Piece], gutter: float, extent: Span, below: Line | None) -> list[Line]:
    """Return the lines on both sides of a gutter, one after the other, unless they are rows.

    A note at the right of a text that continues below both comes first.

    Parameters
    ----------
    below : Line, optional
        The line across the gutter that follows.
    """
    sides = _sides(band, gutter)
    cut = _end_of_choices(*map(_lines, sides)) if all(sides) else None
    if cut is not None:
        above, rest = ([piece for piece in band if (piece.y > cut) == is_above] for is_above in (True, False))
        return [*_band(above, gutter, extent, None), *_band(rest, gutter, extent, below)]
    if all(sides) and (rows := _text_rows(*map(_lines, sides))):
        return [line for row in rows for cell in row for line in cell]
    test = are_rows if min(map(len, sides)) >= _FEWEST_ROWS else _are_pairs
    if all(sides) and test(*map(_lines, sides)):
        return column_lines(band, extent)
    if table := _wide_table(band, gutter, extent) if all(sides) else []:
        inside = {id(piece) for line in table for piece in line.pieces}
        rest = [piece for piece in band if id(piece) not in inside]
        above, rest = ([piece for piece in rest if (piece.y > table[0].y) == is_above] for is_above in (True, False))
        return [*_band(above, gutter, extent, None), *table, *_band(rest, gutter, extent, below)]
    if not all(sides):  # such as the last line of a paragraph across the gutter
        return _in_order(band, extent) if band else []
    strip = _strip(column_lines(band, extent), min(max(map(_height, side)) for side in sides))
    if strip and not any(_are_text(_lines(side)) for side in sides):
        above, rest = ([piece for piece in band if (piece.y > strip) == is_above] for is_above in (True, False))
        return [*_band(above, gutter, extent, None), *_band(rest, gutter, extent, below)]
    if foot := _foot_of_tables(*map(_lines, sides)):
        return [
            *_band([piece for piece in band if piece.y > foot], gutter, extent, None),
            *column_lines([piece for piece in band if piece.y <= foot], extent),
        ]
    first, second = (_in_order(side, _extent(side)) for side in sides)
    if second[-1].y > first[0].y and len(second) <= len(first):
        return second + first
    is_note = len(second) < len(first) and _flows(first[-1], below)
    return second + first if is_note and not _flows(second[-1], below) else first + second


def _wide_table(band: Sequence[Piece], gutter: float, extent: Span) -> list[Line]:
    """Return the lines of the first table that lies across a gutter, with several cells at least on one side."""
    table: list[Line] = []
    for line in column_lines(band, extent):
        is_across = line.left < gutter < line.right
        is_level = max(map(_height, line.pieces)) - min(map(_height, line.pieces)) < _EXACT * line.size
        is_wide = is_across and is_level and len(cells(line)) > 2
        is_near = bool(table) and table[-1].y - line.y < ROW_GAP * line.size
        if is_near and (is_wide or not is_across):
            table.append(line)
        elif _is_wide_table(table, gutter):
            break
        else:
            table = [line] if is_wide else []
    return table if _is_wide_table(table, gutter) else []


def _is_wide_table(lines: Sequence[Line], gutter: float) -> bool:
    """Return whether enough lines are on both sides of a gutter, most with numbers, and no side is text."""
    across = [line for line in lines if line.left < gutter < line.right]
    n_numbers = sum(any(_kinds(line)) for line in across)
    if len(across) < _FEWEST_ROWS or 2 * n_numbers < len(across):
        return False
    before, after = map(_lines, _sides((piece for line in lines for piece in line.pieces), gutter))
    return not (_are_text(before) or _are_text(after) or _are_alike(before, after))


def _text_rows(before: Sequence[Line], after: Sequence[Line]) -> list[tuple[list[Line], list[Line]]]:
    """Return the lines of each row, if both sides are texts whose paragraphs begin at the same heights; else none.

    Some paragraphs must differ in length: in two columns all may have the same number of lines.
    """
    widths = sorted(max(map(_right, side)) - min(map(_left, side)) for side in (before, after))
    if widths[0] < _AS_WIDE * widths[1] or not (_are_full(before) and _are_full(after)):
        return []
    rows: list[tuple[list[Line], list[Line]]] = []
    for first, second in _rows(*(_spaced_blocks(side) for side in (before, after))):
        if not first or not second or abs(first[0].top - second[0].top) > _LEVEL * first[0].first.size:
            return []
        top, end = max(first[0].top, second[0].top), min(first[-1].end, second[-1].end)
        here = ([line for line in side if end <= line.y <= top] for side in (before, after))
        rows.append((next(here), next(here)))
    n_long = sum(min(map(len, row)) > 1 for row in rows)
    are_uneven = any(len(row[0]) != len(row[1]) for row in rows[:-1])
    return rows if len(rows) >= _FEWEST_ROWS and n_long > 1 and are_uneven else []


def _are_full(lines: Sequence[Line]) -> bool:
    """Return whether many of a side's lines continue in the next one, as in paragraphs."""
    right = max(map(_right, lines))
    return sum(runs_on(a, b, right, any_case=True) for a, b in pairwise(lines)) > _TEXT * (len(lines) - 1)


def _spaced_blocks(lines: Sequence[Line]) -> list[_Stretch]:
    """Return the stretches of lines with no more than the usual distance."""
    usual = min((a.y - b.y for a, b in pairwise(lines)), default=0.0)
    blocks = [_stretch(lines[0])]
    for above, line in pairwise(lines):
        if above.y - line.y > _BLOCK_LEADING * usual:
            blocks.append(_stretch(line))
        else:
            blocks[-1] = replace(blocks[-1], end=line.y)
    return blocks


def _strip(lines: Sequence[Line], top: float) -> float | None:
    """Return a height in the first blank across all lines, below a top, that parts blocks; None without one."""
    steps = [(above.y - line.y, line) for above, line in pairwise(lines)]
    usual = statistics.median(step for step, _ in steps) if steps else 0.0
    wide = (line.y + step / 2 for step, line in steps if step > max(ROW_GAP * line.size, _WIDER * usual))
    return next((height for height in wide if height < top), None)


def _foot_of_tables(before: Sequence[Line], after: Sequence[Line]) -> float | None:
    """Return the height from which on a few lines, such as a total, belong to the tables on both sides above them."""
    above, below = ([line for line in before if (line.y >= after[-1].y) == is_above] for is_above in (True, False))
    n_rows = [sum(len(cells(line)) > 1 for line in side) for side in (above, after)]
    are_tables = all(2 * n > len(side) and n > 1 for n, side in zip(n_rows, (above, after), strict=True))
    if not below or len(below) >= _FEWEST_ROWS or not are_tables or any(len(cells(line)) > 1 for line in below):
        return None
    usual = statistics.median(a.y - b.y for a, b in pairwise(above))
    return below[0].y if above[-1].y - below[0].y > _WIDER * usual else None


def _end_of_choices(before: Sequence[Line], after: Sequence[Line]) -> float | None:
    """Return the end of the choices of a question in two columns, "a, b" beside "c, d"; None without such."""
    numbers = [(line, found[0]) for line in after if (found := _ordinals([line]))]
    first = numbers[0][1] if numbers else 0
    restart = next((above for (above, a), (_, b) in pairwise(numbers) if b == first <= a), None)
    if restart is None or first - 1 not in _ordinals(before):
        return None
    return restart.y - _LEVEL * restart.size


def _flows(line: Line, below: Line | None) -> bool:
    """Return whether a sentence continues in the line across the gutter."""
    if below is None or line.text.endswith((".", "!", "?")) or abs(line.size - below.size) > _RAISED:
        return False
    return runs_on(line, below, line.column[1])


def _sides(pieces: Iterable[Piece], gutter: float) -> tuple[list[Piece], list[Piece]]:
    sides: tuple[list[Piece], list[Piece]] = [], []
    for piece in pieces:
        sides[piece.left >= gutter].append(piece)
    return sides


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


def _gutter(pieces: Sequence[Piece], left: float, right: float) -> float | None:
    """Return the middle of the gap between two columns that run side by side for some lines; None without columns."""
    width, size = right - left, statistics.median(piece.size for piece in pieces)
    falling = sorted(pieces, key=lambda piece: -piece.y)
    step, narrowest = width / _MOST_EDGES, _LEAST_COLUMN * width
    edges = {left + math.ceil((piece.right - left) / step) * step for piece in pieces}
    gaps: dict[tuple[int, int, int], tuple[float, list[Piece]]] = {}
    for edge in sorted({max(edge, left + narrowest) for edge in edges}):
        if edge < right - narrowest:
            n_beside, run = _longest_run(falling, edge, edge + _GUTTER * size)
            if n_beside:
                gaps.setdefault((n_beside, len(run), falling.index(run[0])), (edge + _GUTTER * size / 2, run))
    rows: list[tuple[float, list[Piece]]] = []
    for key in sorted(gaps, reverse=True)[:_MOST_GAPS]:
        gutter, run = gaps[key]
        if any(_is_same(gutter, run, *other) for other in rows):
            continue
        if _are_columns(*map(_lines, _sides(run, gutter))):
            return gutter
        rows.append((gutter, run))
    return None


def _is_same(gutter: float, run: Sequence[Piece], other: float, other_run: Sequence[Piece]) -> bool:
    """Return whether a gap is a part of another one, with nothing between them."""
    is_within = other_run[-1].y <= run[-1].y and run[0].y <= other_run[0].y
    low, high = sorted((gutter, other))
    return is_within and not any(low <= piece.left and piece.right <= high for piece in run)


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


def column_lines(pieces: Iterable[Piece], column: Span) -> list[Line]:
    """Return the lines of one column from top to bottom."""
    lines: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: (-piece.y, piece.left)):
        first = lines[-1][0] if lines and not piece.table and not lines[-1][0].table else None
        if first and first.y - piece.y < _RAISED * max(piece.size, first.size):
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return [Line(tuple(sorted(line, key=lambda piece: piece.left)), column) for line in lines]


def _lines(side: Sequence[Piece]) -> list[Line]:
    return column_lines(side, _extent(side))


@dataclass(frozen=True)
class _Stretch:
    """A block of lines: its first one, and the height of the last."""

    first: Line
    end: float

    @property
    def top(self) -> float:
        """Return the height of the first line."""
        return self.first.y


def _are_columns(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Return whether lines on both sides of a gap are read one side after the other."""
    fewer, more = sorted((before, after), key=len)
    if _are_named(before, after):
        return True
    n_letters = min(sum(letter.isalpha() for line in side for letter in line.text) for side in (before, after))
    if n_letters < _LEAST_LETTERS or len(more) < _FEWEST_ROWS:
        return False
    n_beside = sum(any(abs(line.y - other.y) < _BESIDE * line.size for other in more) for line in fewer)
    are_columns = bool(_text_rows(before, after)) or not are_rows(before, after)
    return 2 * n_beside > len(fewer) and are_columns


def _are_named(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Return whether the file names what is side by side as items, and those at the right as later ones."""
    level = [(line.part, other.part) for line, other in product(before, after) if _are_level(line, other)]
    named = [(part, other) for part, other in level if part.number and other.number]
    if len(named) < 2 or not all(part.is_item and other.is_item for part, other in named):
        return False
    return max(part.number for part, _ in named) < min(other.number for _, other in named)


def are_rows(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Return whether lines on both sides of a gap are cells of rows."""
    if _ordinals_continue_across(before, after) or _are_code(before, after):
        return True
    if _ordinals_continue(before, after) or _are_named(before, after):
        return False
    first, second = (_blocks(side) for side in (before, after))
    rows = list(_rows(first, second))
    n_level = sum(all(row) and _is_level(row) for row in rows)
    n_fewer, n_more = sorted((len(first), len(second)))
    is_text = _are_text(before) or _are_text(after)
    have_rows = n_level >= _LEVEL_ROWS * n_fewer and len(rows) >= _ROWS * n_more and not any(map(_is_torn, rows))
    have_rows = have_rows and (n_level >= _FEWEST_ROWS or not is_text)
    n_pairs = sum(any(_are_level(line, other) for other in after) for line in before)
    are_pairs = n_pairs >= _ROWS * max(len(before), len(after)) and not _are_text(before)
    if _are_labels(before, after) or _are_at_edge(before, after):
        return True
    if not have_rows and not are_pairs:
        return False
    are_entries = _are_text(before) == _are_text(after) and _are_sorted(first, second)
    return not (are_entries or _are_alike(before, after) or _are_short(before, after))


def _are_code(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Return whether both sides are in letters of one width, whose places say what belongs together, and no text."""
    return all(all(line.fixed for line in side) and not _are_text(side) for side in (before, after))


def _are_pairs(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Return whether a few lines at the left are labels, each level with its value, or with a number."""
    level = [(line, other) for line, other in product(before, after) if _are_level(line, other)]
    are_level = len(level) == len(before) == len(after)
    return are_level and all(_LABEL.search(line.text) or is_number(other.text) for line, other in level)


def _are_labels(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Return whether the lines at the left are words, each level with its value, which is longer and no text."""
    widest, widest_after = (max(line.right - line.left for line in side) for side in (before, after))
    fewer, more = sorted((before, after), key=len)
    are_level = len(fewer) >= _FEWEST_ROWS and all(any(_are_level(line, other) for other in more) for line in fewer)
    n_full = sum(line.right - line.left > _FULL * widest_after for line in after)
    is_prose = _are_text(after) and 2 * n_full > len(after)
    are_single = all(len(cells(line)) == 1 for line in (*before, *after))
    return are_level and are_single and widest < widest_after / 2 and not _are_text(before) and not is_prose


def _are_at_edge(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Return whether what ends at the right edge is level with a line at the left, as points or dates are."""
    left, right = _extent([piece for line in after for piece in line.pieces])
    at_edge = [line for line in after if right - line.right < _LEVEL * line.size < line.left - left]
    n_level = sum(any(_are_level(line, other) for other in before) for line in after)
    are_level = all(any(_are_level(line, other) for other in before) for line in at_edge)
    return are_level and len(at_edge) > 1 and 2 * len(at_edge) > n_level and not _are_text(before)


def _are_level(line: Line, other: Line) -> bool:
    return abs(line.y - other.y) < _LEVEL * line.size


def _follow(lines: Sequence[Line]) -> list[bool]:
    """Return whether lines, from the second on, continue the line above."""
    right = max(line.right for line in lines)
    return [runs_on(a, b, right) for a, b in pairwise(lines)]


def _are_text(lines: Sequence[Line]) -> bool:
    """Return whether the lines of a side belong to sentences."""
    return sum(_follow(lines)) > _TEXT * (len(lines) - 1)


def _blocks(lines: Sequence[Line]) -> list[_Stretch]:
    """Return the stretches of lines that belong together: words that did not fit in a line are in the next one."""
    steps = sorted(a.y - b.y for a, b in pairwise(lines))
    usual = steps[len(steps) // 4] if steps else 0.0
    right, is_text = max(line.right for line in lines), _are_text(lines)
    blocks = [_stretch(lines[0])]
    for (above, line), is_same in zip(pairwise(lines), _follow(lines), strict=True):
        is_near = above.y - line.y <= _BLOCK_LEADING * usual
        if is_near and (is_same or (is_text and runs_on(above, line, right, any_case=True))):
            blocks[-1] = replace(blocks[-1], end=line.y)
        else:
            blocks.append(_stretch(line))
    return blocks


def _stretch(line: Line) -> _Stretch:
    return _Stretch(line, line.y - (line.table.height if line.table else 0))


def _rows(before: Sequence[_Stretch], after: Sequence[_Stretch]) -> Iterator[tuple[list[_Stretch], list[_Stretch]]]:
    """Yield the blocks of each row, on both sides: those whose heights overlap."""
    row: tuple[list[_Stretch], list[_Stretch]] = [], []
    end = math.inf
    for block, side in sorted(((b, i) for i, blocks in enumerate((before, after)) for b in blocks), key=_top):
        if any(row) and block.top < end - _LEVEL * block.first.size:
            yield row
            row, end = ([], []), math.inf
        row[side].append(block)
        end = min(end, block.end)
    yield row


def _top(placed: tuple[_Stretch, int]) -> float:
    return -placed[0].top


def _is_torn(row: tuple[list[_Stretch], list[_Stretch]]) -> bool:
    """Return whether several blocks are beside lines of one, and neither their tops nor their middles are level."""
    if not all(row) or sorted(map(len, row))[0] > 1 or len(row[0]) == len(row[1]):
        return False
    (top, end), (other_top, other_end) = ((side[0].top, side[-1].end) for side in row)
    off = min(abs(top - other_top), abs(top + end - other_top - other_end) / 2)
    return off > _LEVEL * row[0][0].first.size


def _is_level(row: tuple[list[_Stretch], list[_Stretch]]) -> bool:
    """Return whether the sides of a row begin, end or have their middles at one height."""
    (top, end), (other_top, other_end) = ((side[0].top, side[-1].end) for side in row)
    off = min(abs(top - other_top), abs(end - other_end), abs(top + end - other_top - other_end) / 2)
    return off < _LEVEL * row[0][0].first.size


def _ordinals(lines: Iterable[Line]) -> list[int]:
    found = (ORDINAL.match(line.text) for line in lines)
    return [int(one[1]) if one[1].isdigit() else ord(one[1]) for one in found if one]


def _ordinals_continue(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Return whether numbers of items down one column continue in the next one, or both sides have bullets."""
    if all(_are_items(side) for side in (before, after)):
        return True
    first, second = _ordinals(before), _ordinals(after)
    count_on = all(b - a == 1 for a, b in pairwise(first + second))
    return bool(first and second) and len(first + second) >= _LEAST_ORDINALS and count_on


def _are_items(lines: Sequence[Line]) -> bool:
    """Return whether most of some lines begin with the marks of lists."""
    n_items = sum(bool(_MARK.match(line.text) or ORDINAL.match(line.text)) for line in lines)
    return n_items > 1 and 2 * n_items > len(lines)


def _ordinals_continue_across(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Return whether the numbers of most items at the left are continued at the right."""
    pairs = [
        (number, at_right)
        for line, other in product(before, after)
        if _are_level(line, other)
        for number, at_right in product(_ordinals([line]), _ordinals([other]))
    ]
    return len(pairs) > 1 and all(b - a == 1 for a, b in pairs)


def _are_sorted(before: Sequence[_Stretch], after: Sequence[_Stretch]) -> bool:
    """Return whether entries are in the order of letters down both sides, one after the other."""
    words: list[str] = []
    for side in (before, after):
        lines = [block.first for block in side if block.first.text[:1].isalpha()]
        left = min((line.left for line in lines), default=0.0)
        outer = [line.text.casefold() for line in lines if line.left < left + _LEVEL * line.size]
        if len(outer) < _LEAST_SORTED:
            return False
        words += outer
    n_sorted = sum(a < b for a, b in pairwise(words))
    return n_sorted >= _SORTED * (len(words) - 1)


def _kinds(line: Line) -> tuple[bool, ...]:
    return tuple(is_number(cell[0].text) for cell in cells(line))


def _n_words(line: Line) -> int:
    """Return the number of a line's cells if all are words, as the heads of columns."""
    kinds = _kinds(line)
    return 0 if any(kinds) else len(kinds)


def _first(line: Line) -> str:
    return words_of(cells(line)[0])


def _are_alike(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Return whether both sides have rows of their own: with the same head, or of a name and its number."""
    level = [(a, b) for a, b in product(before, after) if _are_level(a, b)]
    if any(min(map(_n_words, pair)) > 1 and _first(pair[0]) == _first(pair[1]) for pair in level):
        return True
    if level and min(map(_n_words, level[0])) > 1:
        return False
    alike = [_kinds(a) for a, b in level if _kinds(a) == _kinds(b) and not _kinds(a)[0] and any(_kinds(a))]
    n_rows = sum(max(len(_kinds(a)), len(_kinds(b))) > 1 for a, b in level)
    return len(alike) > 1 and 2 * len(alike) > n_rows


def _are_short(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Return whether both sides are a few lines close together without numbers or labels, such as addresses."""
    top = min(side[0].y + side[0].size for side in (before, after))
    before, after = ([line for line in side if line.y < top] for side in (before, after))  # a title may be above one
    if max(len(before), len(after)) > _SHORT or min(len(before), len(after)) < 2:
        return False
    are_solid = all(a.y - b.y < _SOLID * a.size for side in (before, after) for a, b in pairwise(side))
    have_labels = any(_LABEL.search(line.text) or line.bold for line in before)
    have_cells = any(len(cells(line)) > 1 for line in (*before, *after))
    n_numbers = sum(is_number(line.text) for line in (*before, *after))
    return are_solid and not have_labels and not have_cells and not n_numbers
