from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.compile import kernel, late_stage
from ..numba_support.shape import SHAPE
from ..numba_support.vector import FLOAT, INT64, Emit, constant

#: Elements of a vector: each block has a whole number of them.
_LANES = 8

#: Elements that are rotated in registers: half of those that AVX2 has.
_AT_ONCE = 64


def rotation_block(head_dim: int) -> int:
    """Return how many elements are rotated together: the largest power of two that divides head_dim."""
    return head_dim & -head_dim


@kernel
def rotate_row(shape, source, target):
    """Rotate head_dim f32 from one address to another, perhaps the same: the two parts of a latent key apart."""
    _rotate_parts(shape, shape.head_dim, source, target)


@kernel
def rotate_value(shape, source, target):
    """Rotate value_dim f32 as values are rotated, from one address to another, perhaps the same."""
    _rotate_parts(shape, shape.value_dim, source, target)


@late_stage(SHAPE, *[types.int64] * 3)
def _rotate_parts(shape, n, source, target):
    """Rotate the n f32 of a key or of a value from one address to another, perhaps the same."""
    start, stop = 0, shape.value_dim if shape.latent else n
    while start < n:
        _rotate(stop - start, source + start * 4, target + start * 4)
        start, stop = stop, n


@intrinsic
def _rotate(typing: Any, n: Any, source: Any, target: Any) -> Any:
    """Rotate n f32, a multiple of 8, from one address to another, perhaps the same."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        n, source, target = args
        emit = Emit(builder, _LANES)
        block = builder.and_(n, builder.neg(n))
        is_small = builder.icmp_signed("<=", block, constant(_AT_ONCE))
        at_once = builder.select(is_small, block, constant(_AT_ONCE))
        root = _inverse_root(builder, block)
        scale = emit.splat(builder.select(is_small, root, ir.Constant(FLOAT, 1.0)))
        width = _LANES
        while width <= _AT_ONCE:
            with (
                builder.if_then(builder.icmp_signed("==", at_once, constant(width))),
                cgutils.for_range_slice(builder, constant(0), n, constant(width), INT64) as (start, _count),
            ):
                places = [builder.add(start, constant(column)) for column in range(0, width, _LANES)]
                rotated = _rotate_in_registers(emit, [emit.load_float(source, place) for place in places])
                for place, vector in zip(places, rotated, strict=True):
                    emit.store(builder.fmul(vector, scale), target, place)
            width *= 2
        _rotate_in_memory(emit, n, block, emit.splat(root), target)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _inverse_root(builder: Any, block: Any) -> Any:
    """Return 1 / sqrt(block), f32."""
    double = ir.DoubleType()
    root = cgutils.get_or_insert_function(builder.module, ir.FunctionType(double, [double]), "llvm.sqrt.f64")
    inverse = builder.fdiv(ir.Constant(double, 1.0), builder.call(root, [builder.sitofp(block, double)]))
    return builder.fptrunc(inverse, ir.FloatType())


def _rotate_vector(emit: Emit, x: Any) -> Any:
    """Return a vector, rotated as a block of its own, without the scale."""
    for distance in (1, 2, 4):
        other = emit.shuffle(x, x, [lane ^ distance for lane in range(_LANES)])
        signs = ir.Constant(emit.vector, [-1.0 if lane & distance else 1.0 for lane in range(_LANES)])
        x = emit.fma(x, signs, other)
    return x


def _rotate_in_registers(emit: Emit, vectors: list[Any]) -> list[Any]:
    """Return vectors, rotated as one block, without the scale."""
    builder, distance = emit.builder, 1
    vectors = [_rotate_vector(emit, vector) for vector in vectors]
    while distance < len(vectors):
        for first in (i for i in range(len(vectors)) if not i & distance):
            x, y = vectors[first], vectors[first + distance]
            vectors[first], vectors[first + distance] = builder.fadd(x, y), builder.fsub(x, y)
        distance *= 2
    return vectors


def _rotate_in_memory(emit: Emit, n: Any, block: Any, scale: Any, floats: Any) -> None:
    """Add and subtract vectors of a block, at distances of _AT_ONCE elements, of twice as many, ...; scale the last."""
    builder = emit.builder
    place = cgutils.alloca_once_value(builder, constant(_AT_ONCE))
    check, mix, end = (builder.append_basic_block(f"rotate.{name}") for name in ("check", "mix", "end"))
    builder.branch(check)
    builder.position_at_end(check)
    distance = builder.load(place)
    builder.cbranch(builder.icmp_signed("<", distance, block), mix, end)
    builder.position_at_end(mix)
    double = builder.shl(distance, constant(1))
    factor = builder.select(builder.icmp_signed("==", double, block), scale, emit.constant(1.0))
    with cgutils.for_range(builder, builder.lshr(n, constant(4))) as loop:  # pairs of vectors
        along = builder.mul(loop.index, constant(_LANES))
        within = builder.and_(along, builder.sub(distance, constant(1)))
        first = builder.add(builder.shl(builder.sub(along, within), constant(1)), within)
        second = builder.add(first, distance)
        x, y = emit.load_float(floats, first), emit.load_float(floats, second)
        emit.store(builder.fmul(builder.fadd(x, y), factor), floats, first)
        emit.store(builder.fmul(builder.fsub(x, y), factor), floats, second)
    builder.store(double, place)
    builder.branch(check)
    builder.position_at_end(end)
