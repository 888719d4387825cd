"""Represent a PDF's page: pieces of lines, lines, and blocks of lines.

All lengths are in points, and y grows upwards, as in a PDF.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .pdf_characters import NO_PART, Part

#: Start and end of something on a line.
Span = tuple[float, float]

#: Rows of a table: of cells, each of the lines in it.
Rows = tuple[tuple[tuple[str, ...], ...], ...]


@dataclass(frozen=True)
class Table:
    """A table between rules.

    Parameters
    ----------
    height : float
        From its first baseline to its end.
    """

    rows: Rows
    height: float


@dataclass(frozen=True)
class Piece:
    """Words on a line without a wide gap between them, or all that is in a table.

    Parameters
    ----------
    left, right, y : float
        Their start and end, and their baseline.
    bold : bool
        Whether most of it is bold.
    fixed : bool
        Whether its letters all have one width, as in code.
    font : bytes
        The font's name, if nearly all of it is in one.
    table : Table, optional
        The table between rules that it is.
    part : Part
        The paragraph or the like that the file names.
    begins_cell : bool
        Whether it is in another cell than the piece before, however close.
    """

    text: str
    left: float
    right: float
    y: float
    size: float
    bold: bool
    fixed: bool
    font: bytes = b""
    table: Table | None = None
    part: Part = NO_PART
    begins_cell: bool = False


@dataclass(frozen=True)
class Line:
    """The pieces on one baseline of a column, from left to right; `y` and `size` are those of its largest letters."""

    pieces: tuple[Piece, ...]
    column: tuple[float, float]
    y: float = field(init=False)
    size: float = field(init=False)

    def __post_init__(self) -> None:
        largest = max(self.pieces, key=lambda piece: (piece.size, len(piece.text)))
        object.__setattr__(self, "y", largest.y)
        object.__setattr__(self, "size", largest.size)

    @property
    def text(self) -> str:
        """Return the line's words."""
        return " ".join(piece.text for piece in self.pieces)

    @property
    def left(self) -> float:
        """Return the line's start."""
        return self.pieces[0].left

    @property
    def right(self) -> float:
        """Return the line's end."""
        return self.pieces[-1].right

    @property
    def bold(self) -> bool:
        """Return whether all of the line is bold."""
        return all(piece.bold for piece in self.pieces)

    @property
    def fixed(self) -> bool:
        """Return whether the line is code."""
        return all(piece.fixed for piece in self.pieces)

    @property
    def font(self) -> bytes:
        """Return the name of the line's font, if it has one."""
        fonts = {piece.font for piece in self.pieces}
        return fonts.pop() if len(fonts) == 1 else b""

    @property
    def part(self) -> Part:
        """Return the paragraph or the like that the file names, if it is all in one."""
        parts = {piece.part for piece in self.pieces}
        return parts.pop() if len(parts) == 1 else NO_PART

    @property
    def table(self) -> Table | None:
        """Return the table between rules that the line is."""
        return self.pieces[0].table


@dataclass
class Block:
    """A paragraph, a heading, an item of a list, a table, code, or an entry of a table of contents.

    Parameters
    ----------
    kind : str
        "text", "heading", "item", "table", "rows" (lines that stay lines, of verse or of a table with unclear columns),
        "code" or "entry".
    rows : tuple
        Of a table.
    """

    lines: list[Line]
    kind: str
    rows: Rows = ()
