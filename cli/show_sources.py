"""Show the sources of an answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .fitting import columns_of, wrapped

if TYPE_CHECKING:
    from ..ask.session import Session
    from ..ask.sources.find_sources import Passage

#: Printed for an answer whose tokens attended to no part of the document in particular.
NONE = "Not from the document: the answer attended nothing of it in particular."

#: Columns at which a quote wraps if the terminal is wider, and its indentation.
_WIDEST, _INDENT = 100, "   "


def sources_option(command: Any) -> Any:
    """Declare --sources."""
    return click.option("--sources", is_flag=True, help="List the passages of the document that an answer comes from.")(
        command
    )


def show_sources(session: Session, err: bool) -> None:
    """Print the sources of the last answer, on stderr with `err`; on a terminal the quotes stand out."""
    found = session.sources()
    if not found:
        click.echo(NONE, err=err)
    columns = columns_of(sys.stderr if err else sys.stdout)
    width = min(columns or _WIDEST, _WIDEST)
    for number, passage in enumerate(found, 1):
        header = f"{number}. {_place(passage)} ({passage.share:.0%} of the attention)"
        click.echo(wrapped(header, columns and width, _INDENT), err=err)
        quote = f"{_INDENT}{' '.join(passage.quote.split())}"
        click.secho(wrapped(quote, width, _INDENT), err=err, fg="yellow")


def _place(passage: Passage) -> str:
    page = f"page {passage.page}" if passage.page else ""
    name = Path(passage.document).name if passage.document else ""
    return ", ".join(filter(None, (name, page, passage.heading, f"line {passage.line:,}")))


def sources_as_json(session: Session) -> list[dict[str, Any]]:
    """Return the sources of the last answer for programs."""
    return [passage.as_json() for passage in session.sources()]
