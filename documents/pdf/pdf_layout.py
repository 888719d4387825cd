"""Rebuild a page's layout from pieces of its lines: columns, lines, paragraphs, headings, lists and tables.

All lengths are in points, and y grows upwards, as in a PDF.
"""

from __future__ import annotations

import re
import statistics
import unicodedata
from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import pairwise

from .pdf_blocks import Block, Line
from .pdf_columns import ORDINAL
from .pdf_tables import ROW_GAP, cells, find_tables, is_number, runs_on, words_of

#: Most that lines of a paragraph, and of an unfinished sentence, are further apart than is usual, in font sizes; and
#: the most distance of the lines of a heading and of code, in font sizes.
_EXTRA_LEADING, _OPEN_LEADING = 0.35, 1.0
_HEADING_LEADING, _CODE_LEADING = 1.6, 3.0

#: Most distance of lines that counts as that of a paragraph, and the usual one where there is none, in font sizes.
_MOST_LEADING, _USUAL_LEADING = 2.5, 1.2

#: Lines that are so far apart are those of paragraphs only if there are so many.
_OPEN, _FEWEST_OPEN = 1.7, 5

#: Points within which lines have the same size; and most that lines of a paragraph differ in size, as a share.
_SAME_SIZE, _SIMILAR_SIZE = 0.5, 0.2

#: Share of its column that a line leaves free at most: a justified one, a full one, and one that may be full.
_JUSTIFIED, _RAGGED, _VERY_RAGGED = 0.1, 0.15, 0.4

#: Least indents, in font sizes: of the second line of an item, and of the first line of a paragraph.
_ITEM_INDENT, _PARAGRAPH_INDENT = 0.3, 0.7

#: Letters of a heading are larger than the text's by this factor, and those of labels in pictures smaller by this one.
_HEADING_SIZE, _LABEL_SIZE = 1.12, 0.9

_BULLET = re.compile(r"[•◦▪‣●○■\u2013\u2014·*-]\s+(?=\S)")

_SURE_BULLET = re.compile(r"[•◦▪‣●○■]\s+(?=\S)")

#: The beginnings of captions of pictures and tables.
_CAPTION = re.compile(r"(fig(ure|\.)|table|listing|algorithm)\s+[\dIVX]", re.IGNORECASE)

#: Dots that lead from an entry of a table of contents to its page, or to a price, which may begin with a dot.
LEADER = re.compile(r"((\s*\.){3,}(?=\s+\.\d)|(\s*\.){4,})\s*")
_NUMBERED = re.compile(r"\(?(\d{1,3}|[a-z]|[A-Z](?=\)))[.)]\s+(?=\S)")

#: A value with its label, or an amount with its currency; an amount alone; and years.
_AMOUNT = re.compile(
    r":\s*\S*\d\S*$|[$€£¥]\s?[\d.,]*\d$|\d[.,]\d\d\s?([$€£¥]|[A-Z]{3})$|[A-Z]{3}\s[\d.,]*[.,]\d\d$|:\s+\d.*\d$"
    r"|(?<![\d.,])(\d+,|(\d{1,3},)?\d{3}\.)\d\d$"
)
_MONEY = re.compile(r"\D{0,5}\d[\d.,\s]*[.,]\d\d\D{0,4}")
_YEARS = re.compile(r"(?<!\d)(1[5-9]|20)\d\d(?!\d)")

#: The number and the name of a section, where others are a number and its unit; and addresses of pages and of mail.
_SECTION = re.compile(r"\d{1,2}(\.\d+)*\s+(?![A-Z]+$)[^\W\d_a-z][^\W\d_]{2}|[^\W\d_a-z][^\W\d_A-Z]{2} \d{1,3}")
_ADDRESS = re.compile(r"(https?://|www\.)\S+|\S+@\S+|[\w-]+(\.[\w-]+)+/\S*")

#: Most lines of a heading; how much more room it has above than below; and the least width of a paragraph under one in
#: a font of its own, in font sizes.
_MOST_OF_HEADING, _MORE_ROOM, _PARAGRAPH = 4, 1.3, 10

#: The gap between a text and the words apart from it at the right, in font sizes; and the largest share of a line that
#: dates and the like at the right of a title take.
_APART, _LONG_DATE = 3.0, 0.4

#: Most lines of one of several paragraphs that are a list without marks.
_MOST_OF_ENTRY = 2

#: The least share of lines of verse that had room for the next word, and some more, in font sizes.
_VERSE, _SPARE = 0.3, 0.25

#: What prose has: lines that fill so much of their width at least, ends of sentences within lines, and lines that end
#: at one place, up to so many font sizes.
_FILLED = 0.87
_SENTENCE_END, _FLUSH = re.compile(r"[^\W\d_]{2}[.!?][\"'\u201d\u201c\u00bb)]?\s+[^\W\d_a-zß-ÿ]"), 0.02

#: Fewest lines of a list without marks; the share of their width that full lines fill; the most of its lines that are
#: full; and the least share of those that end with the number of a page, as in an index.
_FEWEST_ENTRIES, _FULL, _MOST_FULL, _LISTED = 3, 0.75, 0.7, 0.4


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
    lines = [part for line in lines for part in _choices(line)]
    leading, page_size = _leading(lines), _page_size(lines)
    n_cells = [0 if _parts_tables(line, body_size, titles) else _n_cells(line) for line in lines]
    tables = {table.start: table for table in find_tables(lines, n_cells)}
    grouped: list[Block] = []
    position = 0
    while position < len(lines):
        line, after = lines[position], lines[position + 1] if position + 1 < len(lines) else None
        table = tables.get(position)
        if table:
            grouped.append(Block(list(lines[position : table.stop]), "table", table.rows))
            position = table.stop
            continue
        if line.table:
            grouped.append(Block([line], "table", line.table.rows))
            position += 1
            continue
        kind = "heading" if line.part.level or plain(line.text) in titles else _kind(line, body_size)
        before = grouped[-1].lines[-1] if grouped else None
        if n_cells[position] > 1 and kind in ("text", "heading"):
            kind = _kind_of_row(line, kind, body_size, grouped, n_cells[position + 1 : position + 2])
        elif before and grouped[-1].kind == "text" and kind == "item" and not _SURE_BULLET.match(line.text):
            kind = "text" if _runs_on(before, line, leading) and abs(before.left - line.left) < line.size else kind
        elif _is_bold_only(line, kind, body_size, titles) and (
            _in_text(grouped, line, after, leading) or _is_label(grouped, line, after, page_size)
        ):
            kind = "text"
        if kind == "text" and line.part.is_item and not (before and before.part == line.part):
            kind = "item"
        if kind == "heading" and after and _MONEY.fullmatch(after.text) and after.size > line.size - _SAME_SIZE:
            kind = "text"  # it only names the number
        if kind in ("text", "item") and n_cells[position] <= 1 and _is_headline(grouped, line, after, leading):
            kind = "heading"
        if grouped and kind == "text":
            grouped[-1] = _no_long_heading(grouped[-1])
        if grouped and kind != "item" and _continues(grouped[-1], line, kind, leading):
            grouped[-1].lines.append(line)
        else:
            grouped.append(Block([line], kind))
        position += 1
    parts = [part for block in grouped for part in _entries(_no_long_heading(block))]
    return _close(_with_verse(parts), leading)


def _no_long_heading(block: Block) -> Block:
    """Return a block as text if it is too long for a heading, such as a summary in bold type or a list of names."""
    is_long = block.kind == "heading" and len(block.lines) > _MOST_OF_HEADING
    return replace(block, kind="text") if is_long else block


def _page_size(lines: Sequence[Line]) -> float:
    """Return the size of a page's letter in the middle; 0 without any."""
    sizes = [line.size for line in lines for _ in line.text]
    return statistics.median_low(sizes) if sizes else 0.0


def _choices(line: Line) -> list[Line]:
    """Return the cells of a line that all have the marks of items, or the line."""
    parts = cells(line)
    are_items = len(parts) > 1 and all(ORDINAL.match(cell[0].text) for cell in parts)
    return [replace(line, pieces=tuple(cell)) for cell in parts] if are_items else [line]


def _kind_of_row(line: Line, kind: str, body_size: float, made: Sequence[Block], n_cells_after: Sequence[int]) -> str:
    """Return the kind of a line with cells that is in no table: a title may have a date at its right, but no amount."""
    parts = cells(line)
    is_apart = parts[-1][0].left - parts[-2][-1].right > _APART * line.size
    title = replace(line, pieces=tuple(parts[0]))
    if is_apart and len(parts) == 2 and _kind(title, body_size) == "heading":
        is_long = parts[1][-1].right - parts[1][0].left > _LONG_DATE * (line.column[1] - line.column[0])
        if is_long or line.text.endswith(".") or any(n > 1 for n in n_cells_after):
            return "rows"
        return "rows" if is_number(words_of(parts[1])) and not _YEARS.search(words_of(parts[1])) else "heading"
    if kind == "heading" and len(parts) == 2 and not _MONEY.fullmatch(words_of(parts[1])):
        return kind
    return "rows" if is_apart or _has_neighbour(made, n_cells_after) else kind


def _entries(block: Block) -> list[Block]:
    """Return the entries of a block of short lines, as of an index: most are not full, or end with a number."""
    if block.kind != "text" or len(block.lines) < _FEWEST_ENTRIES:
        return [block]
    left = min(line.left for line in block.lines)
    rights = [
        max(line.right for line in block.lines[max(0, i - 2) : i + 4] if line.column == above.column)
        for i, above in enumerate(block.lines[:-1])
    ]
    pairs = [(*pair, right) for pair, right in zip(pairwise(block.lines), rights, strict=True)]
    n_full = sum(
        above.right - left > _FULL * (right - left) or above.text.endswith("-") or runs_on(above, line, right)
        for above, line, right in pairs
    )
    n_listed = sum(line.text[-1].isdigit() for line in block.lines)
    if n_full > _MOST_FULL * len(pairs) and n_listed < _LISTED * len(block.lines):
        return [block]
    entries = [Block([block.lines[0]], "entry")]
    for above, line, right in pairs:
        if runs_on(above, line, right) and not above.text[-1].isdigit():
            entries[-1].lines.append(line)
        else:
            entries.append(Block([line], "entry"))
    return entries if len(entries) < len(block.lines) else [replace(block, kind="rows")]


def _with_verse(made: Sequence[Block]) -> list[Block]:
    """Return blocks with stanzas as lines. Paragraphs beside one another are tried together, as stanzas are."""
    runs: list[list[Block]] = []
    for block in made:
        above = runs[-1][-1] if runs else None
        are_text = above is not None and above.kind == block.kind == "text"
        if above and are_text and above.lines[-1].column == block.lines[0].column and _is_below(above, block):
            runs[-1].append(block)
        else:
            runs.append([block])
    found = []
    for run in runs:
        right = max(_right(block.lines) for block in run)
        has_verse = run[0].kind == "text" and any(
            _is_open(each, _right(each.lines)) and _is_short(each) for each in run
        )
        found += [replace(each, kind="rows") if has_verse and _is_open(each, right) else each for each in run]
    return found


def _right(lines: Sequence[Line]) -> float:
    return max(line.right for line in lines)


def _is_below(above: Block, block: Block) -> bool:
    """Return whether blocks begin at the same place, one below the other."""
    left, left_below = (min(line.left for line in each.lines) for each in (above, block))
    return abs(left - left_below) < block.lines[0].size and above.lines[-1].y > block.lines[0].y


def _is_open(block: Block, right: float) -> bool:
    """Return whether many lines end though the next word had room before a place, and none as those of prose do."""
    pairs = list(pairwise(block.lines))
    n_open = sum(_has_room(*pair, right) for pair in pairs)
    n_within = sum(len(_SENTENCE_END.findall(line.text)) for line in block.lines)
    n_at_end = sum(above.text.endswith((".", "!", "?")) for above, _ in pairs)
    is_parted = any(above.text.endswith(("-", "\u2010")) for above, _ in pairs)
    is_justified = any(abs(above.right - line.right) < _FLUSH * line.size for above, line in pairs)
    is_prose = 0 < n_within >= n_at_end or is_parted or is_justified
    return not is_prose and n_open > 0 and n_open >= _VERSE * len(pairs)


def _is_short(block: Block) -> bool:
    """Return whether many lines are short, or all begin with capitals."""
    left, right = min(line.left for line in block.lines), _right(block.lines)
    n_short = sum(line.right - left < _FILLED * (right - left) for line in block.lines[:-1])
    return n_short >= _VERSE * (len(block.lines) - 1) or all(line.text[:1].isupper() for line in block.lines)


def _has_room(above: Line, line: Line, right: float) -> bool:
    """Return whether the first word of a line had room at the end of the line above it."""
    word = line.text.split(maxsplit=1)[0]
    width = (line.right - line.left) * (len(word) + 1) / len(line.text)
    return above.column == line.column and above.right + width + _SPARE * line.size < right


def _close(made: Sequence[Block], leading: float) -> list[Block]:
    """Return blocks with named paragraphs as entries, if several short ones follow as closely as lines."""
    runs: list[list[Block]] = []
    for block in made:
        is_short = block.kind == "text" and block.lines[0].part.number and len(block.lines) <= _MOST_OF_ENTRY
        last = runs[-1][-1].lines[-1] if runs else None
        step = last.y - block.lines[0].y if last and last.column == block.lines[0].column else 0.0
        if is_short and runs and 0 < step <= (leading + _EXTRA_LEADING) * block.lines[0].size:
            runs[-1].append(block)
        else:
            runs.append([block])
    return [
        replace(block, kind="entry") if len(run) >= _FEWEST_ENTRIES and block.kind == "text" else block
        for run in runs
        for block in run
    ]


def _parts_tables(line: Line, body_size: float, titles: Set[str]) -> bool:
    """Return whether a line is a heading between tables, by its name in the file or its size."""
    is_large = line.size >= _HEADING_SIZE * body_size and _kind(line, body_size) == "heading"
    return len(cells(line)) == 1 and (is_large or bool(line.part.level) or plain(line.text) in titles)


def _n_cells(line: Line) -> int:
    """Return the number of a line's cells; 0 if it is code, an item of a list, or an entry of a table of contents."""
    n = len(cells(line))
    is_item = n == 2 and (_BULLET.match(line.text) or _NUMBERED.match(line.text))
    return 0 if line.fixed or line.table or is_item or LEADER.search(line.text) else n


def _is_bold_only(line: Line, kind: str, body_size: float, titles: Set[str]) -> bool:
    """Return whether only bold type makes a line a heading."""
    return kind == "heading" and line.size < _HEADING_SIZE * body_size and plain(line.text) not in titles


def _is_label(made: Sequence[Block], line: Line, after: Line | None, page_size: float) -> bool:
    """Return whether a bold line among text is smaller than its page, and has none below it, as in pictures."""
    has_text = after is not None and after.column == line.column and not after.bold and after.size <= line.size
    is_near = after is not None and 0 < line.y - after.y < _HEADING_LEADING * line.size
    is_among_text = bool(made) and made[-1].kind == "text"
    return is_among_text and line.size < _LABEL_SIZE * page_size and not (has_text and is_near)


def _is_headline(made: Sequence[Block], line: Line, below: Line | None, leading: float) -> bool:
    """Return whether a short line in a font of its own has a paragraph below it, and none that it continues above."""
    if below is None or below.column != line.column or below.fixed or below.table or not line.font:
        return False
    left, right = line.column
    above = made[-1].lines[-1] if made and made[-1].lines[-1].column == line.column else None
    room, room_above = line.y - below.y, above.y - line.y if above else _MOST_LEADING * line.size
    is_near = 0 < room <= (leading + _OPEN_LEADING / 2) * below.size
    is_apart = room_above > _MORE_ROOM * room or bool(
        above and above.right < right - _RAGGED * (right - left) and above.text.endswith((".", "!", "?"))
    )
    is_other = line.font != below.font != b"" and line.size > below.size - _SAME_SIZE and not below.bold
    is_short = line.right < right - _RAGGED * (right - left) and not line.text.endswith((".", ",", ";", ":"))
    has_text = below.right > right - _VERY_RAGGED * (right - left) > left + _PARAGRAPH * line.size
    return (
        (is_near and is_apart and is_other and is_short and has_text)
        and not (above and made[-1].kind == "heading" and room_above < _MOST_LEADING * line.size)
        and not line.text[:1].islower()
        and not below.text[:1].islower()
        and _is_title(line.text)
        and bool(_scripts(line.text) & _scripts(below.text))
        and not _CAPTION.match(line.text)
    )


def _scripts(text: str) -> set[str]:
    """Return the scripts of a text's letters: fonts that differ may only be those of other scripts."""
    return {unicodedata.name(letter, "").split(" ")[0] for letter in text if letter.isalpha()}


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
    leading = statistics.median_low(steps) if steps else _USUAL_LEADING
    return leading if leading < _OPEN or len(steps) >= _FEWEST_OPEN else _USUAL_LEADING


def _kind(line: Line, body_size: float) -> str:
    text = line.text
    if line.fixed:
        return "code"
    if LEADER.search(text):
        return "entry"
    if _SURE_BULLET.match(text):
        return "item"
    if _BULLET.match(text) or _NUMBERED.match(text):
        is_item = line.size < _HEADING_SIZE * body_size and not line.bold
        return "item" if is_item else "heading" if _is_title(text) else "text"
    is_short = len(text) < 120 and not text.endswith((".", ",", ";", ":"))
    if is_short and _is_title(text) and (line.size >= _HEADING_SIZE * body_size or line.bold):
        return "heading"
    return "text"


def _is_title(text: str) -> bool:
    """Return whether a text has words, and not only a value, an address, or a total or date with its label."""
    has_words = bool(re.search(r"[^\W\d_]", text)) and (not is_number(text) or bool(_SECTION.fullmatch(text)))
    return has_words and not _AMOUNT.search(text) and not _ADDRESS.fullmatch(text)


def _continues(block: Block, line: Line, kind: str, leading: float) -> bool:
    last = block.lines[-1]
    if kind == "entry" or block.kind == "entry":
        return False
    if "rows" in (kind, block.kind):
        return block.kind == kind and line.column == last.column and 0 < last.y - line.y < ROW_GAP * line.size
    if block.kind == "code" or kind == "code":
        return block.kind == kind and line.column == last.column and 0 < last.y - line.y < _CODE_LEADING * line.size
    is_other = last.part != line.part and last.part.number and line.part.number
    if is_other and not runs_on(last, line, line.column[1]):
        return False
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
    if block.kind == "item":
        is_indented = line.left > block.lines[0].left + _ITEM_INDENT * line.size
        return is_indented or len(block.lines) > 1 or runs_on(last, line, line.column[1], any_case=True)
    is_beside = max(last.left, line.left) > sum(line.column) / 2  # such as the number and the date of a letter
    if is_beside and not line.text[:1].islower():
        return False
    left = max(last.left, block.lines[0].left)
    is_indented = line.left > left + _PARAGRAPH_INDENT * line.size and not is_within_sentence
    return not is_indented and (is_full or not last.text.endswith((".", "!", "?", ":")))


def list_item(text: str) -> str:
    """Return the text of a list item with Markdown's mark, or its own number."""
    if _BULLET.match(text):
        return "- " + _BULLET.sub("", text, count=1)
    numbered = _NUMBERED.match(text)
    return text if numbered and numbered[1].isdigit() else f"- {text}"


def code(lines: Sequence[Line]) -> str:
    """Return lines of letters of one width, each in its place, as a block of Markdown."""
    pieces = [piece for line in lines for piece in line.pieces]
    left = min(piece.left for piece in pieces)
    width = statistics.median((piece.right - piece.left) / len(piece.text) for piece in pieces)
    written = []
    for line in lines:
        text = ""
        for piece in line.pieces:
            text = text.ljust(max(round((piece.left - left) / width), len(text) + bool(text))) + piece.text
        written.append(text)
    return "\n".join(["```", *written, "```"])
