"""`octavo read`: print what a document says."""

from __future__ import annotations

import sys

import click

from ..settings import Extraction
from . import options
from .fitting import columns_of, plain
from .render import TaskProgress, notice, print_json, resumable


@click.command()
@click.argument("document", metavar="DOCUMENT")
@options.output_option("text", "json")
@options.quiet
@options.extraction_options
def read(document: str, output: str, extraction: Extraction) -> None:
    """Print the text of a document, as the model sees it.

    DOCUMENT is a file, or - for standard input. A line that begins with --- says the page and the headings of what
    follows, as sources do; -o json has the text and its places apart, in characters. No model is loaded.
    """
    from ..documents.document import marked_text
    from ..documents.extract import extract_document

    with resumable(), TaskProgress() as progress:
        found = extract_document(document, extraction, progress)
    for sentence in found.notices:
        notice(sentence)
    if output == "json":
        places = [place._asdict() for place in found.places]
        print_json({"document": found.name, "text": found.text, "places": places, "notices": found.notices})
        return
    text = marked_text(found)
    click.echo(text if columns_of(sys.stdout) is None else plain(text), nl=False)
