"""Leave out what a PDF repeats on its pages: running heads and feet, and page numbers."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from .pdf_blocks import Line
from .pdf_tables import ROW_GAP, cells

#: Share of a page's height at each end that may hold running heads and feet; and the least share of pages that repeat
#: one: those on the left or the right pages only are on fewer than half of them.
_MARGIN, _REPEATED = 0.12, 0.4

#: Heads that change with the chapter: the least gap to the text and the largest size, in sizes of the text; and the
#: least share of pages with one at the same height.
_APART, _LARGEST_HEAD, _HEADED = 1.7, 1.1, 0.5

#: Lines from this many times the text's size on are large, and may be the headings of chapters.
_LARGE = 1.4

#: Least share of letters in the text's size, unless text recognition guessed the sizes; in that case, headings exceed
#: the median by this factor.
_LEAST_OF_A_SIZE, _ABOVE_MEDIAN = 0.3, 1.2

_NUMBER = re.compile(r"\d+|\b[ivxlc]+\b")

#: A line that says its page.
_PAGE = re.compile(
    r"\W*(?:page|seite|página|pagina|страница)\s+(\w+)(?:\s*(?:/|of|von|sur|de|di|из)\s*\d+)?\W*", re.IGNORECASE
)

#: What lines of several pages share: their height, and their words, or "" for lines with the number of their page.
_Key = tuple[int, str]


def without_repeats(pages: list[list[Line]], heights: Sequence[float], labels: Sequence[str]) -> list[list[Line]]:
    """Leave out lines near an edge that repeat, up to numbers, at one height on most pages; but no rows of tables.

    Numbers distinguish large lines, which may be headings of chapters at the top of a page.
    """
    size = usual_size(pages)
    keys_of = [_keys_of_page(page, heights[i], labels[i], _LARGE * size) for i, page in enumerate(pages)]
    pages = [
        [line for line in page if id(line) not in keys or not _says_page(line.text, label)]
        for page, keys, label in zip(pages, keys_of, labels, strict=True)
    ]
    if len(pages) < 3:
        return pages
    places: dict[_Key, dict[int, str]] = defaultdict(dict)
    for number, keys in enumerate(keys_of):
        for line in pages[number]:
            for key in keys.get(id(line), ()):
                places[key][number] = line.text
    repeated = {key for key, texts in places.items() if len(texts) >= max(3, _REPEATED * len(pages))}
    repeated |= {key for key in _chapter_heads(pages, keys_of, size) if len(places[key]) > 1}
    repeated -= {key for key in repeated if _are_numbered_headings(places[key])}
    numbers = [_page_number(page, keys) for page, keys in zip(pages, keys_of, strict=True)]
    offsets = Counter(value - index for index, (alone, value) in enumerate(numbers) if alone)
    kept = []
    for index, (lines, keys) in enumerate(zip(pages, keys_of, strict=True)):
        left_out = {id(line) for line in lines if repeated.intersection(keys.get(id(line), ()))}
        rows = {id(line) for line, after in _neighbours(lines) if _is_row(line, after, left_out)}
        alone, value = numbers[index]
        if alone and offsets[value - index] >= max(3, _REPEATED * offsets.total()):
            left_out.add(id(alone))
        kept.append([line for line in lines if id(line) not in left_out or id(line) in rows])
    return kept


def _says_page(text: str, label: str) -> bool:
    """Return whether a line only says which page it is on: "Page 1", "Page 1 of 9"."""
    found = _PAGE.fullmatch(text)
    return found is not None and found[1] == label


def _keys_of_page(lines: Sequence[Line], height: float, label: str, large: float) -> dict[int, list[_Key]]:
    """Return the keys of the lines near the edges of a page, but for lines that occur on it several times."""
    texts = Counter(_NUMBER.sub("#", line.text) for line in lines)
    keys = {}
    for line in lines:
        text, end = _NUMBER.sub("#", line.text), line.y - (line.table.height if line.table else 0)
        if texts[text] == 1 and (end > (1 - _MARGIN) * height or line.y < _MARGIN * height):
            place, words = round(line.y / 4), line.text.split()
            keys[id(line)] = [(place, text if line.size < large else line.text)]
            if line.size < large and label in (words[0], words[-1]):
                keys[id(line)].append((place, ""))
    return keys


def _chapter_heads(pages: list[list[Line]], keys_of: Sequence[dict[int, list[_Key]]], size: float) -> set[_Key]:
    """Return heads that change with the chapter: in the text's size, apart from it, at one height on most pages."""
    heads: dict[int, list[_Key]] = defaultdict(list)
    for lines, keys in zip(pages, keys_of, strict=True):
        for line in (line for line in lines if id(line) in keys):
            others = [other.y - line.y for other in lines if abs(other.y - line.y) > 0.5 * line.size]
            is_outermost = all(other > 0 for other in others) or all(other < 0 for other in others)
            is_apart = all(abs(other) > _APART * line.size for other in others)
            if is_outermost and is_apart and line.size < _LARGEST_HEAD * size:
                key = keys[id(line)][0]
                heads[key[0]].append(key)
    return {key for alike in heads.values() if len(alike) >= max(3, _HEADED * len(pages)) for key in alike}


def _are_numbered_headings(texts: dict[int, str]) -> bool:
    """Return whether lines count on by one from one to the next, and not with the pages, as clauses do."""
    counts = zip(*([int(n) for n in re.findall(r"\d+", text)] for text in texts.values()), strict=False)
    with_pages = all(after - before == 1 for before, after in pairwise(texts))
    return not with_pages and any(all(after - before == 1 for before, after in pairwise(count)) for count in counts)


def _page_number(lines: Sequence[Line], keys: dict[int, list[_Key]]) -> tuple[Line | None, int]:
    """Return the outermost line of a page that is only a number, and its value; or None and 0."""
    for line in (min(lines, key=lambda line: line.y, default=None), max(lines, key=lambda line: line.y, default=None)):
        found = re.fullmatch(r"\W*(\d{1,4})\W*", line.text) if line and id(line) in keys else None
        if found:
            return line, int(found[1])
    return None, 0


def _neighbours(lines: Sequence[Line]) -> list[tuple[Line, Line]]:
    """Return each two lines that follow each other, in both directions."""
    return [*pairwise(lines), *((after, before) for before, after in pairwise(lines))]


def _is_row(line: Line, after: Line, left_out: set[int]) -> bool:
    """Return whether a line has cells, as has a line beside it that does not repeat."""
    is_close = line.column == after.column and 0 < abs(line.y - after.y) < ROW_GAP * line.size
    return is_close and id(after) not in left_out and min(len(cells(line)), len(cells(after))) > 1


def usual_size(pages: list[list[Line]]) -> float:
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
