"""Leave out the lines at the edges of a PDF's pages that the page before has, too, and the numbers of pages.

No other line is left out: each has words, numbers included, that the text has elsewhere.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from .pdf_blocks import Line
from .pdf_hyphens import joined
from .pdf_packed import Packed
from .pdf_tables import ROW_GAP, cells, runs_on

#: Share of a page's height at each end that may hold running heads and feet; and the least shares of pages that have
#: the same one (left or right pages only are fewer than half of all), that have any at its height, and that have the
#: same large one, as slides may have equal titles.
_MARGIN, _REPEATED, _HEADED, _ON_ALL = 0.12, 0.4, 0.5, 0.8

#: Fewest pages that have a running head.
_FEWEST = 3

#: Least space between running heads and the text, the height of capitals, and most that parts of a line differ in
#: height, in font sizes.
_APART, _CAPITALS, _LEVEL = 0.9, 0.8, 0.5

#: The space at the end of a page.
_FREE = float("inf")

#: Largest running heads and numbers of pages, in sizes of the text.
_LARGEST = 1.1

#: Most words of running heads that are left out, as a share of all: on pages with little text, heads are a part of it.
_MOST_LEFT_OUT = 0.05

#: Points within which running heads have the same height.
_SAME_HEIGHT = 4

#: Least share of letters in the text's size, unless text recognition guessed the sizes; in that case, headings exceed
#: the median by this factor.
_LEAST_OF_A_SIZE, _ABOVE_MEDIAN = 0.3, 1.2

#: The number of a page, with the number of pages or without; the words that name it; and years, which are titles.
_NUMBER = r"(?P<number>\d{1,4}|[ivxlc]{1,8})(?:\s*(?P<of>/|of|von|sur|de|di|из)\s*(?P<all>\d{1,4}))?"
_ALONE = re.compile(rf"\W*{_NUMBER}\W*", re.IGNORECASE)
_NAMED = re.compile(rf"\W*\b(?:page|seite|página|pagina|страница|p\.|pg\.|s\.)\s*{_NUMBER}(?!\w)\W*", re.IGNORECASE)
_YEARS = range(1500, 2200)


class Repeats(NamedTuple):
    """The pages of a document without what they repeat.

    Parameters
    ----------
    pages : Packed of list of Line
        The lines that stay.
    heads, feet : list of list of str
        For each page its running heads, and its running feet, but for those that the page before has, too.
    left_out : list of list of str
        For each page the texts that were left out, with the reason.
    """

    pages: Packed[list[Line]]
    heads: list[list[str]]
    feet: list[list[str]]
    left_out: list[list[str]]


@dataclass
class _Row:
    """All lines at one height near an edge of a page.

    Parameters
    ----------
    place : tuple
        Whether it is at the top, and its height, roughly.
    words : str
        Without the number of the page.
    number : str
        The number that it may have of the page, or "".
    at : int
        Where this number is: at the row's start (-1), at its end (1), alone or elsewhere (0).
    is_named : bool
        Whether the row calls it the number of a page.
    numbered : str
        The number with the words that call it so.
    begins : bool
        Whether the pages before do not have it at the same place.
    """

    lines: list[Line]
    place: tuple[bool, int]
    words: str
    number: str = ""
    at: int = 0
    is_named: bool = False
    numbered: str = ""
    begins: bool = False

    @property
    def text(self) -> str:
        return " ".join(line.text for line in self.lines)

    @property
    def size(self) -> float:
        return max(line.size for line in self.lines)

    def is_title(self, largest: float) -> bool:
        """Return whether it may be a title, by its size, as a number at the foot of a page is not."""
        return self.size > largest and (self.place[0] or bool(self.words))

    @property
    def key(self) -> int:
        """A number for its place and its words: documents have many rows."""
        return hash((self.place, self.words))


@dataclass
class _Edge:
    """The rows near an edge of a page, from outside in; and the space between each and the next one, in font sizes."""

    rows: list[_Row] = field(default_factory=list)
    spaces: list[float] = field(default_factory=list)


def without_repeats(pages: Iterable[list[Line]], heights: Sequence[float], labels: Sequence[str]) -> Repeats:
    """Leave out running heads and feet but where they begin, and the numbers of pages.

    A running head repeats word for word, at the very edge of most pages, apart from their text.

    Parameters
    ----------
    pages : iterable of list of Line
        They are asked for several times.
    """
    largest, n_words = _LARGEST * usual_size(pages), 0
    edges = Packed[tuple[_Edge, _Edge]]()
    for page, height in zip(pages, heights, strict=True):
        edges.append(_edges(page, height, len(heights)))
        n_words += sum(len(line.text.split()) for line in page)
    numbers = _page_numbers(edges, labels, largest)
    edges = Packed(_with_number(both, number, largest) for both, number in zip(edges, numbers, strict=True))
    repeated = _repeated(edges, len(heights), largest)
    outer = Packed(_with_beginnings(Packed([row for edge in both for row in _outer(edge, repeated)] for both in edges)))
    left = _left_out(outer, n_words)
    made = Repeats(Packed(), [], [], [])
    for page, rows in zip(pages, outer, strict=True):
        moved = [row for row in rows if not row.begins or not row.is_title(largest)]
        gone = {line for row in moved for line in row.lines}
        made.pages.append([line for line in page if line not in gone])
        kept = [row for row in moved if row.words and (row.begins or row.key not in left)]
        made.heads.append(_paragraphs([row for row in kept if row.place[0]]))
        made.feet.append(_paragraphs([row for row in reversed(kept) if not row.place[0]]))
        texts = [f"repeated: {row.words}" for row in moved if row.key in left and not row.begins]
        made.left_out.append(texts + [f"number of the page: {row.numbered}" for row in moved if row.number])
    return made


def _paragraphs(rows: Sequence[_Row]) -> list[str]:
    """Return the words of rows from top to bottom, of those that continue a sentence together."""
    right = max((line.right for row in rows for line in row.lines), default=0.0)
    paragraphs: list[list[str]] = []
    for above, row in pairwise([None, *rows]):
        if above and row and runs_on(above.lines[-1], row.lines[0], right):
            paragraphs[-1].append(row.words)
        elif row:
            paragraphs.append([row.words])
    return [joined(lines, Counter()) for lines in paragraphs]


def _with_number(both: tuple[_Edge, _Edge], number: str, largest: float) -> tuple[_Edge, _Edge]:
    """Return the edges of a page, in whose rows other numbers than the page's are words."""
    for row in (row for edge in both for row in edge.rows):
        if row.number and not (row.number == number and (not row.words or row.size <= largest)):
            row.words, row.number = row.text, ""
    return both


def _edges(lines: Sequence[Line], height: float, n_pages: int) -> tuple[_Edge, _Edge]:
    """Return the rows near the top of a page, and those near its foot."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: -line.y):
        if rows and rows[-1][0].y - line.y < _LEVEL * min(line.size, rows[-1][0].size):
            rows[-1].append(line)
        else:
            rows.append([line])
    spaces = [_space(*rows[number : number + 3]) for number in range(len(rows))]
    top, foot = _Edge(), _Edge()
    for row, space in zip(rows, spaces, strict=True):
        if _end(row) <= (1 - _MARGIN) * height:
            break
        top.rows.append(_row(row, n_pages, is_top=True))
        top.spaces.append(space)
    for row, space in zip(reversed(rows[len(top.rows) :]), [*reversed(spaces[:-1]), _FREE], strict=False):
        if row[0].y >= _MARGIN * height:
            break
        foot.rows.append(_row(row, n_pages, is_top=False))
        foot.spaces.append(space)
    return top, foot


def _end(row: Sequence[Line]) -> float:
    return min(line.y - (line.table.height if line.table else 0) for line in row)


def _space(row: Sequence[Line], *after: Sequence[Line]) -> float:
    """Return the height without letters under a row, in sizes of the smaller letters; 0 between rows of a table."""
    if not after:
        return _FREE
    sizes = [max(line.size for line in lines) for lines in (row, after[0])]
    n_cells = [max(len(cells(line)) for line in lines) for lines in (row, *after)]
    steps = [(before[0].y - following[0].y) / min(sizes) for before, following in pairwise((row, *after))]
    if n_cells[0] > 1 and any(
        n > 1 and step < ROW_GAP for n, step in zip(n_cells[1:], accumulate(steps, max), strict=True)
    ):
        return 0.0
    return (_end(row) - after[0][0].y - _CAPITALS * sizes[1]) / min(sizes)


def _whole(lines: Sequence[Line]) -> Line:
    """Return the parts of a row as one line."""
    pieces = sorted((piece for line in lines for piece in line.pieces), key=lambda piece: piece.left)
    return Line(tuple(pieces), lines[0].column)


def _row(lines: list[Line], n_pages: int, *, is_top: bool) -> _Row:
    """Return a row, with the number that may be the number of its page."""
    place = is_top, round(lines[0].y / _SAME_HEIGHT)
    row = _Row(sorted(lines, key=lambda line: line.left), place, "")
    row.words = row.text
    if any(line.table for line in lines):
        return row
    texts = [" ".join(piece.text for piece in cell) for cell in cells(_whole(lines))]
    for position, text in enumerate(texts):
        others = " ".join(texts[:position] + texts[position + 1 :])
        named = _NAMED.search(text)
        found = _ALONE.fullmatch(text) or named
        if found and (named or found["of"] != "/" or int(found["all"]) == n_pages):
            rest = "" if found is not named else text[: named.start()] + " " + text[named.end() :]
            row.words = " ".join(f"{others} {rest}".split())
            row.number, row.is_named, row.numbered = found["number"].lower(), bool(named), found[0].strip()
            row.at = -1 if position == 0 else 1 if position == len(texts) - 1 else 0
            row.at = row.at if len(texts) > 1 else 0
            break
    return row


def _page_numbers(edges: Iterable[tuple[_Edge, _Edge]], labels: Sequence[str], largest: float) -> list[str]:
    """Return the number that each page has of itself, or "": its label, or a number that rises from page to page.

    Alone in its line, or named, or beside a running head if it is the label or changes sides as in books.
    """
    rows_of = [
        [replace(row, lines=[]) for edge in both for row in edge.rows if row.number and not row.is_title(largest)]
        for both in edges
    ]
    in_book = _numbers_of_book(rows_of)
    counts: Counter[str] = Counter()
    sides: dict[str, set[int]] = defaultdict(set)
    for index, (rows, label) in enumerate(zip(rows_of, labels, strict=True)):
        for way, those in _by_way(rows, index, label).items():
            sides[way] |= {row.at for row in those}
            counts[way] += 1
    n_numbered = sum(map(bool, rows_of))
    numbers = []
    for index, (rows, label, of_book) in enumerate(zip(rows_of, labels, in_book, strict=True)):
        found = _by_way(rows, index, label)
        best = max(found, key=lambda way: (way == "label", counts[way]), default="")
        is_series = counts[best] >= max(_FEWEST, _REPEATED * n_numbered)
        number = ""
        for row in found.get(best, ()):
            if best == "label":
                is_proved = is_series or row.is_named
            elif row.words and not row.is_named:
                is_proved = is_series and {-1, 1} <= sides[best]
            else:
                is_proved = is_series and (row.is_named or _value(row.number) not in _YEARS)
            number = row.number if is_proved else number
        numbers.append(number or of_book)
    return numbers


def _by_way(rows: Iterable[_Row], index: int, label: str) -> dict[str, list[_Row]]:
    """Return the rows of a page by the kind of their number: its label, or at a distance from its index."""
    found: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        way = "label" if row.number == label.lower() else f"{_value(row.number) - index:+d}"
        found[way].append(row)
    return found


def _numbers_of_book(rows_of: Sequence[Sequence[_Row]]) -> list[str]:
    """Return the numbers beside the running heads of a book, or of a part of its pages.

    Even numbers are at the left, odd ones at the right, and they rise, Roman ones first.
    """
    beside = [[row for row in rows if row.words and row.at] for rows in rows_of]
    numbers = [next((row.number for row in rows if (row.at > 0) == _value(row.number) % 2), "") for rows in beside]
    rising = [(number.isdigit(), _value(number)) for number in numbers if number]
    n_odd = sum(value % 2 for _, value in rising)
    are_of_book = len(rising) >= 2 * _FEWEST and 0 < n_odd < len(rising) and all(a < b for a, b in pairwise(rising))
    return numbers if are_of_book else [""] * len(numbers)


def _value(number: str) -> int:
    """Return the value of a number in Arabic or Roman digits."""
    if number.isdigit():
        return int(number)
    values = [{"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}[digit] for digit in number]
    return sum(-a if a < b else a for a, b in pairwise([*values, 0]))


def _repeated(edges: Iterable[tuple[_Edge, _Edge]], n_pages: int, largest: float) -> set[int]:
    """Return the keys of rows that are on most pages, or where most pages have a row apart from text."""
    pages_of: Counter[int] = Counter()
    headed: Counter[tuple[bool, int]] = Counter()
    kinds: dict[int, tuple[tuple[bool, int], bool]] = {}  # of those on two pages or more
    for both in edges:
        rows = {row.key: row for edge in both for row in edge.rows if row.words}
        pages_of.update(list(rows))
        kinds.update({key: (row.place, row.size > largest) for key, row in rows.items() if pages_of[key] > 1})
        headed.update({edge.rows[0].place for edge in both if edge.rows and edge.spaces[0] > _APART})
    most = max(_FEWEST, _REPEATED * n_pages)
    many, on_all = max(_FEWEST, _HEADED * n_pages), max(_FEWEST, _ON_ALL * n_pages)
    return {
        key
        for key, (place, is_large) in kinds.items()
        if pages_of[key] >= (on_all if is_large else 2 if headed[place] >= many else most)
    }


def _outer(edge: _Edge, repeated: set[int]) -> list[_Row]:
    """Return the outermost rows of an edge that repeat or have the page's number, if the text is apart."""
    n_outer = 0
    for number, (row, space) in enumerate(zip(edge.rows, edge.spaces, strict=True)):
        if row.key not in repeated and (row.words or not row.number):
            break
        if space > _APART:
            n_outer = number + 1
    return edge.rows[:n_outer]


def _with_beginnings(pages: Iterable[list[_Row]]) -> Iterator[list[_Row]]:
    """Yield the rows of each page, of which those begin that the pages before do not have at the same place.

    In books, the heads of left pages and of right pages differ.
    """
    sides: dict[tuple[bool, int], tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    n_pages: Counter[tuple[bool, int]] = Counter()
    for index, rows in enumerate(pages):
        for row in rows:
            sides[row.place][_side(row, index)].add(row.words)
            n_pages[row.place] += 1
    two_sided = {
        place for place, (left, right) in sides.items() if left.isdisjoint(right) and n_pages[place] >= 2 * _FEWEST
    }
    last: dict[tuple[tuple[bool, int], int], str] = {}
    for index, rows in enumerate(pages):
        for row in (row for row in rows if row.words):
            key = row.place, _side(row, index) if row.place in two_sided else 0
            row.begins, last[key] = last.get(key) != row.words, row.words
        yield rows


def _side(row: _Row, index: int) -> int:
    """Return which pages of a book a head is on, left or right ones: the side of its number tells, or every other."""
    return int(row.at > 0) if row.number and row.at else index % 2


def _left_out(pages: Iterable[Sequence[_Row]], n_words: int) -> set[int]:
    """Return the keys of the running heads that are left out: those with the fewest words first, and few in all."""
    lengths: Counter[int] = Counter()
    for row in (row for rows in pages for row in rows if row.words and not row.begins):
        lengths[row.key] += len(row.words.split())
    rising = sorted(lengths, key=lambda key: lengths[key])
    sums = accumulate(lengths[key] for key in rising)
    return {key for key, n_left in zip(rising, sums, strict=True) if n_left <= _MOST_LEFT_OUT * n_words}


def without_repeated_marks(pages: Iterable[Sequence[Line]]) -> Iterator[tuple[list[Line], list[str]]]:
    """Yield the lines over the text of each page, such as watermarks, without those that the page before has, too."""
    before: set[str] = set()
    for lines in pages:
        texts = {line.text for line in lines}
        left_out = [f"repeated: {line.text}" for line in lines if line.text in before]
        yield [line for line in lines if line.text not in before], left_out
        before = texts or before


def usual_size(pages: Iterable[list[Line]]) -> float:
    """Return the size of most letters. If text recognition gave each line its own size, return a large one."""
    letters: Counter[float] = Counter()
    for line in (line for page in pages for line in page):
        letters[round(line.size, 1)] += len(line.text)
    if not letters:
        return 1.0
    size, n_letters = letters.most_common(1)[0]
    if n_letters >= _LEAST_OF_A_SIZE * letters.total():
        return size
    return _ABOVE_MEDIAN * statistics.median_low(letters.elements())
