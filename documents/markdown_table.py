"""Write tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def markdown_table(rows: Iterable[Iterable[str]]) -> str:
    """Return rows of cells as a table in Markdown, without empty rows and empty columns at its end.

    Parameters
    ----------
    rows : iterable of iterables of str
        Cells, as many in a row as there are.
    """
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    cells = [row for row in cells if any(row)]
    width = max((1 + max(number for number, cell in enumerate(row) if cell) for row in cells), default=0)
    lines = [f"| {' | '.join((row + [''] * width)[:width])} |" for row in cells]
    return "\n".join([*lines[:1], f"|{' --- |' * width}", *lines[1:]]) + "\n" if lines else ""
