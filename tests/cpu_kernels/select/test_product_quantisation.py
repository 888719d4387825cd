"""Product quantisation: codes are written, looked up and added up as plain NumPy does it."""

import numpy as np
import pytest
from helpers.kernel_inputs import Room, address, normal
from helpers.sketched_heads import codes_of_block

from octavo.cpu_kernels.numba_support.compile import kernel
from octavo.cpu_kernels.numba_support.memory import borrow, give_back
from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.cpu_kernels.numba_support.views import array_at
from octavo.cpu_kernels.select import product_quantisation as codes
from octavo.cpu_kernels.select.product_quantisation import BLOCK_ROWS, CODES, HALF_BLOCK

#: (head_dim, group, columns of a part)
SIZES = [(64, 3, 4), (64, 1, 2), (72, 8, 8), (8, 16, 4), (256, 5, 2)]


@kernel
def fill_and_look_up(shape, query, n_codes, order, codebooks, written, offsets, step, scores, stride):
    """The scores of a block. Returns the largest unit of a table of the query heads."""
    room = borrow(codes.table_sizes(shape)[2])
    codes.fill_tables(shape, query, n_codes, order, codebooks, room)
    factors, all_scores = codes.factors_of(shape, room), array_at(scores, (shape.group, stride), np.float32)
    codes.look_up(shape, room, room + codes.table_sizes(shape)[0], n_codes, written, offsets, step, scores, stride)
    give_back(room, codes.table_sizes(shape)[2])
    for g in range(shape.group):
        for row in range(BLOCK_ROWS):
            all_scores[g, row] += factors[1, g]
    return factors[0].max()


@pytest.mark.parametrize("n_codes", [1, 2, 33])
def test_codes_that_are_written_are_read_again(n_codes):
    rng = np.random.default_rng(n_codes)
    block, expected = Room(n_codes * HALF_BLOCK), rng.integers(0, CODES, (BLOCK_ROWS, n_codes))
    columns = expected.T.astype(np.int32, order="C")
    for number in rng.permutation(n_codes).tolist():
        codes.write_codes(block.address, number, address(columns[number]))
    block.check()
    assert (codes_of_block(block.bytes, n_codes) == expected).all()
    assert block.bytes.size == n_codes * HALF_BLOCK


@pytest.mark.parametrize(("head_dim", "group", "columns"), SIZES)
@pytest.mark.parametrize("spread", [0.0, 1.0, 1e4])
def test_products_are_looked_up_within_half_a_unit_of_each_table(head_dim, group, columns, spread):
    rng = np.random.default_rng(head_dim)
    shape, n_codes = Shape(head_dim, group), head_dim // columns
    query, codebooks = normal(rng, group, head_dim), normal(rng, n_codes, columns, CODES, spread=spread)
    order = rng.permutation(head_dim).astype(np.int32)
    numbers = rng.integers(0, CODES, (BLOCK_ROWS, n_codes))
    block, offsets = Room(n_codes * HALF_BLOCK), normal(rng, group, 3)
    columns_of_codes = numbers.T.astype(np.int32, order="C")
    for number in range(n_codes):
        codes.write_codes(block.address, number, address(columns_of_codes[number]))
    stride = BLOCK_ROWS + 16
    scores = Room(group * stride * 4)
    unit = fill_and_look_up(
        shape, address(query), n_codes, address(order), address(codebooks), block.address, address(offsets) + 4, 3,
        scores.address, stride,
    )  # fmt: skip
    scores.check()
    rows = np.zeros((BLOCK_ROWS, head_dim))
    for row in range(BLOCK_ROWS):
        rows[row, order] = np.concatenate([codebooks[part, :, numbers[row, part]] for part in range(n_codes)])
    expected = query.astype(np.float64) @ rows.T + offsets[:, 1:2]
    found = scores.view(np.float32, group, stride)
    assert (np.abs(found[:, :BLOCK_ROWS] - expected) <= n_codes * unit / 2 * 1.001 + 1e-5 * (1 + spread)).all()
    assert np.isnan(found[:, BLOCK_ROWS:]).all(), "nothing is written after the block"


@pytest.mark.parametrize("where", ["query", "codebooks"])
def test_a_nan_reaches_all_scores_of_its_query_head(where):
    rng, shape = np.random.default_rng(4), Shape(64, 3)
    query, codebooks, order = normal(rng, 3, 64), normal(rng, 16, 4, CODES), np.arange(64, dtype=np.int32)
    {"query": query[1], "codebooks": codebooks[5, 2]}[where][7] = np.nan
    block, offsets, scores = Room(16 * HALF_BLOCK), np.zeros(3, np.float32), Room(3 * BLOCK_ROWS * 4)
    fill_and_look_up(
        shape, address(query), 16, address(order), address(codebooks), block.address, address(offsets), 1,
        scores.address, BLOCK_ROWS,
    )  # fmt: skip
    found = np.isnan(scores.view(np.float32, 3, BLOCK_ROWS))
    assert found[1].all()
    assert found.all() == (where == "codebooks")


@kernel
def sum_by_code(shape, weights, stride, factors, written, step, n_blocks, room, sums):
    """Run `add_by_code`, an intrinsic that Python cannot call, and write its sums."""
    codes.add_by_code(shape, weights, stride, factors, written, step, n_blocks, room)
    codes.finish_code_sums(shape, room, sums)


@pytest.mark.parametrize(("head_dim", "group", "columns"), SIZES)
@pytest.mark.parametrize("n_blocks", [0, 1, 3])
def test_weights_add_up_by_code(head_dim, group, columns, n_blocks):
    rng = np.random.default_rng(group)
    shape, step, n_rows = Shape(head_dim, group), 3 * HALF_BLOCK, n_blocks * BLOCK_ROWS
    numbers = rng.integers(0, CODES, n_rows)
    blocks, room, sums = (Room(n) for n in (max(n_blocks, 1) * step, codes.code_sums_bytes(shape), group * CODES * 4))
    for i, own in enumerate(numbers.astype(np.int32).reshape(n_blocks, BLOCK_ROWS)):
        codes.write_codes(blocks.address + i * step, 1, address(own))
    weights, factors = rng.random((group, n_rows + 5), np.float32), rng.random(group, np.float32)
    expected = [[row[:n_rows][numbers == code].sum() for code in range(CODES)] for row in weights.astype(np.float64)]
    expected = factors[:, None] * np.array(expected).reshape(group, CODES)
    room.bytes[:] = 0
    for times in (1, 2):  # it adds
        sum_by_code(
            shape, address(weights), n_rows + 5, address(factors), blocks.address + HALF_BLOCK, step, n_blocks,
            room.address, sums.address,
        )  # fmt: skip
        room.check()
        sums.check()
        np.testing.assert_allclose(sums.view(np.float32, group, CODES), times * expected, atol=1e-4)
