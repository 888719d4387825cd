"""Make a table of HTML of the rows of one of RTF, which says only where the right edge of each cell is."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

#: Edges of different rows that are nearer than 2 mm, in twips, are the same.
_NEAR = 113


@dataclass
class Row:
    """The left edge of a row; the right edge of each cell, with the control that merges it, if any; and their HTML."""

    left: int = 0
    edges: list[tuple[int, str]] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)


@dataclass
class _Cell:
    """A cell, and the columns and rows that it spans."""

    html: str
    column: int
    stop: int
    n_rows: int = 1


def table_html(rows: list[Row]) -> str:
    """Return rows as a table of HTML; nothing if they have no cells."""
    lefts = ([row.left, *(edge for edge, _ in row.edges)] for row in rows if row.edges)
    near = min((after - edge for edges in lefts for edge, after in pairwise(edges) if after > edge), default=_NEAR)
    near = min(near - 1, _NEAR)
    grid = _grid(rows, near)
    above: dict[int, _Cell] = {}
    written = [_own_cells(row, grid, near, above) for row in rows if row.cells]
    lines = (
        "".join(f'<td colspan="{cell.stop - cell.column}" rowspan="{cell.n_rows}">{cell.html}</td>' for cell in cells)
        for cells in written
    )
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>" if written else ""


def _grid(rows: list[Row], near: int) -> list[int]:
    """Return the edges of columns, from the left."""
    grid: list[int] = []
    edges = {row.left for row in rows if row.edges} | {edge for row in rows for edge, _ in row.edges}
    for edge in sorted(edges):
        if not grid or edge - grid[-1] > near:
            grid.append(edge)
    return grid


def _own_cells(row: Row, grid: list[int], near: int, above: dict[int, _Cell]) -> list[_Cell]:
    """Return the cells that begin in a row. Those that begin above, by their columns, are extended, and replaced."""
    column = bisect_left(grid, row.left - near) if row.edges else 0
    cells = [_Cell("", 0, column)] if column else []
    for number, html in enumerate(row.cells):
        edge, merged = row.edges[number] if number < len(row.edges) else (None, "")
        stop = max(column + 1, 0 if edge is None else bisect_left(grid, edge - near))
        if merged == "clmrg" and cells:
            cells[-1].stop = stop
        elif merged == "clvmrg" and column in above:
            above[column].n_rows += 1
        else:
            cells.append(_Cell(html, column, stop))
        column = stop
    own = {cell.column: cell for cell in cells}
    kept = {start: cell for start, cell in above.items() if start not in own}
    above.clear()
    above.update(kept | own)
    return cells
