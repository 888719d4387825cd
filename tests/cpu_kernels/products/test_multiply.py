"""Test products of quantised weights: against NumPy in float64, with the inputs rounded as llama.cpp does."""

from concurrent.futures import ThreadPoolExecutor

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from octavo.cpu_kernels.numba_support.machine_features import HAS_AMX, MULTIPLIES_WEIGHTS
from octavo.cpu_kernels.products.multiply import PRODUCT, multiply_batch, multiply_experts
from octavo.cpu_kernels.products.panel_tiles import FEWEST_TILED
from octavo.cpu_kernels.products.panels import MOST_TOKENS
from octavo.cpu_kernels.products.product_table import ProductTable
from octavo.cpu_kernels.products.weights import KERNELS

pytestmark = pytest.mark.skipif(not MULTIPLIES_WEIGHTS, reason="llama.cpp multiplies weights on this CPU")

TYPES = [pytest.param(number, id=Type(number).name) for number in KERNELS]

#: The largest f32. Inputs whose inverse scale would exceed it count as 0.
MOST = np.finfo(np.float32).max

#: Bytes of a block that hold f16: its scale, and its minimum if it has one.
HALVES = {
    Type.Q4_1: (0, 2),
    Type.Q5_1: (0, 2),
    Type.Q4_K: (0, 2),
    Type.Q5_K: (0, 2),
    Type.Q6_K: (208,),
    Type.MXFP4: (),
}


def random_weights(number, n_rows, n_blocks, fill=None, scale=None):
    """Return rows of random bytes, or of one byte, with scales of order 1 and either sign, or with one scale."""
    rng = np.random.default_rng(number)
    block_bytes = KERNELS[number].of.n_bytes
    blocks = rng.integers(256, size=(n_rows, n_blocks, block_bytes), dtype=np.uint8)
    if fill is not None:
        blocks[:] = fill
    for at in HALVES.get(number, (0,)):
        scales = rng.normal(size=(n_rows, n_blocks, 1)) if scale is None else np.full((n_rows, n_blocks, 1), scale)
        blocks[..., at : at + 2] = scales.astype(np.float16).view(np.uint8)
    if number == Type.MXFP4:
        blocks[..., 0] = rng.integers(120, 134, size=(n_rows, n_blocks)) if scale is None else 128
    return blocks.reshape(n_rows, -1)


def on_threads(compute, table, n_threads):
    """Let threads compute together."""
    table.start()
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(lambda ith: compute(ith, n_threads), range(n_threads)))


def product(number, weights, inputs, n_threads=1):
    """Multiply by the kernels."""
    table = ProductTable(n_threads)
    table.prepare(number, inputs.shape[1], len(inputs))
    out = np.full((len(inputs), len(weights) + 1), np.float32(7))
    place, matrix = table.address + number * PRODUCT.itemsize, (len(weights), inputs.shape[1], weights.shape[1])
    batch = inputs.ctypes.data, inputs.strides[0], len(inputs)
    arguments = place, weights.ctypes.data, matrix, *batch, out.ctypes.data, out.strides[0]
    on_threads(lambda *thread: multiply_batch(*arguments, *thread), table, n_threads)
    assert (out[:, -1] == 7).all()  # nothing beyond the last row is written
    return out[:, :-1]


def expert_product(number, weights, inputs, ids, n_threads=1):
    """Multiply by experts: weights (experts, rows, bytes), inputs (tokens, inputs, columns), ids (tokens, used)."""
    table = ProductTable(n_threads)
    table.prepare(number, inputs.shape[2], ids.size, len(weights))
    out = np.full((*ids.shape, weights.shape[1] + 1), np.float32(7))
    arguments = (
        table.address + number * PRODUCT.itemsize,
        (weights.ctypes.data, weights.strides[0]),
        (weights.shape[1], inputs.shape[2], weights.strides[1]),
        (ids.ctypes.data, ids.strides[0]),
        (inputs.ctypes.data, inputs.shape[1], inputs.strides[1], inputs.strides[0]),
        (out.ctypes.data, out.strides[1], out.strides[0]),
        (len(weights), *ids.shape),
    )
    on_threads(lambda *thread: multiply_experts(*arguments, *thread), table, n_threads)
    assert (out[..., -1] == 7).all()
    return out[..., :-1]


def rounded(number, inputs):
    """Round as llama.cpp does: blocks of 32 with a scale in f16, or of 256 with one in f32."""
    columns = KERNELS[number].of.columns
    blocks = inputs.reshape(len(inputs), -1, columns)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    scale = largest / np.float32(127)
    scale = scale.astype(np.float16 if columns == 32 else np.float32).astype(np.float64)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 127 / MOST)
    return (np.rint(blocks * inverse) * scale).reshape(inputs.shape)


def on_tiles(inputs):
    """Whether tiles multiply a batch, which round its inputs and the weights to bf16."""
    return HAS_AMX and len(inputs) >= FEWEST_TILED


def assert_is_product(number, weights, inputs, out):
    """Check a product against float64: each block adds at most four roundings of its parts.

    On tiles weights and inputs are rounded by up to a half of their eighth bit, and lose what is subnormal.
    """
    exact = gguf.dequantize(weights, Type(number)).astype(np.float64)
    codes = weights.reshape(len(weights), -1, KERNELS[number].of.n_bytes).copy()
    if number in (Type.Q4_1, Type.Q5_1, Type.Q4_K, Type.Q5_K):  # a product and a minimum, which may cancel out
        codes[..., 4 if number in (Type.Q4_1, Type.Q5_1) else 16 :] = 0
    minima = gguf.dequantize(codes.reshape(weights.shape), Type(number)).astype(np.float64)
    own = inputs.astype(np.float64) if on_tiles(inputs) else rounded(number, inputs)
    parts = (np.abs(exact - minima) + np.abs(minima) + np.abs(exact)).T
    summed = np.abs(own) @ parts
    n_blocks = inputs.shape[1] // KERNELS[number].of.columns
    bound = (n_blocks + 4) * 2.0**-23 * summed
    if on_tiles(inputs):
        bound = (2.0**-8 + 2.0**-18) * np.abs(own) @ np.abs(exact).T + inputs.shape[1] * 2.0**-23 * summed
        bound += 2.0**-126 * (parts.sum(axis=0) + np.abs(own).sum(axis=1, keepdims=True))
    assert (np.abs(out - own @ exact.T) <= bound).all()


@pytest.mark.parametrize("number", TYPES)
@pytest.mark.parametrize(
    ("n_rows", "n_blocks", "n_tokens"), [(8, 1, 1), (13, 1, 7), (11, 3, 2), (3, 5, 4), (21, 3, 513)]
)
def test_products_are_those_of_float64(number, n_rows, n_blocks, n_tokens):
    weights = random_weights(number, n_rows, n_blocks)
    n_columns = n_blocks * KERNELS[number].of.columns
    inputs = np.random.default_rng(0).normal(size=(n_tokens, n_columns)).astype(np.float32)
    inputs[0] = 0
    assert_is_product(number, weights, inputs, product(number, weights, inputs))


@pytest.mark.parametrize("number", TYPES)
def test_long_rows_are_multiplied_in_slices(number):
    """Multiply rows of three slices, the last one of a block, by two jobs of tokens; few tokens take no slices."""
    of = KERNELS[number].of
    weights = random_weights(number, 21, 2 * of.slice_blocks + 1)
    n_columns = (2 * of.slice_blocks + 1) * of.columns
    inputs = np.random.default_rng(4).normal(size=(MOST_TOKENS + 5, n_columns)).astype(np.float32)
    out = product(number, weights, inputs)
    assert_is_product(number, weights, inputs, out)
    some = product(number, weights, inputs[:7])
    np.testing.assert_array_equal(product(number, weights, inputs[3 : 3 + of.few]), some[3 : 3 + of.few])
    assert HAS_AMX or (some == out[:7]).all()


@pytest.mark.parametrize("number", TYPES)
@pytest.mark.parametrize("fill", [0, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("sign", [1, -1])
def test_no_sum_overflows(number, fill, sign):
    """Let codes, scales and inputs be extreme, of one sign or of the signs that make all products positive."""
    weights = random_weights(number, 8, 2, fill, sign)
    n_columns = 2 * KERNELS[number].of.columns
    inputs = np.full((5, n_columns), np.float32(127))
    inputs[1:] *= np.sign(gguf.dequantize(weights[:4], Type(number)) + 1e-9)
    inputs[4] = -127
    out = product(number, weights, inputs)
    assert_is_product(number, weights, inputs, out)
    for few in range(1, KERNELS[number].of.few + 1):
        np.testing.assert_array_equal(product(number, weights, inputs[-few:]), out[-few:])


@pytest.mark.parametrize("number", TYPES)
def test_a_token_does_not_depend_on_others_nor_on_threads(number):
    weights = random_weights(number, 75, 2)
    inputs = np.random.default_rng(1).normal(size=(135, 2 * KERNELS[number].of.columns)).astype(np.float32)
    for n_tokens in {len(inputs), FEWEST_TILED - 1}:
        out = product(number, weights, inputs[:n_tokens])
        np.testing.assert_array_equal(product(number, weights, inputs[:n_tokens], n_threads=3), out)
        for first, n in ((0, 1), (27, 1), (7, 2), (20, 3), (3, 4), (17, 5), (1, 70)):
            if on_tiles(inputs[first : first + n]) == on_tiles(inputs[:n_tokens]):
                others = product(number, weights, inputs[first:n_tokens][:n])
                np.testing.assert_array_equal(others, out[first : first + n])


@pytest.mark.parametrize("number", TYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_seen(number, value):
    weights = random_weights(number, 9, 2)
    inputs = np.random.default_rng(2).normal(size=(6, 2 * KERNELS[number].of.columns)).astype(np.float32)
    out = product(number, weights, inputs)
    inputs[2, 5] = value
    changed = product(number, weights, inputs)
    assert not np.isfinite(changed[2]).any()
    np.testing.assert_array_equal(np.delete(changed, 2, axis=0), np.delete(out, 2, axis=0))
    if number != Type.MXFP4:  # whose scales are finite
        at = HALVES.get(number, (0,))[0]
        weights[4, at : at + 2] = np.array([value], np.float16).view(np.uint8)
        changed = product(number, weights, inputs)
        assert not np.isfinite(changed[:, 4]).any()
        np.testing.assert_array_equal(np.delete(changed, (4,), axis=1)[:2], np.delete(out, (4,), axis=1)[:2])


@pytest.mark.parametrize("number", TYPES)
def test_inputs_of_any_size_are_rounded(number):
    """Round inputs so small that their scale is 0 in f16, subnormal or the smallest, and large ones."""
    weights = random_weights(number, 8, 1)
    inputs = np.random.default_rng(3).normal(size=(6, KERNELS[number].of.columns)).astype(np.float32)
    inputs *= np.array([[1e-42], [1e-38], [1e-7], [1e-3], [1e3], [1e6]], np.float32)
    assert_is_product(number, weights, inputs, product(number, weights, inputs))


#: Experts of each token, of five: in any order, all tokens of one expert, many of one, no token of most, each of all,
#: an expert twice.
CHOSEN = {
    "any": np.random.default_rng(5).permuted(np.tile(np.arange(5), (37, 1)), axis=1)[:, :3],
    "one": np.full((9, 1), 4),
    "many": np.full((40, 1), 1),
    "few": np.array([[0, 3]] * 6),
    "all": np.random.default_rng(6).permuted(np.tile(np.arange(5), (4, 1)), axis=1),
    "twice": np.array([[2, 2, 0]]),
}


@pytest.mark.parametrize("number", TYPES)
@pytest.mark.parametrize("chosen", CHOSEN)
@pytest.mark.parametrize("shared", [True, False], ids=["one_input", "own_inputs"])
def test_experts_multiply_their_tokens(number, chosen, shared):
    """Compare with the product by each expert alone, bit by bit: those are tested against float64."""
    weights = random_weights(number, 5 * 13, 2).reshape(5, 13, -1)
    ids = np.pad(CHOSEN[chosen], ((0, 0), (0, 2)), constant_values=99).astype(np.int32)[:, :-2]  # a view
    n_tokens, n_used = ids.shape
    n_columns = 2 * KERNELS[number].of.columns
    rng = np.random.default_rng(7)
    inputs = rng.normal(size=(n_tokens, 1 if shared else n_used, n_columns)).astype(np.float32)
    out = expert_product(number, weights, inputs, ids)
    np.testing.assert_array_equal(expert_product(number, weights, inputs, ids, n_threads=3), out)
    for e in range(5):
        tokens, places = np.nonzero(ids == e)
        if len(tokens):
            own = product(number, weights[e], inputs[tokens, 0 * places if shared else places])
            np.testing.assert_array_equal(out[tokens, places], own)
