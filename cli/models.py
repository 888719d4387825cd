"""`octavo models`: list the models on this disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import options
from .render import notice, print_json, size
from .table import table

if TYPE_CHECKING:
    from ..runtime.models.find_model import LocalModel


@click.command()
@options.output_option("text", "json")
@options.index_dir
def models(output: str, index_dir: Path | None) -> None:
    """List the models on this disk.

    The first is the one in use: OCTAVO_MODEL, or the default model. The others are those in the cache of the Hugging
    Face hub, and those that ollama, LM Studio and llama.cpp keep. Their names are what -m takes. A model's header says
    whether octavo runs it; nothing is loaded, and nothing is fetched.
    """
    from ..library.catalogue import entries
    from ..runtime.models.find_model import describe, local_models
    from ..runtime.store.model_library import Library

    in_use = _in_use()
    found: list[dict[str, Any]] = []
    known = [model for model in local_models() if in_use is None or model.path != in_use.path]
    for model in [*filter(None, [in_use]), *known]:
        described, folder = describe(model.path), Library.of(model.path, index_dir).folder
        indexes = entries([folder] if folder.is_dir() else [])
        found.append(
            {
                "name": model.name,
                "in_use": model is in_use,
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
        return
    if found:
        _show(found)
    if not known:
        notice(
            "There are no models of other programs on this disk. -hf OWNER/REPO fetches one of the Hugging Face hub."
        )


def _in_use() -> LocalModel | None:
    """Return the model that commands use without -m; None if there is none, or if it is not on this disk."""
    from ..errors import OctavoError
    from ..runtime.models.find_model import LocalModel, find_model, local_models
    from ..runtime.models.hub import PREFIX as HUB

    named = os.environ.get("OCTAVO_MODEL") or ""
    if not named and (repo := os.environ.get("OCTAVO_HF_REPO")):
        named = f"{HUB}{repo}"
    if named.startswith(HUB):  # which may have to be fetched
        return next((model for model in local_models() if model.name.startswith(named.partition(":")[2])), None)
    try:
        path = find_model(named or None, notice)
    except OctavoError as problem:
        notice(str(problem))
        return None
    return LocalModel(named or path.stem, path) if path.is_file() else None


def _show(found: list[dict[str, Any]]) -> None:
    rows = [
        [
            f"{model['name']} (in use)" if model["in_use"] else model["name"],
            size(model["bytes"]),
            f"{model['context']:,}" if model["context"] else "",
            "yes" if model["runs"] else f"no: {model['problem']}",
            f"{model['indexes']} ({size(model['index_bytes'])})" if model["indexes"] else "",
        ]
        for model in found
    ]
    names = "Model", "Size", "Context", "octavo runs it", "Indexes"
    table(names, rows, {"Size", "Context"}, ["Indexes", "Context"], folded={"Model", "octavo runs it"})
