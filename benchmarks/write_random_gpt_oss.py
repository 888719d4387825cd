"""Write a GGUF file of random weights in the shape of gpt-oss-20b, with few layers, for timing. Its answers are noise.

    python benchmarks/write_random_gpt_oss.py OUT.gguf [--layers 2]

Each token takes 4 of 32 experts, whose matrices are MXFP4, 0.4 GB a layer. Other matrices are Q4_0. The tokenizer is
the one in write_random_llama.py.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType
from write_random_llama import ATTENTION_GAIN, LOGIT_SPREAD, add_tokenizer, random_matrix

N_EXPERTS, N_USED = 32, 4

_N_EMBD, _N_FF, _N_VOCAB, _N_CTX, _WINDOW = 2880, 2880, 512, 131_072, 128
_N_HEAD, _N_KV_HEAD, _HEAD_DIM = 64, 8, 64

_BLOCK = np.dtype([("exponent", np.uint8), ("nibbles", np.uint8, 16)])  # ggml's block_mxfp4
_SPREAD = math.sqrt(68.5 / 4 / 2)  # root mean square of a nibble's value, all drawn evenly


def write_model(path: Path, n_layer: int, n_embd: int = _N_EMBD, n_ff: int = _N_FF, seed: int = 0) -> None:
    """Write a model: the same sizes and seed make the same file."""
    writer = GGUFWriter(path, "gpt-oss")
    writer.add_name("Random weights, experts")
    writer.add_file_type(LlamaFileType.MOSTLY_MXFP4_MOE)
    writer.add_quantization_version(2)
    writer.add_vocab_size(_N_VOCAB)
    writer.add_block_count(n_layer)
    writer.add_context_length(_N_CTX)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(n_ff)
    writer.add_expert_feed_forward_length(n_ff)
    writer.add_expert_count(N_EXPERTS)
    writer.add_expert_used_count(N_USED)
    writer.add_head_count(_N_HEAD)
    writer.add_head_count_kv(_N_KV_HEAD)
    writer.add_key_length(_HEAD_DIM)
    writer.add_value_length(_HEAD_DIM)
    writer.add_sliding_window(_WINDOW)
    writer.add_rope_dimension_count(_HEAD_DIM)
    writer.add_rope_freq_base(150_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    add_tokenizer(writer, _N_VOCAB)
    rng = np.random.Generator(np.random.SFC64(seed))
    _add_matrix(writer, "token_embd.weight", _N_VOCAB, n_embd, LOGIT_SPREAD, rng)
    _add_matrix(writer, "output.weight", _N_VOCAB, n_embd, LOGIT_SPREAD, rng)
    writer.add_tensor("output_norm.weight", np.ones(n_embd, np.float32))
    for i in range(n_layer):
        _add_layer(writer, f"blk.{i}", n_embd, n_ff, rng)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_layer(writer: GGUFWriter, layer: str, n_embd: int, n_ff: int, rng: np.random.Generator) -> None:
    n_queries, n_keys = _N_HEAD * _HEAD_DIM, _N_KV_HEAD * _HEAD_DIM
    for name, rows, columns, gain in (
        ("attn_q", n_queries, n_embd, ATTENTION_GAIN),
        ("attn_k", n_keys, n_embd, ATTENTION_GAIN),
        ("attn_v", n_keys, n_embd, 1.0),
        ("attn_output", n_embd, n_queries, 1.0),
    ):
        _add_matrix(writer, f"{layer}.{name}.weight", rows, columns, gain, rng)
        writer.add_tensor(f"{layer}.{name}.bias", np.zeros(rows, np.float32))
    for name, rows, columns in (("gate", n_ff, n_embd), ("up", n_ff, n_embd), ("down", n_embd, n_ff)):
        experts = random_experts(rows, columns, rng)
        kind = GGMLQuantizationType.MXFP4
        writer.add_tensor(f"{layer}.ffn_{name}_exps.weight", experts, raw_dtype=kind)
        writer.add_tensor(f"{layer}.ffn_{name}_exps.bias", np.zeros((N_EXPERTS, rows), np.float32))
    router = rng.standard_normal((N_EXPERTS, n_embd), np.float32) / np.float32(math.sqrt(n_embd))
    writer.add_tensor(f"{layer}.ffn_gate_inp.weight", router)
    writer.add_tensor(f"{layer}.ffn_gate_inp.bias", np.zeros(N_EXPERTS, np.float32))
    writer.add_tensor(f"{layer}.attn_sinks.weight", np.zeros(_N_HEAD, np.float32))
    for norm in ("attn_norm", "post_attention_norm"):
        writer.add_tensor(f"{layer}.{norm}.weight", np.ones(n_embd, np.float32))


def _add_matrix(writer: GGUFWriter, name: str, rows: int, columns: int, gain: float, rng: np.random.Generator) -> None:
    blocks = random_matrix(rows, columns, gain, rng).view(np.uint8).reshape(rows, -1)
    writer.add_tensor(name, blocks, raw_dtype=GGMLQuantizationType.Q4_0)


def random_experts(rows: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Draw matrices of all experts in MXFP4, whose outputs are about as large as their inputs."""
    blocks = np.empty((N_EXPERTS, rows, columns // 32), _BLOCK)
    blocks["exponent"] = 127 + round(-math.log2(_SPREAD * math.sqrt(columns)))
    blocks["nibbles"] = rng.integers(256, size=blocks["nibbles"].shape, dtype=np.uint8)
    return blocks.view(np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    arguments = parser.parse_args()
    write_model(arguments.out, arguments.layers)
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
