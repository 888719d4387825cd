"""Write a GGUF file of random weights in the shape of Gemma 3 270M, for timing. Its answers are noise.

    python benchmarks/write_random_gemma.py OUT.gguf [--gain 1.2]

Of its 18 layers, every sixth attends to everything; in the others a window of 512 tokens slides. Matrices are Q4_0,
0.15 GB in all, as in write_random_llama.py. The scores of a head have a standard deviation of the square of --gain: of
2, a few keys hold most of the attention.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from write_random_llama import (
    ATTENTION_GAIN,
    LOGIT_SPREAD,
    Sizes,
    add_metadata,
    add_tokenizer,
    matrix_shapes,
    write_tensors,
)

GEMMA_3_270M = Sizes(
    n_layer=18,
    n_embd=640,
    n_ff=2048,
    n_head=4,
    n_kv_head=1,
    head_dim=256,
    n_vocab=262_144,
    n_ctx=32_768,
    rope_base=1e6,
)

WINDOW = 512


def write_model(path: Path, sizes: Sizes = GEMMA_3_270M, gain: float = ATTENTION_GAIN, seed: int = 0) -> None:
    """Write a model: the same sizes, gain and seed make the same file."""
    writer = GGUFWriter(path, "gemma3")
    add_metadata(writer, sizes)
    writer.add_sliding_window(WINDOW)
    add_tokenizer(writer, sizes.n_vocab)
    # gemma's graph multiplies embeddings by the root of their length, and the same matrix makes the logits
    matrices = {**matrix_shapes(sizes), "token_embd.weight": (sizes.n_vocab, sizes.n_embd, 1.0)}
    ones, of_heads = np.ones(sizes.n_embd, np.float32), np.full(sizes.head_dim, gain, np.float32)
    norms = {"output_norm.weight": ones * np.float32(LOGIT_SPREAD)}
    for i in range(sizes.n_layer):
        layer = dict.fromkeys(("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), ones)
        layer |= {"attn_q_norm": of_heads, "attn_k_norm": of_heads}
        norms |= {f"blk.{i}.{name}.weight": norm for name, norm in layer.items()}
    write_tensors(writer, matrices, norms, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where to write the GGUF")
    parser.add_argument("--gain", type=float, default=ATTENTION_GAIN, help="of queries and keys (1.2)")
    arguments = parser.parse_args()
    write_model(arguments.out, gain=arguments.gain)


if __name__ == "__main__":
    main()
