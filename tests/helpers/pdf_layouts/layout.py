"""A PDF that a producer makes, and what a good reading of it has: its words, lines, cells, order and headings."""

from __future__ import annotations

import html
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reportlab.pdfgen.canvas import Canvas

#: What may stand between the cells of a row, and around them: bars, blanks, marks of Markdown, leaders.
BETWEEN, BEFORE = r"[\s|:…·_.]*?", r"[\s|#>*-]*"

#: The size of a page in points.
A4 = (595, 842)


@dataclass(frozen=True)
class Layout:
    """One PDF and its truth.

    Parameters
    ----------
    name : str
        Kind of the document, as a test's name.
    source : str or callable
        HTML that Chromium prints, or a function that draws on the `Drawing` that it gets.
    rows : sequence of sequences of str
        Cells that make a whole line of the text, with nothing but bars, blanks or leaders between them.
    pairs : sequence of sequences of str
        The same of a part of a line, such as a label and its value.
    table : sequence of sequences of str
        All rows of a table, heads first, whose empty cells must stay: cells of Markdown, or columns of a block of code.
    whole : sequence of str
        Texts that nothing interrupts; blanks and line ends are alike.
    order : sequence of str
        Texts that follow one another.
    headings, texts : sequence of str
        Lines that are headings, and parts of lines that are not.
    left_out : str
        Words that a reading may lack: the page's own numbers, repeats of running heads.
    options : dict
        Options of Chromium's `Page.printToPDF`.
    fails : str
        Why octavo does not read it right today: the test must fail.
    """

    name: str
    source: str | Callable[[Drawing], None]
    rows: Sequence[Sequence[str]] = ()
    pairs: Sequence[Sequence[str]] = ()
    table: Sequence[Sequence[str]] = ()
    whole: Sequence[str] = ()
    order: Sequence[str] = ()
    headings: Sequence[str] = ()
    texts: Sequence[str] = ()
    left_out: str = ""
    options: dict[str, Any] | None = None
    fails: str = ""

    @cached_property
    def drawing(self) -> Drawing:
        """What reportlab draws."""
        assert callable(self.source)
        drawing = Drawing()
        self.source(drawing)
        return drawing

    def content(self, print_html: Callable[[str, dict[str, Any]], bytes]) -> bytes:
        """Return the PDF; `print_html` prints a page of HTML."""
        if isinstance(self.source, str):
            return print_html(self.source, self.options or {})
        return self.drawing.content

    def words(self) -> Counter[str]:
        """Return the words that the source has."""
        if isinstance(self.source, str):
            shown = re.sub(r"<(style|title)>.*?</\1>|<[^>]*>", " ", self.source, flags=re.DOTALL)
            return words(html.unescape(shown).replace("\u00ad", ""))
        return words(" ".join(self.drawing.texts))

    def problems(self, text: str) -> Iterator[str]:
        """Yield what is wrong with a reading of it."""
        lines = text.splitlines()
        if missing := self.words() - words(text) - words(self.left_out):
            yield f"lost words: {' '.join(missing.elements())}"
        for row in self.rows:
            if not any(re.fullmatch(BEFORE + _joined(row) + r"[\s|]*", line) for line in lines):
                yield f"no line of its own: {' | '.join(row)}"
        for pair in self.pairs:
            if not any(re.search(_joined(pair), line) for line in lines):
                yield f"not side by side: {' | '.join(pair)}"
        yield from (f"not in its columns: {' | '.join(row)}" for row in _not_in_columns(self.table, lines))
        flat = _flat(text)
        yield from (f"interrupted: {whole}" for whole in self.whole if _flat(whole) not in flat)
        start = 0
        for part in self.order:
            if (found := flat.find(_flat(part), start)) < 0:
                yield f"not in order: {part}"
                break
            start = found + len(_flat(part))
        headings = [line.lstrip("# ") for line in lines if line.startswith("#")]
        yield from (f"no heading: {heading}" for heading in self.headings if heading not in headings)
        yield from (f"a heading: {one}" for one in headings if any(part in one for part in self.texts))


class Drawing:
    """Pages that reportlab draws, in points from the lower left corner, and the texts on them."""

    def __init__(self, size: tuple[float, float] = A4) -> None:
        self._file, self.texts = io.BytesIO(), list[str]()
        self.canvas = Canvas(self._file, size, invariant=1)

    def text(
        self, x: float, y: float, text: str, size: float = 10, font: str = "Helvetica", at: str = "", angle: float = 0
    ) -> None:
        """Draw a text whose left end, right end (at="right") or middle (at="middle") is at x."""
        self.texts.append(text)
        draw = {"": "drawString", "right": "drawRightString", "middle": "drawCentredString"}[at]
        self.canvas.saveState()
        self.canvas.translate(x, y)
        self.canvas.rotate(angle)
        self.canvas.setFont(font, size)
        getattr(self.canvas, draw)(0, 0, text)
        self.canvas.restoreState()

    def lines(self, x: float, y: float, texts: Sequence[str], step: float = 13, **style: Any) -> float:
        """Draw texts below one another; return where the next would be."""
        for text in texts:
            self.text(x, y, text, **style)
            y -= step
        return y

    def row(self, y: float, places: Sequence[float], cells: Sequence[str], **style: Any) -> None:
        """Draw the cells of a row: at a negative place, the right end is there."""
        for x, cell in zip(places, cells, strict=True):
            if cell:
                self.text(abs(x), y, cell, at="right" if x < 0 else "", **style)

    def rule(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw a straight rule."""
        self.canvas.setLineWidth(0.5)
        self.canvas.line(x, y, to_x, to_y)

    def page(self) -> None:
        """End a page."""
        self.canvas.showPage()

    @cached_property
    def content(self) -> bytes:
        """The finished file."""
        self.canvas.save()
        return self._file.getvalue()


def words(text: str) -> Counter[str]:
    """Return the words of a text, without regard to capitals and ligatures."""
    return Counter(re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower()))


def _joined(cells: Sequence[str]) -> str:
    return BETWEEN.join(re.escape(cell) for cell in cells if cell)


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _not_in_columns(table: Sequence[Sequence[str]], lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the rows of a table that are neither a row of Markdown nor in the columns of a block of code."""
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines if line.startswith("|")]
    inside = [line for line, fences in zip(lines, _fences(lines), strict=True) if fences % 2]
    heads = [line for line in inside if re.fullmatch(rf"\s*{_joined(table[0])}\s*", line)] if table else []
    for row in table:
        aligned = heads and any(_is_aligned(row, line, table[0], heads[0]) for line in inside)
        if list(row) not in cells and not aligned:
            yield row


def _fences(lines: Sequence[str]) -> Iterator[int]:
    """Yield for each line how many marks of blocks of code are above it."""
    above = 0
    for line in lines:
        yield above
        above += line.startswith("```")


def _is_aligned(row: Sequence[str], line: str, head: Sequence[str], head_line: str) -> bool:
    """Tell whether each cell of a row begins or ends, to a letter, where its head does."""
    at = under = 0
    for cell, name in zip(row, head, strict=True):
        under = head_line.index(name, under) + len(name)
        if not cell:
            continue
        at = line.find(cell, at) + len(cell)
        if at < len(cell) or min(abs(at - under), abs(at - len(cell) - under + len(name))) > 1:
            return False
    return not line[at:].strip()
