"""Read PDF by PDFium: the text with its headings, lists and tables, without what repeats on each page."""

from __future__ import annotations

import ctypes
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import OctavoError
from .document import Document
from .markdown import document_of
from .pdf_layout import LEADER, Block, Line, Piece, blocks, cells, code, lines_in_order, list_item

#: Most pages of a document, of which a model reads a few thousand.
_MOST_PAGES = 20_000

#: Share of a page's height at each end where running heads and feet lie; and of the pages that repeat one.
_MARGIN, _REPEATED = 0.12, 0.25

#: Weight of a font from which on it is bold; and gap between words that are not of one piece, in font sizes.
_BOLD, _GAP = 600, 1.2

#: Characters that stand for others: ligatures, blanks of all widths, and soft hyphens.
_SAME = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st", 0xAD: "-"}
_SAME |= dict.fromkeys([0xA0, 0x2002, 0x2003, 0x2009, 0x200A, 0x202F, 0x3000, 0x9], " ")
_SAME |= dict.fromkeys([0x200B, 0x200C, 0x200D, 0xFEFF, 0xFFFE, 0xFFFF], "")

#: How PDFium marks a hyphen at the end of a line.
_HYPHEN = 2

#: Fonts whose letters are all of one width: the flag that says so, which few set, and what they are called.
_FIXED_PITCH, _FIXED_FONTS = 1, re.compile(rb"courier|mono|consol|typewriter|cmtt|fixed", re.IGNORECASE)


def read_pdf(content: bytes, name: str, password: str | None = None) -> Document:
    """Read a PDF.

    Parameters
    ----------
    content : bytes
        The file.
    name : str
        What errors call it.
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
            pages, labels, silent = [], [], []
            for number in range(len(pdf)):
                page = pdf[number]
                labels.append(pdf.get_page_label(number) or str(number + 1))
                pieces = list(_pieces(page))
                if not pieces and any(True for _ in page.get_objects(max_depth=1)):
                    silent.append(labels[-1])
                pages.append((page.get_height(), pieces))
                page.close()
            outline = _outline(pdf)
    except pypdfium2.PdfiumError as problem:
        if problem.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD:
            wrong = "is encrypted, and the password is wrong" if password else "is encrypted: give its --password"
            raise OctavoError(f"{name} {wrong}.") from problem
        raise OctavoError(f"{name} is damaged, and PDFium cannot open it: download or save it again.") from problem
    if not any(pieces for _, pieces in pages):
        raise OctavoError(f"{name} has no text, only pictures of it: `ocrmypdf {name} OUT.pdf` makes a PDF with text.")
    notices = []
    if silent:
        shown = ", ".join(silent[:10]) + (" and others" if len(silent) > 10 else "")
        notices = [f"{name} has no text on {len(silent)} of {len(pages)} pages ({shown}): `ocrmypdf` finds such text."]
    heights = [height for height, _ in pages]
    lines = _without_repeats([lines_in_order(pieces) for _, pieces in pages], heights, labels)
    text, offsets = _written(lines, outline)
    return document_of(text, list(zip(offsets, labels, strict=True)), notices)


class _Words:
    """The characters of a piece, as they come."""

    def __init__(self) -> None:
        self.characters: list[str] = []
        self.left = self.right = self.y = 0.0
        self.sizes: list[float] = []
        self.n_bold, self.fixed = 0, True

    def piece(self) -> Iterator[Piece]:
        """Yield the piece, if it has any words."""
        text = re.sub(r"\s+", " ", "".join(self.characters)).strip()
        if text:
            size, bold = statistics.median(self.sizes), 2 * self.n_bold > len(self.sizes)
            yield Piece(text, self.left, self.right, self.y, size, bold, self.fixed)


def _pieces(page: Any) -> Iterator[Piece]:
    """Yield the pieces of a page's lines, as PDFium orders its characters."""
    import pypdfium2.raw as pdfium

    text_page = page.get_textpage()
    raw, box, x, y = text_page.raw, pdfium.FS_RECTF(), ctypes.c_double(), ctypes.c_double()
    font, flags = ctypes.create_string_buffer(64), ctypes.c_int()
    words = _Words()
    for i in range(text_page.count_chars()):
        number = pdfium.FPDFText_GetUnicode(raw, i)
        character = "-" if number == _HYPHEN else _SAME.get(number, chr(number) if 0 < number < 0x110000 else "")
        if character in ("\r", "\n"):
            yield from words.piece()
            words = _Words()
            continue
        if not character.isprintable() or character in ("", " "):
            words.characters += " " if character and words.characters else ""
            continue
        pdfium.FPDFText_GetLooseCharBox(raw, i, box)
        pdfium.FPDFText_GetCharOrigin(raw, i, x, y)
        size = max(pdfium.FPDFText_GetFontSize(raw, i), 0.5 * abs(box.top - box.bottom), 0.1)  # a matrix may scale it
        is_far = abs(y.value - words.y) > 0.5 * size or not -1 < (box.left - words.right) / size < _GAP
        if words.characters and is_far:
            yield from words.piece()
            words = _Words()
        if not words.characters:
            words.left, words.y = box.left, y.value
        if words.fixed:  # as far as it has been seen
            pdfium.FPDFText_GetFontInfo(raw, i, font, len(font), flags)
            words.fixed = bool(flags.value & _FIXED_PITCH or _FIXED_FONTS.search(font.value))
        words.right = box.right
        words.characters.append(character)
        words.sizes.append(size)
        words.n_bold += pdfium.FPDFText_GetFontWeight(raw, i) >= _BOLD
        if number == _HYPHEN:
            yield from words.piece()
            words = _Words()
    yield from words.piece()
    text_page.close()


def _outline(pdf: Any) -> dict[tuple[int, str], int]:
    """Return the level of each heading in the outline, from 1 on, by its page and its words."""
    levels: dict[tuple[int, str], int] = {}
    for bookmark in pdf.get_toc(max_depth=6):
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        if page is not None:
            levels[page, _plain(bookmark.get_title())] = bookmark.level + 1
    return levels


def _plain(text: str) -> str:
    """Return the letters and digits of a text, by which it is found again."""
    return re.sub(r"\W+", "", text).lower()


def _without_repeats(pages: list[list[Line]], heights: Sequence[float], labels: Sequence[str]) -> list[list[Line]]:
    """Leave out running heads and feet: what stands near an edge, at one height, on many pages, up to its numbers."""
    if len(pages) < 3:
        return pages
    places: dict[tuple[int, str], set[int]] = defaultdict(set)
    for number, lines in enumerate(pages):
        for line in _near_edges(lines, heights[number]):
            for key in _keys(line, labels[number]):
                places[key].add(number)
    repeated = {key for key, own in places.items() if len(own) >= max(3, _REPEATED * len(pages))}
    kept = []
    for number, lines in enumerate(pages):
        near = _near_edges(lines, heights[number])
        left_out = {id(line) for line in near if _is_number(line) or repeated.intersection(_keys(line, labels[number]))}
        kept.append([line for line in lines if id(line) not in left_out])
    return kept


def _near_edges(lines: Sequence[Line], height: float) -> list[Line]:
    """Return the lines near the top and the bottom of a page."""
    return [line for line in lines if not _MARGIN * height < line.y < (1 - _MARGIN) * height]


def _keys(line: Line, label: str) -> list[tuple[int, str]]:
    """Return what a line has in common with those of other pages: its height, and its words or that it has a number."""
    height, words = round(line.y / 4), line.text.split()
    keys = [(height, re.sub(r"\d+|\b[ivxlc]+\b", "#", line.text))]
    return [*keys, (height, "")] if label in (words[0], words[-1]) else keys


def _is_number(line: Line) -> bool:
    """Return whether a line is nothing but the number of a page, maybe between dashes, or a Roman one."""
    return bool(re.fullmatch(r"\W*([ivxlc]{1,7}|\d{1,4})\W*", line.text.lower()))


def _written(pages: list[list[Line]], outline: dict[tuple[int, str], int]) -> tuple[str, list[int]]:
    """Write pages as Markdown; return the text, and where each page begins."""
    letters: Counter[float] = Counter()
    for line in (line for page in pages for line in page):
        letters[round(line.size, 1)] += len(line.text)
    body_size = letters.most_common(1)[0][0] if letters else 1.0
    made = [blocks(page, body_size) for page in pages]
    words = Counter(
        re.findall(r"[^\W\d_]+(?:-[^\W\d_]+)*", " ".join(line.text for page in pages for line in page).lower())
    )
    levels = _heading_levels(made, outline)
    parts: list[str] = []
    offsets, length = [], 0
    for number, page in enumerate(made):
        offsets.append(length)
        for position, block in enumerate(page):
            written = _block(block, words, levels.get(id(block)))
            joins = position == 0 and block.kind == "text" and parts and _is_open(parts[-1]) and written[:1].islower()
            if joins:  # a paragraph goes on over the page
                before = parts.pop()
                length -= len(before)
                start = _joined([before.rstrip("\n")], words)
                written = _joined([start, written.rstrip("\n")], words) + "\n\n"
                offsets[number] = length + len(start)
            elif position and block.kind in ("item", "entry") and page[position - 1].kind == block.kind:
                parts[-1], length = parts[-1][:-1], length - 1  # items stand together
            parts.append(written)
            length += len(written)
    return "".join(parts).rstrip("\n") + "\n", [min(offset, max(length - 1, 0)) for offset in offsets]


def _is_open(written: str) -> bool:
    """Return whether a paragraph seems to go on."""
    text = written.rstrip()
    return bool(text) and not text.startswith(("#", "|")) and text[-1] not in ".!?:"


def _heading_levels(made: list[list[Block]], outline: dict[tuple[int, str], int]) -> dict[int, int]:
    """Return the level of each heading: the outline's, else by the sizes of their fonts, the largest first."""
    headings = [(number, block) for number, page in enumerate(made) for block in page if block.kind == "heading"]
    sizes = sorted({(round(block.lines[0].size), block.lines[0].bold) for _, block in headings}, reverse=True)
    levels = {}
    for number, block in headings:
        listed = outline.get((number, _plain(" ".join(line.text for line in block.lines))))
        by_size = sizes.index((round(block.lines[0].size), block.lines[0].bold)) + 1
        levels[id(block)] = min(listed or by_size, 6)
    return levels


def _block(block: Block, words: Counter[str], level: int | None) -> str:
    """Write a block as Markdown."""
    if block.kind == "table":
        rows = [
            [" ".join(piece.text for piece in cell).replace("|", "\\|") for cell in cells(line)] for line in block.lines
        ]
        written = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([written[0], "|" + " --- |" * len(rows[0]), *written[1:]]) + "\n\n"
    if block.kind == "code":
        return code(block.lines) + "\n\n"
    text = _joined([line.text for line in block.lines], words)
    if block.kind == "entry":
        return LEADER.sub(" ... ", text) + "\n\n"
    if block.kind == "item":
        return list_item(text) + "\n\n"
    return f"{'#' * level} {text}\n\n" if level else text + "\n\n"


def _joined(lines: Sequence[str], words: Counter[str]) -> str:
    """Join lines; undo the hyphens at their ends that are in no word elsewhere in the document."""
    text = lines[0]
    for line in lines[1:]:
        parted = re.search(r"([^\W\d_]+)-$", text)
        following = re.match(r"[^\W\d_]+", line)
        if parted and following and line[0].islower():
            first, second = parted[1].lower(), following[0].lower()
            is_one = words[first + second] >= words[f"{first}-{second}"]
            text = (text[:-1] if is_one else text) + line
        else:
            text += " " + line
    return text
