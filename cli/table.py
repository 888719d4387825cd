"""Print tables for people: on a terminal they fit its columns, elsewhere everything is whole."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest

import click

from .fitting import columns_of, plain, shortened, wrapped

#: Blanks between columns; the fewest columns of a cell that is shortened or folded, and those that it should have.
_GAP, _LEAST, _GOOD = 2, 14, 24


def table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[str] = (),
    optional: Sequence[str] = (),
    short: Collection[str] = (),
    folded: Collection[str] = (),
) -> None:
    """Print a table. Where a terminal is too narrow, leave columns out, and shorten or fold the widest cells.

    Parameters
    ----------
    names : sequence of str
        Headings of the columns.
    right : collection of str
        Headings of the columns to align to the right.
    optional : sequence of str
        Headings of the columns that may be left out, the least important one first.
    short : collection of str
        Headings of the columns whose cells may be shortened, by an ellipsis.
    folded : collection of str
        Headings of the columns whose cells may take several lines.
    """
    width, shown = columns_of(sys.stdout), list(range(len(names)))
    rows = [[plain(cell) for cell in cells] for cells in rows]
    widths = [max(map(_width, cells)) for cells in zip(names, *rows, strict=True)]
    if width is not None:
        flexible = [i for i in shown if names[i] in short or names[i] in folded]
        good, least = (
            [min(size, most) if i in flexible else size for i, size in enumerate(widths)] for most in (_GOOD, _LEAST)
        )
        for name in optional:
            if _total(good[i] for i in shown) > width:
                shown.remove(names.index(name))
        while _total(widths[i] for i in shown) > width:
            widest = max(shown, key=lambda i: widths[i] - least[i])
            if widths[widest] == least[widest]:
                break
            widths[widest] -= 1

    def lines(cells: Sequence[str]) -> Iterable[str]:
        parts = [_lines_of(cells[i], widths[i], names[i] in short) for i in shown]
        for line in zip_longest(*parts, fillvalue=""):
            padded = (_padded(text, widths[i], names[i] in right) for i, text in zip(shown, line, strict=True))
            yield (" " * _GAP).join(padded).rstrip()

    for line in lines(names):
        click.secho(line, bold=True)
    click.echo("─" * _total(widths[i] for i in shown))
    for cells in rows:
        for line in lines(cells):
            click.echo(line)


def _lines_of(cell: str, width: int, is_short: bool) -> list[str]:
    """Return the lines of a cell, of which each fits."""
    from rich.cells import chop_cells

    if is_short:
        return [shortened(cell, width)]
    return [part for line in wrapped(cell, width).split("\n") for part in chop_cells(line, width) or [""]]


def _total(widths: Iterable[int]) -> int:
    widths = list(widths)
    return sum(widths) + _GAP * (len(widths) - 1)


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _padded(text: str, width: int, to_the_right: bool) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if to_the_right else text + blanks
