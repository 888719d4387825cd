"""Translate arguments of `Llama` for llama.cpp: types of keys and values, and the scaling of positions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import llama_cpp

from ...cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0
from ...errors import OctavoError
from ...settings import check_rope
from ..graph import ggml
from .gguf_header import architecture_number

#: Storage formats of keys and values, with llama.cpp's numbers.
GGML_TYPES = {F16: ggml.TYPE_F16, Q8_0: ggml.TYPE_Q8_0, Q4_0: ggml.TYPE_Q4_0}


#: Ways to scale positions, with llama.cpp's numbers.
ROPE_SCALING = {
    "linear": llama_cpp.LLAMA_ROPE_SCALING_TYPE_LINEAR,
    "yarn": llama_cpp.LLAMA_ROPE_SCALING_TYPE_YARN,
}


def rope_arguments(scaling: str | None, scale: float) -> dict[str, Any]:
    """Return llama-cpp-python's arguments for scaled positions. Raise OctavoError for an unknown way."""
    check_rope(scaling, scale)
    if scaling is None:
        return {}
    yarn = {"yarn_ext_factor": 1.0} if scaling == "yarn" else {}
    return {"rope_scaling_type": ROPE_SCALING[scaling], "rope_freq_scale": 1 / scale, **yarn}


def kv_type_named(type_k: int | None, type_v: int | None) -> str:
    """Return the type of llama.cpp's numbers; one suffices. Raise OctavoError if it is unknown or they differ."""
    asked = {number for number in (type_k, type_v) if number is not None} or {ggml.TYPE_F16}
    for kv_type, number in GGML_TYPES.items():
        if asked == {number}:
            return kv_type
    raise OctavoError(
        f"octavo's attention stores keys and values both as f16, both as q8_0 or both as q4_0, and not as "
        f"type_k={type_k} and type_v={type_v}: give GGML_TYPE_F16, GGML_TYPE_Q8_0 or GGML_TYPE_Q4_0 as both, or use "
        "attention='llama.cpp'."
    )


def wants_extra_buffers(path: Path, has_amx: bool, multiplies: bool) -> bool:
    """Return whether llama.cpp may lay out a model's weights for this CPU.

    Its buffers for AMX take the weights of latent attention, which it then cannot multiply: it would abort. Otherwise
    it multiplies few tokens faster with them than octavo, which on other CPUs `multiplies` all.
    """
    if has_amx:
        return not architecture_number(path, "attention.key_length_mla")
    return not multiplies


def original_n_ctx(metadata: Mapping[str, str]) -> int:
    """Return the context beyond which positions turn by other factors (LongRoPE); 0 if there are none."""
    prefix = f"{metadata.get('general.architecture')}.rope.scaling"
    if metadata.get(f"{prefix}.type") in ("linear", "yarn"):
        return 0
    return int(metadata.get(f"{prefix}.original_context_length", 0))
