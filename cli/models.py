"""`octavo models`: list the models on this disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import options
from .render import notice, print_json, size
from .table import table


@click.command()
@options.output_option("text", "json")
@options.index_dir
def models(output: str, index_dir: Path | None) -> None:
    """List the models on this disk.

    They are those in the cache of the Hugging Face hub, and those that ollama, LM Studio and llama.cpp keep. Each name
    is what -m takes. A model's header says whether octavo runs it; nothing is loaded, and nothing is fetched.
    """
    from ..library.catalogue import entries
    from ..runtime.models.find_model import describe, local_models
    from ..runtime.store.model_library import Library

    found: list[dict[str, Any]] = []
    for model in local_models():
        described, folder = describe(model.path), Library.of(model.path, index_dir).folder
        indexes = entries([folder] if folder.is_dir() else [])
        found.append(
            {
                "name": model.name,
                "bytes": model.path.stat().st_size,
                "context": described.n_ctx,
                "architecture": described.architecture,
                "runs": not described.problem,
                "problem": described.problem,
                "indexes": len(indexes),
                "index_bytes": sum(entry.n_bytes for entry in indexes),
                "path": str(model.path),
            }
        )
    if output == "json":
        print_json(found)
    elif not found:
        notice(
            "There are no models of other programs on this disk. -hf OWNER/REPO fetches one of the Hugging Face hub."
        )
    else:
        _show(found)


def _show(found: list[dict[str, Any]]) -> None:
    rows = [
        [
            model["name"],
            size(model["bytes"]),
            f"{model['context']:,}" if model["context"] else "",
            "yes" if model["runs"] else f"no: {model['problem']}",
            f"{model['indexes']} ({size(model['index_bytes'])})" if model["indexes"] else "",
        ]
        for model in found
    ]
    names = "Model", "Size", "Context", "octavo runs it", "Indexes"
    table(names, rows, {"Size", "Context"}, ["Indexes", "Context"], folded={"Model", "octavo runs it"})
