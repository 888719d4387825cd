"""Identify results: the first line of their file, its name, and the head of the report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..convert.identity import NUMBERS, numbers_of
from ..cpu_kernels.numba_support.machine import cpu_name
from ..cpu_kernels.numba_support.shape import F16
from ..documents.document import hash_text
from ..runtime.llama import Llama
from ..runtime.models.llama_arguments import ROPE_SCALING
from ..runtime.store.model_library import Library
from ..version import __version__
from .results import Results

if TYPE_CHECKING:
    from .tasks.task import AnyTask


class Sampled(Protocol):
    """How samples are drawn: number at each depth, seed, and the file that holds the texts."""

    @property
    def n_samples(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def data(self) -> Path: ...


def machine_of(llama: Llama) -> dict[str, Any]:
    """Describe this machine: processor, threads and device."""
    return {"cpu": cpu_name(), "threads": llama.context_params.n_threads, "device": llama.context.device.name}


def results_of(
    llama: Llama,
    library: Library,
    task: AnyTask,
    settings: Sampled,
    machine: dict[str, Any],
    **more: Any,
) -> Results:
    """Open the results of a task: a file in the model's library, whose header holds task, model and settings.

    Parameters
    ----------
    machine : dict
        The measuring machine. Results with seconds are kept apart for each machine, as these depend on it. Of other
        results an existing file keeps the machine that measured first.
    **more
        Further entries of the header.
    """
    depends_on = {
        "octavo": __version__,
        "task": {"name": task.name, **vars(task)},
        "model": {"name": library.model_path.name, "sha256": library.model_hash},
        **numbers_of(llama),
        "cache_type": llama.context.kv_type,
        "data": {"name": settings.data.name, "sha256": hash_text(task.content(settings.data))},
        "samples": settings.n_samples,
        "seed": settings.seed,
        **({"machine": machine} if task.is_timed else {}),
        **more,
    }
    identity = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:12]
    path = library.folder / "eval" / f"{task.name}-{identity}.jsonl"
    return Results(path, {**depends_on, "machine": machine})


def head_of(task: AnyTask, results: Results) -> dict[str, Any]:
    """Return the head of `octavo eval -o json`: the task, and what its figures depend on."""
    header = results.header
    _, scale, *stretched = header["rope"]
    scaling = next((name for name, number in ROPE_SCALING.items() if [number] == stretched), None)
    return {
        "task": task.name,
        "parameters": task.changed,
        "metric": task.metric,
        "higher_is_better": task.higher_is_better,
        **{name: header[name] for name in ("model", "octavo", "data", "seed", "machine", "cache_type")},
        "rope": f"{scaling} {1 / scale:g}" if scaling else None,
        **{name: header[name] for name in NUMBERS[1:] if name in header},  # only unusual models have them
    }


def not_default(head: Mapping[str, Any]) -> list[str]:
    """Return words for the type of the cache and the rope scaling in a head, unless they are the default."""
    cache_type, rope = head.get("cache_type", F16), head.get("rope")
    return [*([] if cache_type == F16 else [f"{cache_type} cache"]), *([f"{rope} rope scaling"] if rope else [])]
