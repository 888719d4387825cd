"""Rotate rows by a Hadamard matrix, which spreads an element much larger than the others over many of them.

A block of n elements x becomes H x / sqrt(n), with n a power of two and H the n x n matrix of 1 and -1 (Sylvester's).
This matrix is symmetric and orthonormal, so the product of two rotated rows equals that of the rows, and a second
rotation restores a row. A block is the largest power of two that divides head_dim: 64 for 64, but 16 for 80.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..numba_support.compile import LANES, Shape
from ..numba_support.vector import Emit


def rotation_block(head_dim: int) -> int:
    """Return how many elements are rotated together: the largest power of two that divides head_dim."""
    return head_dim & -head_dim


def width(shape: Shape) -> int:
    """Return the number of f32 in the widest vector that divides a row: LANES, or 8."""
    return LANES if shape.head_dim % LANES == 0 else 8


def rotate_vectors(emit: Emit, head_dim: int, vectors: list[Any]) -> list[Any]:
    """Rotate a row.

    Parameters
    ----------
    emit : Emit
        Writer of the function, of vectors that divide a row.
    vectors : list of LLVM vectors
        The row, f32.
    """
    builder, lanes, block, distance = emit.builder, emit.lanes, rotation_block(head_dim), 1
    while distance < block:
        if distance < lanes:
            others = [emit.shuffle(x, x, [lane ^ distance for lane in range(lanes)]) for x in vectors]
            signs = ir.Constant(emit.vector, [-1.0 if lane & distance else 1.0 for lane in range(lanes)])
            vectors = [emit.fma(x, signs, other) for x, other in zip(vectors, others, strict=True)]
        else:
            step = distance // lanes
            vectors = [
                builder.fsub(vectors[i - step], x) if i & step else builder.fadd(x, vectors[i + step])
                for i, x in enumerate(vectors)
            ]
        distance *= 2
    return [builder.fmul(x, emit.constant(1 / math.sqrt(block))) for x in vectors]


@intrinsic
def rotate_row(typing: Any, shape: Any, source: Any, target: Any) -> Any:
    """Rotate head_dim f32 from one address to another, perhaps the same."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, source, target = args
        emit, head_dim = Emit(builder, width(shape.shape)), shape.shape.head_dim
        columns = range(0, head_dim, emit.lanes)
        rotated = rotate_vectors(emit, head_dim, [emit.load_float(source, column) for column in columns])
        for column, vector in zip(columns, rotated, strict=True):
            emit.store(vector, target, column)
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64), generate
