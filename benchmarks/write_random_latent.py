"""Write a GGUF file of random weights with the attention of GLM-4.7-Flash, for timing. Its answers are noise.

    python benchmarks/write_random_latent.py OUT.gguf [--layers 2]

20 query heads share one latent key of 512 + 64 numbers, whose first 512 are the value. The layers are narrow besides:
nearly all of a token's time at 32,000 tokens is attention. The tokenizer is that of write_random_llama.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType
from write_random_llama import ATTENTION_GAIN, LOGIT_SPREAD, add_tokenizer

#: GLM-4.7-Flash: query heads, ranks of keys and queries, and lengths of a head's parts.
N_HEAD, KV_RANK, Q_RANK, N_PLAIN, N_ROTATED, N_VALUE = 20, 512, 768, 192, 64, 256

_N_EMBD, _N_FF, _N_VOCAB, _N_CTX = 256, 256, 512, 131_072


def write_model(path: Path, n_layer: int, seed: int = 0) -> None:
    """Write a model, whose matrices are f16: the same number of layers and seed make the same file."""
    writer = GGUFWriter(path, "deepseek2")
    writer.add_name("Random weights, latent attention")
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    writer.add_vocab_size(_N_VOCAB)
    writer.add_block_count(n_layer)
    writer.add_context_length(_N_CTX)
    writer.add_embedding_length(_N_EMBD)
    writer.add_feed_forward_length(_N_FF)
    writer.add_expert_feed_forward_length(_N_FF)
    writer.add_leading_dense_block_count(n_layer)
    writer.add_expert_shared_count(0)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(1)
    writer.add_key_length(KV_RANK + N_ROTATED)
    writer.add_value_length(KV_RANK)
    writer.add_key_length_mla(N_PLAIN + N_ROTATED)
    writer.add_value_length_mla(N_VALUE)
    writer.add_q_lora_rank(Q_RANK)
    writer.add_kv_lora_rank(KV_RANK)
    writer.add_rope_dimension_count(N_ROTATED)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-5)
    add_tokenizer(writer, _N_VOCAB)
    rng = np.random.default_rng(seed)
    for name, shape, gain in _matrices(n_layer):
        drawn = rng.standard_normal(shape, np.float32) * np.float32(gain / np.sqrt(shape[-1]))
        writer.add_tensor(name, drawn.astype(np.float16), raw_dtype=GGMLQuantizationType.F16)
    for name, length in _norms(n_layer):
        writer.add_tensor(name, np.ones(length, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _matrices(n_layer: int) -> list[tuple[str, tuple[int, ...], float]]:
    """List names, shapes and gains of all matrices."""
    layer: dict[str, tuple[tuple[int, ...], float]] = {
        "attn_q_a": ((Q_RANK, _N_EMBD), 1.0),
        "attn_q_b": ((N_HEAD * (N_PLAIN + N_ROTATED), Q_RANK), ATTENTION_GAIN),
        "attn_kv_a_mqa": ((KV_RANK + N_ROTATED, _N_EMBD), ATTENTION_GAIN),
        "attn_k_b": ((N_HEAD, KV_RANK, N_PLAIN), 1.0),
        "attn_v_b": ((N_HEAD, N_VALUE, KV_RANK), 1.0),
        "attn_output": ((_N_EMBD, N_HEAD * N_VALUE), 1.0),
        "ffn_gate": ((_N_FF, _N_EMBD), 1.0),
        "ffn_up": ((_N_FF, _N_EMBD), 1.0),
        "ffn_down": ((_N_EMBD, _N_FF), 1.0),
    }
    listed = [(f"blk.{i}.{name}.weight", *rest) for i in range(n_layer) for name, rest in layer.items()]
    ends = [("token_embd.weight", (_N_VOCAB, _N_EMBD), LOGIT_SPREAD), ("output.weight", (_N_VOCAB, _N_EMBD), 3.0)]
    return [*ends, *listed]


def _norms(n_layer: int) -> list[tuple[str, int]]:
    """List names and lengths of all norms."""
    layer = {"attn_norm": _N_EMBD, "attn_q_a_norm": Q_RANK, "attn_kv_a_norm": KV_RANK, "ffn_norm": _N_EMBD}
    listed = [(f"blk.{i}.{name}.weight", length) for i in range(n_layer) for name, length in layer.items()]
    return [*listed, ("output_norm.weight", _N_EMBD)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where to write the GGUF")
    parser.add_argument("--layers", type=int, default=2, help="number of layers")
    arguments = parser.parse_args()
    write_model(arguments.out, arguments.layers)


if __name__ == "__main__":
    main()
