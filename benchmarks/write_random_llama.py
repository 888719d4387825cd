"""Write a GGUF file of random weights, for timing: Llama 3.2 1B and 3B, Qwen3 4B, Llama 3.1 8B. Its answers are noise.

    python benchmarks/write_random_llama.py OUT.gguf [--size 3B]

All matrices are Q4_0, 0.7, 1.8, 2.3 and 4.2 GB in all, and the output matrix is the token embedding. The scales keep
activations at order 1. The tokenizer knows bytes only, so that any text has tokens, about one for each byte.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model. The number of columns of each matrix is a multiple of 32."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_kv_head: int
    head_dim: int
    n_vocab: int
    n_ctx: int
    rope_base: float


LLAMA_3_2_1B = Sizes(
    n_layer=16,
    n_embd=2048,
    n_ff=8192,
    n_head=32,
    n_kv_head=8,
    head_dim=64,
    n_vocab=128_256,
    n_ctx=131_072,
    rope_base=500_000.0,
)

LLAMA_3_2_3B = replace(LLAMA_3_2_1B, n_layer=28, n_embd=3072, n_head=24, head_dim=128)
QWEN_3_4B = replace(LLAMA_3_2_1B, n_layer=36, n_embd=2560, n_ff=9728, head_dim=128, n_vocab=151_936)  # no head norms
LLAMA_3_1_8B = replace(LLAMA_3_2_1B, n_layer=32, n_embd=4096, n_ff=14_336, head_dim=128)
SIZES = {"1B": LLAMA_3_2_1B, "3B": LLAMA_3_2_3B, "4B": QWEN_3_4B, "8B": LLAMA_3_1_8B}

ATTENTION_GAIN = 1.2  # of queries and keys: scores have a standard deviation of its square
LOGIT_SPREAD = 3.0  # standard deviation of the logits

_SPECIALS = ["<unk>", "<s>", "</s>"]
_BLOCK_WEIGHTS = 32
_BLOCK = np.dtype([("scale", np.float16), ("nibbles", np.uint8, _BLOCK_WEIGHTS // 2)])  # ggml's block_q4_0
_NIBBLE_SPREAD = math.sqrt(21.5)  # root mean square of a nibble less 8, both drawn evenly


def write_model(path: Path, sizes: Sizes, seed: int = 0) -> None:
    """Write a model, one matrix at a time.

    Parameters
    ----------
    path : Path
        File to write.
    sizes : Sizes
        Shape of the model.
    seed : int
        Seed of the weights: the same sizes and seed make the same file.
    """
    writer = GGUFWriter(path, "llama")
    add_metadata(writer, sizes)
    add_tokenizer(writer, sizes.n_vocab)
    ones = np.ones(sizes.n_embd, np.float32)
    write_tensors(writer, matrix_shapes(sizes), dict.fromkeys(_norm_names(sizes.n_layer), ones), seed)


def write_tensors(
    writer: GGUFWriter, shapes: dict[str, tuple[int, int, float]], others: dict[str, np.ndarray], seed: int
) -> None:
    """Write a file whose metadata are set, one matrix at a time.

    Parameters
    ----------
    shapes : dict
        Rows, columns and gain of each Q4_0 matrix.
    others : dict
        The other tensors.
    """
    for name, (rows, columns, _) in shapes.items():
        n_bytes = rows * columns // _BLOCK_WEIGHTS * _BLOCK.itemsize
        writer.add_tensor_info(name, (rows, columns), np.float16, n_bytes, GGMLQuantizationType.Q4_0)
    for name, tensor in others.items():
        writer.add_tensor_info(name, tensor.shape, tensor.dtype, tensor.nbytes)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.Generator(np.random.SFC64(seed))
    for rows, columns, gain in shapes.values():
        writer.write_tensor_data(random_matrix(rows, columns, gain, rng))
    for tensor in others.values():
        writer.write_tensor_data(tensor)
    writer.close()


def matrix_shapes(sizes: Sizes) -> dict[str, tuple[int, int, float]]:
    """List the matrices of a model.

    Parameters
    ----------
    sizes : Sizes
        Shape of the model.

    Returns
    -------
    dict
        Rows (outputs), columns (inputs) and gain of each matrix, in the order of the file.
    """
    n_embd, n_ff = sizes.n_embd, sizes.n_ff
    query_width, kv_width = sizes.n_head * sizes.head_dim, sizes.n_kv_head * sizes.head_dim
    layer = {
        "attn_q": (query_width, n_embd, ATTENTION_GAIN),
        "attn_k": (kv_width, n_embd, ATTENTION_GAIN),
        "attn_v": (kv_width, n_embd, 1.0),
        "attn_output": (n_embd, query_width, 1.0),
        "ffn_gate": (n_ff, n_embd, 1.0),
        "ffn_up": (n_ff, n_embd, 1.0),
        "ffn_down": (n_embd, n_ff, 1.0),
    }
    shapes = {"token_embd.weight": (sizes.n_vocab, n_embd, LOGIT_SPREAD)}
    for i in range(sizes.n_layer):
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def random_matrix(rows: int, columns: int, gain: float, rng: np.random.Generator) -> np.ndarray:
    """Draw a matrix that turns inputs of order 1 into outputs with a given standard deviation.

    Nibbles stand for -8 to 7, so that their mean is not 0. Scales of both signs compensate for that.

    Parameters
    ----------
    rows, columns : int
        Shape of the matrix.
    gain : float
        Standard deviation of the outputs.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    block_q4_0 array, shape (n_blocks,)
    """
    blocks = np.empty(rows * columns // _BLOCK_WEIGHTS, _BLOCK)
    scale = gain / math.sqrt(columns) / _NIBBLE_SPREAD
    blocks["scale"] = np.where(rng.integers(2, size=len(blocks), dtype=np.uint8), scale, -scale)
    blocks["nibbles"] = rng.integers(256, size=blocks["nibbles"].shape, dtype=np.uint8)
    return blocks


def _norm_names(n_layer: int) -> Iterator[str]:
    for i in range(n_layer):
        yield f"blk.{i}.attn_norm.weight"
        yield f"blk.{i}.ffn_norm.weight"
    yield "output_norm.weight"


def add_metadata(writer: GGUFWriter, sizes: Sizes) -> None:
    """Add the name and the sizes of a model."""
    writer.add_name("Random weights")
    writer.add_file_type(LlamaFileType.MOSTLY_Q4_0)
    writer.add_quantization_version(2)
    writer.add_vocab_size(sizes.n_vocab)
    writer.add_block_count(sizes.n_layer)
    writer.add_context_length(sizes.n_ctx)
    writer.add_embedding_length(sizes.n_embd)
    writer.add_feed_forward_length(sizes.n_ff)
    writer.add_head_count(sizes.n_head)
    writer.add_head_count_kv(sizes.n_kv_head)
    writer.add_key_length(sizes.head_dim)
    writer.add_value_length(sizes.head_dim)
    writer.add_rope_dimension_count(sizes.head_dim)
    writer.add_rope_freq_base(sizes.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)


def add_tokenizer(writer: GGUFWriter, n_vocab: int) -> None:
    """Add a SentencePiece vocabulary of bytes and the blank, and tokens that no text has."""
    tokens = [*_SPECIALS, "\u2581", *(f"<0x{byte:02X}>" for byte in range(256))]
    n_unused = n_vocab - len(tokens)
    kinds = {
        TokenType.UNKNOWN: 1,
        TokenType.CONTROL: 2,
        TokenType.NORMAL: 1,
        TokenType.BYTE: 256,
        TokenType.UNUSED: n_unused,
    }
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*tokens, *(f"<unused{i}>" for i in range(n_unused))])
    writer.add_token_scores([0.0] * n_vocab)
    writer.add_token_types([kind for kind, count in kinds.items() for _ in range(count)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where to write the GGUF")
    parser.add_argument("--size", choices=SIZES, default="1B", help="of which model (1B)")
    arguments = parser.parse_args()
    write_model(arguments.out, SIZES[arguments.size])


if __name__ == "__main__":
    main()
