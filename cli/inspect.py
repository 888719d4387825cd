"""`octavo inspect`: describe a model or an index."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import options
from .fitting import plain
from .option_types import Size
from .render import print_json, size

if TYPE_CHECKING:
    from ..runtime.devices.step_costs import StepCosts


@click.command()
@click.argument("path", metavar="MODEL|DOCUMENT|INDEX", type=click.Path(path_type=Path))
@click.option("--memory", type=Size(), help="Count the tokens whose keys and values fit, such as in 8G, for a model.")
@options.output_option("text", "json")
def inspect(path: Path, memory: int | None, output: str) -> None:
    """Say what a model or an index holds.

    MODEL is a GGUF file, or a name as -m takes it. DOCUMENT is a file that is indexed, INDEX the folder of an index.
    All files of an index are compared with their checksums. A document has an index for each model, and for each of its
    parts.
    """
    from ..errors import OctavoError

    folders = [path] if path.is_dir() else _indexes_of(path)
    if folders and memory is not None:
        raise click.UsageError("--memory is for a model, and not for its indexes.")
    found = [inspect_index(folder) for folder in folders] or [inspect_model(options.model_path(path), memory)]
    if output == "json":
        print_json(found[0] if len(found) == 1 else found)
    else:
        texts = ("\n".join(_line(name, value) for name, value in one.items()) for one in found)
        click.echo("\n\n".join(texts))
    damage = [file["damage"] for one in found for file in one.get("files", []) if file["damage"]]
    if damage:
        raise OctavoError(damage[0])


def _line(name: str, value: Any) -> str:
    return plain(f"{name.replace('_', ' '):<20}{in_words(name, value)}")


def _indexes_of(document: Path) -> list[Path]:
    """Return the folders of a document's indexes, with all models; none for a model.

    Raise OctavoError if the document is not indexed.
    """
    from ..errors import OctavoError
    from ..library.catalogue import entries
    from ..runtime.models.gguf_header import MAGIC

    if not document.is_file() or document.suffix == ".gguf":
        return []
    with document.open("rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            return []
    path = os.path.realpath(document)
    found = [entry.folder for entry in entries(options.library_folders(None, None)) if entry.path == path]
    if not found:
        raise OctavoError(f"{document} is not indexed: `octavo index` reads it, and `octavo read` prints its text.")
    return sorted(found)


def inspect_index(folder: Path) -> dict[str, Any]:
    """Read the manifest of an index, and compare its files with their checksums.

    Raise OctavoError if the folder is not a finished index.
    """
    from ..errors import OctavoError
    from ..runtime.methods import AUTO
    from ..runtime.store.index_files import open_index
    from ..runtime.store.manifest import MANIFEST, damages, read_manifest
    from ..runtime.store.model_library import PLAN

    if folder.name.endswith(".partial"):
        raise OctavoError(f"{folder} is an index that is not finished: index the document again, and it resumes.")
    if not (folder / MANIFEST).exists():
        raise OctavoError(f"{folder} is not an index: it has no {MANIFEST}. `octavo list` names indexes.")
    manifest = read_manifest(folder)
    found = damages(folder, manifest, thorough=True)
    files = [
        {"name": name, "bytes": described["size"], "damage": found[name] or None}
        for name, described in manifest["files"].items()
    ]
    if not any(found.values()):  # then the arrays must agree with one another, too
        open_index(folder, manifest["model"]["sha256"])
    return {
        "document": manifest["document"]["name"],
        "tokens": manifest["document"]["tokens"],
        "document_sha256": manifest["document"]["sha256"],
        "model": manifest["model"]["name"],
        "model_sha256": manifest["model"]["sha256"],
        "created": manifest["created"],
        "cache_type": manifest["dtype"],
        "format_version": manifest.get("format_version"),
        "clustering": manifest.get("clustering"),
        "rope": manifest.get("rope"),
        AUTO: _auto_choice((folder.parent / PLAN).exists()),
        "bytes": sum(file["bytes"] for file in files),
        "files": files,
    }


def inspect_model(path: Path, memory: int | None = None) -> dict[str, Any]:
    """Describe a model, as llama.cpp and its graph see it, and count the tokens that fit in memory, in bytes.

    Raise OctavoError if llama.cpp cannot load the file.
    """
    import llama_cpp

    from ..runtime.llama import Llama
    from ..runtime.methods import AUTO
    from ..runtime.methods.attention import LLAMA_CPP_ATTENTION
    from ..runtime.models.own_products import own_products
    from ..runtime.store.model_library import Library

    has_plan = Library.of(path).plan_path.exists()
    llama = Llama(path, attention=LLAMA_CPP_ATTENTION, n_ctx=512)
    model, attention = llama.model, describe_attention(llama)
    if attention["octavo_attention"]:
        costs = _step_costs(llama)
        attention[AUTO] = {"chooses": _auto_choice(has_plan, costs), **_in_microseconds(costs)}
        if memory is not None:
            attention["tokens_that_fit"] = _capacities(llama, memory - path.stat().st_size)
    return {
        "model": path.name,
        "bytes": path.stat().st_size,
        "architecture": llama.metadata.get("general.architecture", "unknown"),
        "parameters": llama_cpp.llama_model_n_params(model),
        "layers": llama_cpp.llama_model_n_layer(model),
        "context_length": llama_cpp.llama_model_n_ctx_train(model),
        "chat_template": "tokenizer.chat_template" in llama.metadata,
        "products": asdict(own_products(path)),
        **attention,
    }


def _capacities(llama: Any, n_bytes: int) -> list[dict[str, Any]]:
    """Count the tokens that fit in n_bytes beside what loading a model takes."""
    from ..runtime.cache.capacity import capacities
    from ..runtime.graph.attention_nodes import attention_nodes, cache_layers
    from ..system.free_memory import LOADING_BYTES

    nodes = attention_nodes(llama._model, llama.context_params)
    return list(capacities(lambda kv_type: cache_layers(nodes, kv_type), n_bytes - LOADING_BYTES))


def _auto_choice(has_plan: bool, costs: StepCosts | None = None) -> str:
    """Return the method that `auto` chooses on the CPU, in words."""
    from ..runtime.methods.attention import Attention
    from ..runtime.methods.auto import SHORT, Auto
    from ..runtime.methods.layer_budgets import LayerBudgets

    method, parameters = Auto().choose(selects_from=costs.selects_from if costs else SHORT)
    return str(Attention(method, parameters, layers=LayerBudgets() if has_plan else None))


def _step_costs(llama: Any) -> StepCosts | None:
    """Return what steps cost on this machine with octavo's default of threads, if that was measured."""
    from ..cpu_kernels.numba_support.shape import F16
    from ..runtime.devices.step_costs import kept_costs
    from ..runtime.graph.attention_nodes import attention_nodes, cache_layers
    from ..system.processors import default_threads

    layers = cache_layers(attention_nodes(llama._model, llama.context_params), F16)
    return kept_costs(layers, default_threads())


def _in_microseconds(costs: StepCosts | None) -> dict[str, str]:
    """Describe the costs of a layer's step at each length."""
    times = zip(costs.tokens, costs.dense, costs.selecting, strict=True) if costs else ()
    return {
        f"a layer's step at {n_tokens:,} tokens": f"{dense:g} us reading all, {selecting:g} us selecting an eighth"
        for n_tokens, dense, selecting in times
    }


def describe_attention(llama: Any) -> dict[str, Any]:
    """Describe the shape of a model's attention, or return why octavo cannot compute it."""
    from ..cpu_kernels.numba_support.shape import F16
    from ..errors import OctavoError
    from ..runtime.graph.attention_nodes import attention_nodes, cache_layers

    try:
        nodes = attention_nodes(llama._model, llama.context_params)
    except OctavoError as problem:
        return {"octavo_attention": False, "reason": str(problem)}
    return {
        "octavo_attention": True,
        "heads": _distinct(node.n_head for node in nodes),
        "kv_heads": _distinct(node.n_kv_head for node in nodes),
        "group": _distinct(node.n_head // node.n_kv_head for node in nodes),
        "head_dim": _distinct(node.head_dim for node in nodes),
        "windows": [{"window": window, "layers": n} for window, n in Counter(node.window for node in nodes).items()],
        "kv_bytes_per_token": sum(layer.row_bytes for layer in cache_layers(nodes, F16)),
        **({"attention_layers": len(nodes), "state_bytes": _state_bytes(llama)} if _is_hybrid(llama) else {}),
    }


def _is_hybrid(llama: Any) -> bool:
    import llama_cpp

    return bool(llama_cpp.llama_model_is_hybrid(llama.model))


def _state_bytes(llama: Any) -> int:
    """Return the bytes of the recurrent state of a hybrid model, which llama.cpp tells after a token."""
    from ..runtime.sequences.recurrent import recurrent_state

    llama.eval([max(llama.token_bos(), 0)])
    return recurrent_state(llama.ctx, 0).nbytes


def _distinct(values: Any) -> Any:
    """Return the value that all layers share, or the list of all values."""
    listed = list(values)
    return listed[0] if len(set(listed)) == 1 else listed


def in_words(name: str, value: Any) -> str:
    """Write a named value for people."""
    if name in ("bytes", "state_bytes") or name.startswith("kv_bytes"):
        return size(value)
    if name == "windows":
        return ", ".join(f"{group['layers']} layers {_window(group['window'])}" for group in value)
    if name == "files":
        return (
            f"{len(value)}, "
            + ("some damaged" if any(file["damage"] for file in value) else "all intact")
            + "".join(
                f"\n  {file['name']:<28}{size(file['bytes']):>12}  {'damaged' if file['damage'] else 'intact'}"
                for file in value
            )
        )
    if name == "tokens_that_fit":
        rows = [(row["attention"], f"{row['share']:g}", *(f"{n:,}" for n in row["tokens"].values())) for row in value]
        rows.insert(0, ("attention", "share kept", *value[0]["tokens"]))
        return "".join(f"\n  {row[0]:<12}{row[1]:>10}{''.join(f'{n:>14}' for n in row[2:])}" for row in rows)
    if name == "products":
        from ..runtime.models.own_products import OwnProducts

        return str(OwnProducts(**value))
    if name == "octavo_attention":
        return "octavo can run this model" if value else "octavo cannot run this model"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {item}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _window(window: int) -> str:
    return f"see {window:,} tokens" if window else "see everything"
