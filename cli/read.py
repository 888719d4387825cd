"""`octavo read`: print what a document says."""

from __future__ import annotations

import click

from ..settings import Extraction
from . import options
from .render import TaskProgress, notice, print_json, resumable


@click.command()
@click.argument("document", metavar="DOCUMENT")
@options.output_option("text", "json")
@options.extraction_options
def read(document: str, output: str, extraction: Extraction) -> None:
    """Print the text of a document, as the model sees it.

    DOCUMENT is a file, or - for standard input. A line that begins with --- says the page and the headings of what
    follows, as sources do; -o json has the text and its places apart, in characters. No model is loaded.
    """
    from ..documents.read import read_document

    with resumable(), TaskProgress() as progress:
        found = read_document(document, extraction, progress)
    for sentence in found.notices:
        notice(sentence)
    if output == "json":
        places = [place._asdict() for place in found.places]
        print_json({"document": found.name, "text": found.text, "places": places, "notices": found.notices})
        return
    starts = [place.offset for place in found.places]
    click.echo(found.text[: starts[0] if starts else None], nl=False)
    for place, stop in zip(found.places, [*starts[1:], len(found.text)], strict=False):
        page = f"page {place.page}" if place.page else ""
        is_within_line = place.offset > 0 and found.text[place.offset - 1] != "\n"
        click.echo("\n" * is_within_line + f"--- {', '.join(filter(None, (page, place.heading)))}")
        click.echo(found.text[place.offset : stop], nl=False)
    if not found.text.endswith("\n"):
        click.echo()
