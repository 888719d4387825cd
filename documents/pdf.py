"""Read PDF with PDFium: text with headings, lists and tables, without headers and footers."""

from __future__ import annotations

import re
import shlex
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..errors import OctavoError
from .document import Document
from .markdown import document_of
from .pdf_blocks import Block, Line
from .pdf_layout import LEADER, blocks, code, lines_in_order, list_item, plain
from .pdf_pieces import page_pieces
from .pdf_tables import table_rows

#: Most pages of a document; models read a few thousand.
_MOST_PAGES = 20_000

#: Share of a page's height at each end that may hold running heads and feet; and the least share of pages that repeat
#: one.
_MARGIN, _REPEATED = 0.12, 0.25

#: Heads that change with the chapter: the least gap to the text and the largest size, in sizes of the text; and the
#: least share of pages with one at the same height.
_APART, _LARGEST_HEAD, _HEADED = 1.7, 1.1, 0.5

#: Lines from this many times the text's size on are large, and may be the headings of chapters.
_LARGE = 1.4

#: Least share of letters in the text's size, unless text recognition guessed the sizes; in that case, headings exceed
#: the median by this factor.
_LEAST_OF_A_SIZE, _ABOVE_MEDIAN = 0.3, 1.2

#: Characters of scripts without blanks between words: Chinese and Japanese.
_SPACELESS = re.compile("[\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff60]")


def read_pdf(content: bytes, name: str, password: str | None = None) -> Document:
    """Read a PDF.

    Parameters
    ----------
    password : str, optional
        Opens an encrypted file.

    Raises
    ------
    OctavoError
        The file is damaged, or encrypted, or has no text.
    """
    import pypdfium2

    try:
        with pypdfium2.PdfDocument(content, password=password) as pdf:
            if len(pdf) > _MOST_PAGES:
                raise OctavoError(f"{name} has {len(pdf):,} pages: split it.")
            pages, heights, labels, silent = [], [], [], []
            for number in range(len(pdf)):
                page = pdf[number]
                labels.append(pdf.get_page_label(number) or str(number + 1))
                height, pieces = page_pieces(page)
                if not any(pieces) and any(True for _ in page.get_objects(max_depth=1)):
                    silent.append(labels[-1])
                heights.append(height)
                pages.append([line for part in pieces for line in lines_in_order(part)])
                page.close()
            outline = _outline(pdf)
    except pypdfium2.PdfiumError as problem:
        if problem.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD:
            wrong = "is encrypted, and the password is wrong" if password else "is encrypted: give its --password"
            raise OctavoError(f"{name} {wrong}.") from problem
        raise OctavoError(f"{name} is damaged, and PDFium cannot open it: download or save it again.") from problem
    if not any(pages):
        n_pages = "page" if len(pages) == 1 else f"{len(pages)} pages"
        makes = f"`ocrmypdf {shlex.quote(name)} OUT.pdf` makes a PDF with text"
        raise OctavoError(f"{name} has no text on its {n_pages}, only pictures of it: {makes}.")
    notices = []
    if silent:
        shown = ", ".join(silent[:10]) + (" and others" if len(silent) > 10 else "")
        notices = [f"{name} has no text on {len(silent)} of {len(pages)} pages ({shown}): `ocrmypdf` finds such text."]
    pages = _without_repeats(_with_normal_weight(pages), heights, labels)
    text, offsets = _written(pages, outline)
    return document_of(text, list(zip(offsets, labels, strict=True)), notices)


def _outline(pdf: Any) -> dict[tuple[int, str], int]:
    """Return the level of each heading in the outline, from 1 on, by its page and its words."""
    levels: dict[tuple[int, str], int] = {}
    for bookmark in pdf.get_toc(max_depth=6):
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        if page is not None:
            levels[page, plain(bookmark.get_title())] = bookmark.level + 1
    return levels


def _with_normal_weight(pages: list[list[Line]]) -> list[list[Line]]:
    """Treat text as normal if most of it is bold: some files declare all of their text bold."""
    pieces = [piece for page in pages for line in page for piece in line.pieces]
    if 2 * sum(len(piece.text) for piece in pieces if piece.bold) <= sum(len(piece.text) for piece in pieces):
        return pages
    return [
        [replace(line, pieces=tuple(replace(piece, bold=False) for piece in line.pieces)) for line in page]
        for page in pages
    ]


def _without_repeats(pages: list[list[Line]], heights: Sequence[float], labels: Sequence[str]) -> list[list[Line]]:
    """Leave out running heads and feet: lines near an edge that repeat, up to numbers, at one height on many pages.

    Numbers distinguish large lines, which may be headings of chapters at the top of a page.
    """
    if len(pages) < 3:
        return pages
    large = _LARGE * _body_size(pages)

    def keys(line: Line, label: str) -> list[tuple[int, str]]:
        found = list(_keys(line, label))
        return found if line.size < large else [(found[0][0], line.text)]

    places: dict[tuple[int, str], set[int]] = defaultdict(set)
    for number, lines in enumerate(pages):
        for line in _near_edges(lines, heights[number]):
            for key in keys(line, labels[number]):
                places[key].add(number)
    repeated = {key for key, numbers in places.items() if len(numbers) >= max(3, _REPEATED * len(pages))}
    repeated |= {key for key in _chapter_heads(pages, heights) if len(places[key]) > 1}
    kept = []
    for number, lines in enumerate(pages):
        near = _near_edges(lines, heights[number])
        left_out = {id(line) for line in near if _is_number(line) or repeated.intersection(keys(line, labels[number]))}
        kept.append([line for line in lines if id(line) not in left_out])
    return kept


def _chapter_heads(pages: list[list[Line]], heights: Sequence[float]) -> set[tuple[int, str]]:
    """Return heads that change with the chapter: in the text's size, apart from it, at one height on most pages."""
    body_size = _body_size(pages)
    heads: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for number, lines in enumerate(pages):
        for line in _near_edges(lines, heights[number]):
            others = [other.y - line.y for other in lines if abs(other.y - line.y) > 0.5 * line.size]
            is_outermost = all(other > 0 for other in others) or all(other < 0 for other in others)
            is_apart = all(abs(other) > _APART * line.size for other in others)
            if is_outermost and is_apart and line.size < _LARGEST_HEAD * body_size:
                key = _keys(line, "")[0]
                heads[key[0]].append(key)
    return {key for alike in heads.values() if len(alike) >= max(3, _HEADED * len(pages)) for key in alike}


def _body_size(pages: list[list[Line]]) -> float:
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


def _near_edges(lines: Sequence[Line], height: float) -> list[Line]:
    """Return the lines near the top and the bottom of a page."""
    return [line for line in lines if not _MARGIN * height < line.y < (1 - _MARGIN) * height]


def _keys(line: Line, label: str) -> list[tuple[int, str]]:
    """Return what a line shares with lines of other pages: its height, and its words, or that it has a number."""
    height, words = round(line.y / 4), line.text.split()
    keys = [(height, re.sub(r"\d+|\b[ivxlc]+\b", "#", line.text))]
    return [*keys, (height, "")] if label in (words[0], words[-1]) else keys


def _is_number(line: Line) -> bool:
    """Return whether a line is only a page number, Arabic or Roman, perhaps between dashes."""
    return bool(re.fullmatch(r"\W*([ivxlc]{1,7}|\d{1,4})\W*", line.text.lower()))


def _written(pages: list[list[Line]], outline: dict[tuple[int, str], int]) -> tuple[str, list[int]]:
    """Write pages as Markdown; return the text, and the start of each page."""
    body_size = _body_size(pages)
    titles: dict[int, set[str]] = defaultdict(set)
    for number, title in outline:
        titles[number].add(title)
    blocks_of_pages = [blocks(page, body_size, titles[number]) for number, page in enumerate(pages)]
    words = Counter(
        re.findall(r"[^\W\d_]+(?:-[^\W\d_]+)*", " ".join(line.text for page in pages for line in page).lower())
    )
    levels = _heading_levels(blocks_of_pages, outline)
    parts: list[str] = []
    offsets, length = [], 0
    for number, page in enumerate(blocks_of_pages):
        offsets.append(length)
        for position, block in enumerate(page):
            written = _block(block, words, levels.get(id(block)))
            joins = position == 0 and block.kind == "text" and parts and _is_open(parts[-1]) and written[:1].islower()
            if joins:  # a paragraph continues on the next page
                before = parts.pop()
                length -= len(before)
                start = _joined([before.rstrip("\n")], words)
                written = _joined([start, written.rstrip("\n")], words) + "\n\n"
                offsets[number] = length + len(start)
                offsets = [min(offset, offsets[number]) for offset in offsets]  # empty pages before it begin there too
            elif position and block.kind in ("item", "entry") and page[position - 1].kind == block.kind:
                parts[-1], length = parts[-1][:-1], length - 1  # keep items of a list together
            parts.append(written)
            length += len(written)
    return "".join(parts).rstrip("\n") + "\n", [min(offset, max(length - 1, 0)) for offset in offsets]


def _is_open(written: str) -> bool:
    """Return whether a paragraph seems unfinished."""
    text = written.rstrip()
    return bool(text) and not text.startswith(("#", "|")) and text[-1] not in ".!?:"


def _heading_levels(made: list[list[Block]], outline: dict[tuple[int, str], int]) -> dict[int, int]:
    """Return the level of each heading: from the outline, or else by font size, largest first."""
    headings = [(number, block) for number, page in enumerate(made) for block in page if block.kind == "heading"]
    sizes = sorted({(round(block.lines[0].size), block.lines[0].bold) for _, block in headings}, reverse=True)
    levels = {}
    for number, block in headings:
        listed = outline.get((number, plain(" ".join(line.text for line in block.lines))))
        by_size = sizes.index((round(block.lines[0].size), block.lines[0].bold)) + 1
        levels[id(block)] = min(listed or by_size, 6)
    return levels


def _block(block: Block, words: Counter[str], level: int | None) -> str:
    """Write a block as Markdown."""
    if block.kind == "table":
        rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table_rows(block)]
        return "\n".join([rows[0], "|" + " --- |" * len(block.columns), *rows[1:]]) + "\n\n"
    if block.kind == "rows":
        return "\n".join(line.text for line in block.lines) + "\n\n"
    if block.kind == "code":
        return code(block.lines) + "\n\n"
    text = _joined([line.text for line in block.lines], words)
    if block.kind == "entry":
        return LEADER.sub(" ... ", text) + "\n\n"
    if block.kind == "item":
        return list_item(text) + "\n\n"
    return f"{'#' * level} {text}\n\n" if level else text + "\n\n"


def _joined(lines: Sequence[str], words: Counter[str]) -> str:
    """Join lines; remove hyphens at their ends unless the document has the hyphenated word elsewhere."""
    text = lines[0]
    for line in lines[1:]:
        parted = re.search(r"([^\W\d_]+)-$", text)
        following = re.match(r"[^\W\d_]+", line)
        if parted and following and line[0].islower():
            first, second = parted[1].lower(), following[0].lower()
            is_one = words[first + second] >= words[f"{first}-{second}"]
            text = (text[:-1] if is_one else text) + line
        else:
            text += line if _SPACELESS.match(text[-1:]) and _SPACELESS.match(line) else " " + line
    return text
