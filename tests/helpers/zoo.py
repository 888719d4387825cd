"""A zoo of tiny models: one of each architecture, from metadata alone.

llama.cpp makes a model from metadata (`llama_model_init_from_user`), as its own tests of architectures do, and tells
the name and shape of each tensor that it wants. Those are drawn here, and written to a GGUF file with `gguf`.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from helpers import tiny_models

from octavo.runtime.graph import ggml

N_CTX, WINDOW = 256, 32

#: Query heads, KV heads and head_dim, by the name head_dim x group. Few, as kernels are compiled for each.
SHAPES = {
    "64x1": {"n_head": 2, "n_kv_head": 2, "head_dim": 64},
    "64x2": {"n_head": 4, "n_kv_head": 2, "head_dim": 64},
    "64x12": {"n_head": 12, "n_kv_head": 1, "head_dim": 64},
    "80x2": {"n_head": 4, "n_kv_head": 2, "head_dim": 80},
    "128x4": {"n_head": 4, "n_kv_head": 1, "head_dim": 128},
    "256x2": {"n_head": 2, "n_kv_head": 1, "head_dim": 256},
}

#: Architectures that need no more than the common metadata.
DENSE = {
    "64x1": "gpt2 jais2 nemotron olmo phi2 qwen smollm3",
    "64x2": "llama arcee bitnet codeshell cohere2 deci falcon gemma3 gptneox internlm2 olmo2 starcoder xverse",
    "64x12": "ernie4_5 glm4 granite hunyuan-dense qwen2 starcoder2",
    "80x2": "exaone4 minicpm openelm orion phi3 plamo plamo3 stablelm",
    "128x4": "baichuan chatglm command-r exaone hunyuan_vl mistral3 nanbeige paddleocr qwen2vl qwen3 seed_oss talkie",
    "256x2": "gemma maincoder pangu-embedded qwen3vl",
}

#: Architectures that need a mixture of experts besides.
WITH_EXPERTS = {
    "64x1": "deepseek deepseek2-ocr dots1 olmoe",
    "64x2": "afmoe cohere2moe exaone-moe gpt-oss laguna mellum smallthinker",
    "64x12": "arctic bailingmoe2 glm4moe hy_v3",
    "80x2": "dbrx phimoe",
    "128x4": "bailingmoe ernie4_5-moe granitemoe grovemoe hunyuan-moe minimax-m2 qwen2moe qwen3moe",
    "256x2": "qwen3vlmoe",
}

_SLIDES = {"attention.sliding_window_pattern": [0, 1]}
_GEMMA4 = {
    "n_layer": 5,
    "attention.sliding_window_pattern": [1, 0, 1, 0, 1],
    "attention.shared_kv_layers": 1,
    "attention.key_length_swa": 64,
    "attention.value_length_swa": 64,
    "rope.freq_base_swa": 10_000.0,
    "embedding_length_per_layer_input": 64,
}

_LONGER_HEADS = {  # where no window slides
    "attention.key_length": 128,
    "attention.value_length": 128,
    "rope.dimension_count": 128,
    "rope.dimension_count_swa": 64,
}

_HEADS_OF_512 = {
    "attention.key_length": 512,
    "attention.value_length": 512,
    "rope.dimension_count": 512,
    "attention.key_length_swa": 256,
    "attention.value_length_swa": 256,
    "rope.dimension_count_swa": 256,
}

#: Latent attention: query heads share one key, of a latent and a rotated part; the latent part is the value.
_LATENT = {
    "experts": True,
    "attention.kv_lora_rank": 512,
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
    "rope.dimension_count": 64,
}

_SHORTER_LATENT = {"attention.kv_lora_rank": 256, "attention.key_length": 320, "attention.value_length": 256}

#: Architectures that need something of their own: windows by layer, shared caches, low soft-caps, keys and values of
#: different lengths, latent attention, windows that are chunks.
SPECIAL: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": ("64x2", {"attn_logit_softcapping": 2.0}),
    "gemma3n": ("64x2", {"n_layer": 24, "calm": True}),
    "gemma4": ("64x2", _GEMMA4),
    "gemma4/longer heads": ("64x2", _GEMMA4 | _LONGER_HEADS),
    "deepseek2": ("128x8", _LATENT),
    "gemma4/heads of 512": ("64x2", _GEMMA4 | _HEADS_OF_512),
    "granite_swa": ("80x2", _SLIDES),
    "hrm_text": ("64x1", {"n_layer": 6, "hrm.layers_per_stack": 1, "hrm.h_cycles": 2, "hrm.l_cycles": 2}),
    "llama4": ("64x2", {"experts": True, "n_layer": 4}),
    "maple": ("128x4", {"experts": True, "swiglu_clamp_exp": 7.0, **_SLIDES}),
    "mimo2": ("64x2", {"experts": True, **_SLIDES}),
    "mimo2/shorter values": (
        "64x2",
        {"experts": True, "attention.key_length": 72, "attention.value_length": 64, **_SLIDES},
    ),
    "minicpm3": ("64x1", {"attention.key_length": 96, "attention.value_length": 64, "rope.dimension_count": 32}),
    "mistral4": ("128x8", _LATENT | _SHORTER_LATENT),
    "muse-glimmer": ("64x12", _SLIDES),
    "spark2_5": ("256x2", _SLIDES),
    "step35": ("64x2", {"experts": True, **_SLIDES}),
}

#: Further shapes, of a llama: query heads, KV heads and head_dim.
FURTHER = {
    "80x3": {"n_head": 6, "n_kv_head": 2, "head_dim": 80},
    "96x4": {"n_head": 4, "n_kv_head": 1, "head_dim": 96},
    "128x1": {"n_head": 3, "n_kv_head": 3, "head_dim": 128},
    "128x8": {"n_head": 8, "n_kv_head": 1, "head_dim": 128},
    "192x5": {"n_head": 5, "n_kv_head": 1, "head_dim": 192},
}

_HYBRID = {"attention.head_count": [2, 0], "attention.head_count_kv": [2, 0]}

_ONE_HEAD = _LATENT | {"n_head": 1, "n_kv_head": 1, "head_dim": 128}
_LATENT_HYBRID = _ONE_HEAD | {"attention.head_count": [1, 0], "attention.head_count_kv": [1, 0]}
_SITU = {"activation.situ_beta": 4.0, "activation.situ_linear_beta": 25.0}

#: Hybrid models: layers of attention among recurrent ones.
HYBRID: dict[str, dict[str, Any]] = {
    "bailingmoe3": {
        **_LATENT_HYBRID,
        "kda.gate_lower_bound": -5.0,
        "rope.dimension_sections": [8, 12, 12, 0],
        "swiglu_clamp_exp": [0.0, 4.0],
        "swiglu_clamp_shexp": [0.0, 5.0],
    },
    "falcon-h1": {},
    "granitehybrid": _HYBRID,
    "jamba": _HYBRID,
    "kimi-k3": _LATENT_HYBRID | _SITU | {"kda.gate_lower_bound": -5.0, "attn_res.block_size": 12},
    "kimi-linear": _LATENT_HYBRID,
    "lfm2": _HYBRID | {"attention.sliding_window": 0},
    "lfm2/one slides": {
        "n_layer": 3,
        "attention.head_count": [2, 0, 2],
        "attention.head_count_kv": [2, 0, 2],
    },
    "lfm2moe": _HYBRID | {"experts": True},
    "minimax-01": {"experts": True},
    "nemotron_h": {
        "n_layer": 3,
        "feed_forward_length": [0, 0, 384],
        "attention.head_count": [2, 0, 2],
        "attention.head_count_kv": [2, 0, 2],
    },
    "plamo2": _HYBRID | {"ssm.group_count": 0},
    "qwen35": {},
    "qwen35moe": {"experts": True},
    "qwen3next": {"experts": True},
}

#: What octavo runs: options by the architecture, and after a slash its variant. Without cogvlm, whose logits hang in
#: llama.cpp itself on how tokens are batched.
RUN: dict[str, dict[str, Any]] = {
    **{name: SHAPES[shape] for shape, names in DENSE.items() for name in names.split()},
    **{name: SHAPES[shape] | {"experts": True} for shape, names in WITH_EXPERTS.items() for name in names.split()},
    **{f"llama/{name}": shape for name, shape in FURTHER.items()},
    **{name: (SHAPES | FURTHER)[shape] | options for name, (shape, options) in SPECIAL.items()},
    **{name: SHAPES["64x1"] | options for name, options in HYBRID.items()},
}

_INDEXER = {
    "attention.indexer.head_count": 64,
    "attention.indexer.key_length": 128,
    "attention.indexer.top_k": 8,
    "attention.indexer.block_size": 4,
    "attention.indexer.kpool": 4,
    "attention.indexer.local_blocks": 1,
}
_HYPER = {
    "hyper_connection.count": 4,
    "hyper_connection.sinkhorn_iterations": 2,
    "hyper_connection.epsilon": 1e-6,
    "hyper_connection.magnitude": 2.0,
    "hyper_connection.low_rank": 8,
    "expert_weights_scale": 1.0,
    "expert_weights_norm": True,
    "swiglu_clamp_exp": 10.0,
}
_DEEPSEEK4 = {
    **_INDEXER,
    **_HYPER,
    "experts": True,
    "n_layer": 4,
    "n_head": 8,
    "n_kv_head": 1,
    "expert_gating_func": 4,
    "hash_layer_count": 0,
    "rope.dimension_count": 32,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "attention.output_group_count": 8,
    "attention.output_lora_rank": 32,
    "attention.compress_ratios": [0, 0, 4, 128],
    "attention.compress_rope_freq_base": 160_000.0,
}
_LATENT_SLIDING = {
    "attention.kv_lora_rank_swa": 512,
    "attention.key_length_swa": 576,
    "attention.value_length_swa": 512,
    "attention.key_length_mla_swa": 192,
    "attention.value_length_mla_swa": 128,
    "attention.indexer.types": [1, 0],
    "rope.freq_base_swa": 10_000.0,
    **_SLIDES,
}
_RANKS = {f"attention.{name}_lora_rank": 32 for name in ("decay", "iclr", "value_residual_mix", "gate")}
_BLOCKS = {
    "experts": True,
    "attention.indexer.head_count": 2,
    "attention.indexer.key_length": 64,
    "attention.indexer.top_k": 8,
    "attention.indexer.block_size": 4,
    "attention.indexer.local_blocks": 1,
}
_WITHOUT_CACHE = "bert dream eurobert gemma-embedding llada llama-embed modern-bert neo-bert nomic-bert"

#: Architectures that octavo refuses, by a part of the sentence.
REFUSED: dict[str, dict[str, dict[str, Any]]] = {
    "their state is all they keep": {"mamba": {}, "mamba2": {}, "rwkv7": _RANKS},
    "(ALiBi)": {"bloom": {}, "jais": {}, "mpt": {}, "refact": {}},
    "an indexer chooses the keys": {
        "deepseek4": _DEEPSEEK4,
        "deepseek32": _ONE_HEAD | _INDEXER,
        "dots3note": _ONE_HEAD | _INDEXER | _LATENT_SLIDING,
        "glm-dsa": _ONE_HEAD | _INDEXER,
        "hy_v4": _ONE_HEAD | _INDEXER | _HYPER | {"attention.indexer.types": [1, 0]},
    },
    "it has no KV cache": {
        **{name: {} for name in _WITHOUT_CACHE.split()},
        **{name: {"experts": True} for name in ("llada-moe", "rnd1")},
    },
    "it is block-sparse": {"minimax-m3": _BLOCKS},
    "its heads have 36 numbers": {"qwen3": {"head_dim": 36}},
    "without flash attention": {"grok": {"experts": True}},
}

_init_from_file = ggml.libggml.gguf_init_from_file
_init_from_file.restype = ctypes.c_void_p
_free = ggml.libggml.gguf_free
_free.restype, _free.argtypes = None, [ctypes.c_void_p]


class _GgufInitParams(ctypes.Structure):
    """struct gguf_init_params of gguf.h."""

    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]


_init_from_file.argtypes = [ctypes.c_char_p, _GgufInitParams]


def common_metadata(n_layer: int, n_head: int, n_kv_head: int, head_dim: int) -> dict[str, Any]:
    """Return what any architecture may ask for: it takes what it knows."""
    n_embd, n_ff = n_head * head_dim, 384
    quarter = head_dim // 4
    return {
        "vocab_size": tiny_models.N_VOCAB,
        "context_length": N_CTX,
        "embedding_length": n_embd,
        "features_length": n_embd,
        "block_count": n_layer,
        "leading_dense_block_count": 1,
        "feed_forward_length": n_ff,
        "use_parallel_residual": False,
        "logit_scale": 1.0,
        "full_attention_interval": 2,
        "attention.head_count": n_head,
        "attention.head_count_kv": n_kv_head,
        "attention.max_alibi_bias": 8.0,
        "attention.clamp_kqv": 1.0,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.group_norm_epsilon": 1e-5,
        "attention.group_norm_groups": 8,
        "attention.q_lora_rank": 64,
        "attention.kv_lora_rank": 64,
        "attention.relative_buckets_count": 8,
        "attention.sliding_window": WINDOW,
        "attention.sliding_window_pattern": 2,
        "rope.dimension_sections": [quarter] * 4,
        "time_mix_extra_dim": 64,
        "time_decay_extra_dim": 128,
        "wkv.head_size": head_dim,
        "ssm.inner_size": 2 * n_embd,
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.time_step_rank": n_head,
        "ssm.group_count": 2,
        "kda.head_dim": 128,
        "shortconv.l_cache": 3,
        "residual_scale": 1.0,
    }


def moe_metadata() -> dict[str, Any]:
    """Return what a mixture of experts asks for. All experts are used: rounding cannot send a token to another one."""
    return {
        "expert_feed_forward_length": 384,
        "expert_shared_feed_forward_length": 192,
        "interleave_moe_layer_step": 2,
        "expert_count": 2,
        "expert_used_count": 2,
        "expert_shared_count": 1,
        "expert_gating_func": 2,
        "expert_group_scale": 1.0,
        "experts_per_group": 1,
    }


def metadata_of(
    *,
    n_layer: int = 2,
    n_head: int = 2,
    n_kv_head: int = 2,
    head_dim: int = 64,
    experts: bool = False,
    **metadata: Any,
) -> dict[str, Any]:
    """Return the common metadata of a model, and `metadata` besides, without the architecture's name."""
    common = common_metadata(n_layer, n_head, n_kv_head, head_dim)
    return common | (moe_metadata() if experts else {}) | metadata


def write_header(path: Path, architecture: str, *, calm: bool = False, **metadata: Any) -> Path:
    """Write the header of such a model alone; `calm` changes nothing in it."""
    return tiny_models.write_gguf(path, architecture, metadata_of(**metadata), {})


def write_model(
    path: Path,
    architecture: str,
    *,
    calm: bool = False,
    seed: int = 0,
    chat_template: str | None = None,
    **metadata: Any,
) -> Path:
    """Write a tiny model of an architecture with random weights.

    `metadata` is as in `metadata_of`. A `calm` model adds less in each layer: in deep ones with random weights
    rounding errors grow otherwise.
    """
    write_header(path, architecture, **metadata)
    rng = np.random.default_rng(seed)
    tensors = {name: draw(name, shape, rng).astype(dtype) for name, shape, dtype in wanted_tensors(path)}
    if calm:
        for name in tensors:
            if ".post_" in name or "altup_" in name:
                tensors[name] *= 0.3
    return tiny_models.write_gguf(path, architecture, metadata_of(**metadata), tensors, chat_template=chat_template)


def wanted_tensors(path: Path) -> list[tuple[str, tuple[int, ...], Any]]:
    """Return name, shape and type of each tensor of the model that llama.cpp makes of a file's metadata."""
    wanted: dict[str, tuple[tuple[int, ...], Any]] = {}

    @llama_cpp.llama_model_set_tensor_data_t
    def note(address: int, _: Any) -> None:
        tensor = ggml.Tensor.from_address(address)
        n_dims = max([i + 1 for i in range(ggml.MAX_DIMS) if tensor.ne[i] > 1], default=1)
        dtype = {ggml.TYPE_F32: np.float32, ggml.TYPE_F16: np.float16}[tensor.type]
        wanted[tensor.name.decode()] = (tuple(tensor.ne[:n_dims][::-1]), dtype)

    metadata = _init_from_file(bytes(path), _GgufInitParams(True, None))
    try:
        model = llama_cpp.llama_model_init_from_user(metadata, note, None, llama_cpp.llama_model_default_params())
        assert model, f"llama.cpp makes no model of {path.name}"
        llama_cpp.llama_model_free(model)
    finally:
        _free(metadata)
    return [(name, *rest) for name, rest in wanted.items()]


def draw(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw a tensor, so that scores have a standard deviation of about one and logits of about three."""
    stem, _, kind = name.rpartition(".")
    own = stem.rpartition(".")[2]
    if "sinks" in own:
        return rng.normal(3.0, 1.0, shape)
    if "ssm_a" in name:
        return -rng.uniform(0.5, 2.0, shape)
    if "norm" in own and kind == "weight":
        return rng.uniform(0.8, 1.2, shape) * (1.2 if own in ("attn_q_norm", "attn_k_norm") else 1.0)
    if kind == "bias":
        return rng.normal(0.0, 0.3, shape)
    if len(shape) == 1:
        return rng.uniform(0.8, 1.2, shape)
    gain = {"token_embd": np.sqrt(shape[-1]), "output": 3.0, "attn_q": 1.2, "attn_k": 1.2, "attn_v": 2.0}.get(own, 1.0)
    return rng.normal(0.0, gain / np.sqrt(shape[-1]), shape)
