"""`octavo index`: make indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import options
from .render import TaskProgress, notice, print_json, resumable


@click.command()
@click.argument("documents", metavar="DOCUMENT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.output_option("text", "json")
@options.attention
@options.plan
@options.retrieval_heads
@options.prefill
@options.password
@options.model_options
def index(
    documents: tuple[Path, ...],
    output: str,
    model_options: options.ModelOptions,
    **how: Any,
) -> None:
    """Read documents once, so that later questions start at once.

    Each DOCUMENT is text, Markdown, HTML, PDF, EPUB or DOCX, or - for standard input. Interrupted, the same command
    goes on where it stopped. Most values of --attention take the same index; give the one that you will ask with.
    """
    options.refuse_llama_cpp(how["attention"])
    made = make_indexes(documents, model_options, how)
    if output == "json":
        print_json([{"document": path.name, "path": str(folder)} for path, folder in made])


def make_indexes(
    documents: tuple[Path, ...], model_options: options.ModelOptions, how: dict[str, Any]
) -> list[tuple[Path, Path]]:
    """Index each document for an attention; returns each with its index's folder."""
    from ..api import index_documents

    with resumable(), TaskProgress() as progress:
        folders = index_documents(documents, **model_options.arguments(), **how, progress=progress, notice=notice)
    return list(zip(documents, folders, strict=True))
