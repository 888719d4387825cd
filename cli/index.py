"""`octavo index`: make indexes, and list them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import options
from .render import TaskProgress, notice, print_json, resumable, size, table


@click.command()
@click.argument("documents", metavar="DOCUMENT...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--list", "list_all", is_flag=True, help="List the indexes of the model instead.")
@options.output_option("text", "json")
@options.attention
@options.plan
@options.retrieval_heads
@options.prefill
@options.password
@options.model_options
def index(
    documents: tuple[Path, ...],
    list_all: bool,
    output: str,
    model_options: options.ModelOptions,
    **how: Any,
) -> None:
    """Read documents once, so that later questions start at once.

    Each DOCUMENT is text, Markdown, HTML, PDF, EPUB or DOCX, or - for standard input. Interrupted, the same command
    goes on where it stopped. Most values of --attention take the same index; give the one that you will ask with.
    """
    if list_all == bool(documents):
        raise click.UsageError("Name the documents to index, or give --list without any.")
    if list_all:
        show_indexes(model_options, output)
    else:
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


def show_indexes(model_options: options.ModelOptions, output: str) -> None:
    """Print the indexes of a model."""
    library = model_options.library()
    found = [describe(folder, manifest) for folder, manifest in library.indexes()]
    if output == "json":
        print_json(found)
    elif not found:
        notice(f"There are no indexes in {library.folder}.")
    else:
        table(
            ["document", "model", "tokens", "cache type", "size", "created", "path"],
            [
                [
                    row["document"],
                    row["model"],
                    f"{row['tokens']:,}",
                    row["cache_type"],
                    size(row["bytes"]),
                    row["created"],
                    row["path"],
                ]
                for row in found
            ],
            right=frozenset({"tokens", "size"}),
        )


def describe(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return one row of the list."""
    return {
        "document": manifest["document"]["name"],
        "model": manifest["model"]["name"],
        "tokens": manifest["document"]["tokens"],
        "cache_type": manifest["dtype"],
        "bytes": sum(file["size"] for file in manifest["files"].values()),
        "created": manifest["created"],
        "path": str(folder),
    }
