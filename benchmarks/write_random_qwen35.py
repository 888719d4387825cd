"""Write a GGUF file of random weights in the shape of Qwen3.5 4B, a hybrid model, for timing. Its answers are noise.

    python benchmarks/write_random_qwen35.py OUT.gguf [--layers 32] [--gain 1.2]

Of its 32 layers, every fourth attends; the others are recurrent (gated delta nets). Matrices are Q4_0, 2.4 GB in all,
as in write_random_llama.py. --gain has the meaning of write_random_gemma.py's.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType
from write_random_llama import ATTENTION_GAIN, LOGIT_SPREAD, add_tokenizer, write_tensors

N_LAYER, N_EMBD, N_FF, N_VOCAB, N_CTX = 32, 2560, 9216, 248_320, 262_144
N_HEAD, N_KV_HEAD, HEAD_DIM, ROPE_DIM = 16, 4, 256, 64

#: Every so many layers attend. The others have heads of values and of keys, with a state of STATE x STATE for each.
INTERVAL, N_VALUE_HEAD, N_KEY_HEAD, STATE, CONV = 4, 32, 16, 128, 4

_KEYS, _VALUES = N_KEY_HEAD * STATE, N_VALUE_HEAD * STATE


def matrix_shapes(n_layer: int) -> dict[str, tuple[int, int, float]]:
    """Return rows, columns and gain of each matrix."""
    shapes = {"token_embd.weight": (N_VOCAB, N_EMBD, LOGIT_SPREAD)}
    attention = {
        "attn_q": (2 * N_HEAD * HEAD_DIM, N_EMBD, 1.0),  # queries, and gates of the outputs
        "attn_k": (N_KV_HEAD * HEAD_DIM, N_EMBD, 1.0),
        "attn_v": (N_KV_HEAD * HEAD_DIM, N_EMBD, 1.0),
        "attn_output": (N_EMBD, N_HEAD * HEAD_DIM, 1.0),
    }
    recurrent = {
        "attn_qkv": (2 * _KEYS + _VALUES, N_EMBD, 1.0),
        "attn_gate": (_VALUES, N_EMBD, 1.0),
        "ssm_beta": (N_VALUE_HEAD, N_EMBD, 1.0),
        "ssm_alpha": (N_VALUE_HEAD, N_EMBD, 1.0),
        "ssm_out": (N_EMBD, _VALUES, 1.0),
    }
    feed_forward = {"ffn_gate": (N_FF, N_EMBD, 1.0), "ffn_up": (N_FF, N_EMBD, 1.0), "ffn_down": (N_EMBD, N_FF, 1.0)}
    for i in range(n_layer):
        layer = (attention if attends(i) else recurrent) | feed_forward
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def attends(layer: int) -> bool:
    """Return whether a layer attends."""
    return (layer + 1) % INTERVAL == 0


def other_tensors(n_layer: int, gain: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return norms, convolutions, and what decides how fast a state decays."""
    ones = np.ones(N_EMBD, np.float32)
    tensors = {"output_norm.weight": ones}
    for i in range(n_layer):
        layer = {"attn_norm.weight": ones, "post_attention_norm.weight": ones}
        if attends(i):
            norm = np.full(HEAD_DIM, gain, np.float32)
            layer |= {"attn_q_norm.weight": norm, "attn_k_norm.weight": norm}
        else:
            convolution = rng.normal(0, CONV**-0.5, (2 * _KEYS + _VALUES, CONV))
            layer |= {
                "ssm_conv1d.weight": convolution.astype(np.float32),
                "ssm_dt.bias": rng.normal(0, 0.3, N_VALUE_HEAD).astype(np.float32),
                "ssm_a": -rng.uniform(0.5, 2, N_VALUE_HEAD).astype(np.float32),
                "ssm_norm.weight": np.ones(STATE, np.float32),
            }
        tensors |= {f"blk.{i}.{name}": tensor for name, tensor in layer.items()}
    return tensors


def write_model(path: Path, n_layer: int = N_LAYER, gain: float = ATTENTION_GAIN, seed: int = 0) -> None:
    """Write the model: the same layers, gain and seed make the same file."""
    writer = GGUFWriter(path, "qwen35")
    writer.add_name("Random weights")
    writer.add_file_type(LlamaFileType.MOSTLY_Q4_0)
    writer.add_quantization_version(2)
    writer.add_vocab_size(N_VOCAB)
    writer.add_block_count(n_layer)
    writer.add_context_length(N_CTX)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_KV_HEAD)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(ROPE_DIM)
    writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_rope_freq_base(1e7)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_full_attention_interval(INTERVAL)
    writer.add_ssm_conv_kernel(CONV)
    writer.add_ssm_inner_size(_VALUES)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(N_VALUE_HEAD)
    writer.add_ssm_group_count(N_KEY_HEAD)
    add_tokenizer(writer, N_VOCAB)
    write_tensors(writer, matrix_shapes(n_layer), other_tensors(n_layer, gain, np.random.default_rng(seed)), seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where to write the GGUF")
    parser.add_argument("--layers", type=int, default=N_LAYER, help="a multiple of 4 (32)")
    parser.add_argument("--gain", type=float, default=ATTENTION_GAIN, help="of queries and keys (1.2)")
    arguments = parser.parse_args()
    write_model(arguments.out, arguments.layers, arguments.gain)


if __name__ == "__main__":
    main()
