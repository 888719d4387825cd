"""Find the tables in a text, and the head of each: the names of its columns, without which its rows say little.

Tables are those of Markdown. A file of separated values is one table.
"""

from __future__ import annotations

import csv
import io
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

#: Most characters of a head. A larger one is not repeated: it would take the room of the rows.
MOST_HEAD = 2000

#: Most characters of a row before a place in it. A longer row is a text of its own.
_MOST_ROW = 800

#: Most rows of a head, and most characters of a file of separated values in which the head is sought.
_MOST_ROWS, _SAMPLE = 4, 50_000

#: The line under a head, such as | --- | :-: |, and the rows below it: with a bar before them, or without.
_RULE = re.compile(r"\n[ >\t]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*+(?=\n|\Z)")
_ROWS, _ROWS_WITHOUT_BARS = re.compile(r"(?:\n[ >\t]*+\|[^\n]*+)*+"), re.compile(r"(?:\n[^\n|]*+\|[^\n]*+)*+")

#: What parts the cells of a row.
_BAR = re.compile(r"(?<!\\)\|")

#: The rows that a text begins with.
_FIRST_ROWS = re.compile(r"(?:[ >\t]*+\|[^\n]*+(?:\n|\Z))*+")

#: Names of files of separated values, and of parts of documents; what separates the values, the likeliest first.
_SEPARATED = re.compile(r"\.(?:csv|tsv|tab)(?:, part \d+ of \d+)?$", re.IGNORECASE)
_LATER_PART = re.compile(r", part (?!1 )\d+ of \d+$")
_SEPARATORS = ";\t|,"

_YEAR = re.compile(r"(?:19|20)\d\d")


class Table(NamedTuple):
    """A table, from character `start` up to `stop`, and its head.

    The head of a table that continues another one, on the next page, is that one's. Without names it is empty.
    """

    start: int
    stop: int
    head: range
    n_columns: int


class Above(NamedTuple):
    """What belongs before a place in a table: the head, from `start` up to `stop`, and the row from its beginning."""

    start: int
    stop: int
    row: int


class TableHeads:
    """The tables of a text, and their heads.

    Parameters
    ----------
    name : str
        Name of the document, or of a part of one: "stock.csv, part 2 of 5".

    Attributes
    ----------
    n_continued : int
        Characters of the rows that a part begins with, whose table begins in a part before; 0 without such rows.
    """

    def __init__(self, text: str, name: str) -> None:
        self._text, self.n_continued = text, 0
        is_separated, is_later = _SEPARATED.search(name), _LATER_PART.search(name)
        self.tables = [] if is_separated else list(_markdown_tables(text))
        if is_later:
            rows = _FIRST_ROWS.match(text)
            n_rows = len(text) if is_separated or rows is None else rows.end()
            self.n_continued = min([n_rows, *(table.start for table in self.tables[:1])])
            self.tables[:0] = [Table(0, self.n_continued, range(0), 0)] * bool(self.n_continued)
        elif is_separated:
            self.tables = [_separated_values(text)]
        self._starts = [table.start for table in self.tables]

    def above(self, offset: int) -> Above | None:
        """Return what belongs before a place; None outside tables, and where one begins that has a head.

        A place in a head lacks only what the head has before it.
        """
        number = bisect_right(self._starts, offset) - 1
        if number < 0 or offset >= self.tables[number].stop:
            return None
        start, _, head, _ = self.tables[number]
        if offset in head:
            is_near = start < offset <= start + MOST_HEAD
            return Above(start, start, start) if is_near else None
        row = max(self._text.rfind("\n", start, offset) + 1, start)
        row = row if offset - row <= _MOST_ROW else offset
        return Above(head.start, head.stop if len(head) <= MOST_HEAD else head.start, row)

    def head(self, offset: int) -> str:
        """Return the head that belongs before a place; nothing if it has all of it, or there is none."""
        above = self.above(offset)
        return self._text[above.start : above.stop] if above else ""


def _markdown_tables(text: str) -> Iterator[Table]:
    before = Table(0, 0, range(0), 0)
    for rule in _RULE.finditer(text):
        start = text.rfind("\n", 0, rule.start()) + 1
        names = text[start : rule.start()]
        if start < before.stop or "|" not in rule[0] or "|" not in names:
            continue
        has_bar = names.lstrip(" >\t").startswith("|")
        below = (_ROWS if has_bar else _ROWS_WITHOUT_BARS).match(text, rule.end())
        stop = min((below.end() if below else rule.end()) + 1, len(text))
        first = min(rule.end() + 1, stop)
        rows = [(first, _cells(names)), *islice(_rows(text, first, stop), _MOST_ROWS)]
        head, n_columns = range(start, _end_of_head(start, rows)), len(rows[0][1])
        if not head and before.n_columns == n_columns and not text[before.stop : start].strip():
            head = before.head
        before = Table(start, stop, head, n_columns)
        yield before


def _rows(text: str, start: int, stop: int) -> Iterator[tuple[int, list[str]]]:
    """Yield where each row of a table in Markdown ends, and its cells."""
    while start < stop:
        end = text.find("\n", start, stop) + 1 or stop
        yield end, _cells(text[start:end])
        start = end


def _cells(line: str) -> list[str]:
    """Return the cells of a row in Markdown."""
    return [cell.strip() for cell in _BAR.split(line.strip(" >\t\n").removeprefix("|").removesuffix("|"))]


def _separated_values(text: str) -> Table:
    lines = list(islice(io.StringIO(text[:_SAMPLE], newline=""), 20))
    separator = max(_SEPARATORS, key=lambda each: _most_alike([line.count(each) for line in lines]))
    reader = csv.reader(lines, delimiter=separator)
    rows = ((reader.line_num, [cell.strip() for cell in cells]) for cells in reader)
    first = list(islice((row for row in rows if any(row[1])), _MOST_ROWS + 1))
    end = _end_of_head(0, [(sum(map(len, lines[:n_lines])), cells) for n_lines, cells in first])
    return Table(0, len(text), range(end), 0)


def _most_alike(counts: list[int]) -> int:
    """Return how many lines have the same number of a separator, which they have."""
    return max(Counter(filter(None, counts)).values(), default=0)


def _end_of_head(start: int, rows: list[tuple[int, list[str]]]) -> int:
    """Return where the head of a table ends, by where its first rows end and by their cells.

    Below a title that is alone in its row, and below a cell that is repeated in each column that it spans, the next row
    has the names.
    """
    width = max((len(cells) for _, cells in rows), default=0)
    padded = [cells + [""] * (width - len(cells)) for _, cells in rows]
    if not padded or not any(padded[0]) or _are_alike(padded[:2], "0"):
        return start
    for number, cells in enumerate(padded[:_MOST_ROWS]):
        if number and _are_alike(padded[number : number + 2]):
            break
        if all(cell and cell != before for before, cell in pairwise(cells)):
            return rows[number][0]
    return rows[0][0]


def _are_alike(rows: list[list[str]], but: str = "") -> bool:
    """Return whether the first of two rows has values: a number, date or code, as the other has in the same column.

    Parameters
    ----------
    but : str
        What does not count: whole numbers, which may be names of columns. Years never count.
    """
    if len(rows) < 2:
        return False
    shapes = ((cell, re.sub(r"\d+", "0", cell), re.sub(r"\d+", "0", under)) for cell, under in zip(*rows, strict=True))
    return any(a == b != but and "0" in a and not _YEAR.fullmatch(cell) for cell, a, b in shapes)
