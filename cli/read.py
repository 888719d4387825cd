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
@click.option(
    "--all", "with_rest", is_flag=True, help="Print all that was left out, too: repeats, page numbers, invisible text."
)
@options.quiet
@options.extraction_options
def read(document: str, output: str, with_rest: bool, extraction: Extraction) -> None:
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
        rest = {"left_out": found.left_out} if with_rest else {}
        print_json({"document": found.name, "text": found.text, "places": places, "notices": found.notices, **rest})
        return
    text = marked_text(found)
    if with_rest and found.left_out:
        text += "\n--- left out\n" + "".join(f"{each}\n" for each in found.left_out)
    click.echo(text if columns_of(sys.stdout) is None else plain(text), nl=False)
