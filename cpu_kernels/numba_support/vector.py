"""Give Numba vectors of f32: LLVM vectors of LANES elements, portable to AVX2, AVX-512 and NEON.

Numba has no float16 on the CPU, and LLVM's loop vectoriser does poorly on attention loops. So kernels state their
vector operations: `total = add(total, multiply(load(a), load(b)))`. Memory is an address, an int64.

`Emit` writes the same operations as LLVM IR. rows.py, f32_tiles.py and others need it, because their number of
accumulators depends on the `Shape`, and all of these must stay in registers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from .machine_features import LANES

HALF, FLOAT = ir.HalfType(), ir.FloatType()
INT8, INT16 = ir.IntType(8), ir.IntType(16)
INT32, INT64 = ir.IntType(32), ir.IntType(64)

#: Bytes of a cache line.
CACHE_LINE = 64

#: Accumulators that leave registers for the operands: a CPU has 32 registers with AVX-512, else 16.
ACCUMULATORS = 24 if LANES == 16 else 12

_LOG2_E = math.log2(math.e)

_LEAST_POWER = -125.0  # below it an f32 is nearly a denormal

#: Added to n, it leaves the exponent of 2^n in the lowest bits of the sum.
_TO_EXPONENT = 1.5 * 2**23 + 127

#: 2^x for x from -1/2 to 1/2, from the highest power down, 1 at 0, of least relative error: 9e-8.
_EXP2_POLYNOMIAL = (0.00132647272, 0.00967151267, 0.0555073374, 0.240222421, 0.693146978, 1.0)

#: The same to 8e-5.
_ROUGH_POLYNOMIAL = (0.05517166, 0.24261112, 0.69326099, 0.99992807)


class VectorType(types.Type):
    """The Numba type of LANES f32 in a register."""

    def __init__(self) -> None:
        super().__init__(name=f"Vector({LANES} x f32)")


VECTOR = VectorType()


@register_model(VectorType)
class VectorModel(models.PrimitiveModel):
    """Numba's model of a vector: an LLVM vector."""

    def __init__(self, manager: Any, vector_type: Any) -> None:
        super().__init__(manager, vector_type, ir.VectorType(FLOAT, LANES))


class Emit:
    """Write vector operations of one width into a function while it is compiled.

    Methods take and return LLVM values. An `address` is an int64, and an `offset` counts elements from there: a Python
    int or an int64.
    """

    def __init__(self, builder: Any, lanes: int = LANES) -> None:
        self.builder = builder
        self.lanes = lanes
        self.vector = ir.VectorType(FLOAT, lanes)
        self.integers = ir.VectorType(INT32, lanes)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call an LLVM intrinsic on vectors of this width, such as llvm.fma."""
        signature = ir.FunctionType(self.vector, [self.vector] * len(arguments))
        function = cgutils.get_or_insert_function(self.builder.module, signature, f"llvm.{name}.v{self.lanes}f32")
        return self.builder.call(function, arguments)

    def constant(self, value: float) -> Any:
        """Return a vector of equal constants."""
        return ir.Constant(self.vector, [value] * self.lanes)

    def shuffle(self, x: Any, y: Any, lanes: list[int]) -> Any:
        """Return a vector of chosen lanes, counted through x and then y."""
        return self.builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(INT32, len(lanes)), lanes))

    def splat(self, scalar: Any) -> Any:
        """Return a vector with a scalar in each lane."""
        first = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), scalar, ir.Constant(INT32, 0))
        return self.shuffle(first, first, [0] * self.lanes)

    def pointer(self, address: Any, element: Any, offset: int | Any = 0) -> Any:
        """Return a pointer to an element."""
        base = self.builder.inttoptr(address, element.as_pointer())
        index = ir.Constant(INT64, offset) if isinstance(offset, int) else offset
        return self.builder.gep(base, [index])

    def load_float(self, address: Any, offset: int | Any = 0) -> Any:
        """Load a vector of f32."""
        loaded = self.builder.load(self.builder.bitcast(self.pointer(address, FLOAT, offset), self.vector.as_pointer()))
        loaded.align = 4
        return loaded

    def load_integers(self, address: Any, offset: int | Any = 0) -> Any:
        """Load a vector of int32."""
        place = self.builder.bitcast(self.pointer(address, INT32, offset), self.integers.as_pointer())
        loaded = self.builder.load(place)
        loaded.align = 4
        return loaded

    def load_half(self, address: Any, offset: int | Any = 0) -> Any:
        """Load a vector of f16, widened to f32."""
        halves = ir.VectorType(HALF, self.lanes)
        loaded = self.builder.load(self.builder.bitcast(self.pointer(address, HALF, offset), halves.as_pointer()))
        loaded.align = 2
        return self.builder.fpext(loaded, self.vector)

    def load_int8(self, address: Any, offset: int | Any = 0) -> Any:
        """Load a vector of int8, converted to f32."""
        return self.builder.sitofp(
            self.builder.sext(self.load_bytes(address, offset, self.lanes), self.integers), self.vector
        )

    def load_bytes(self, address: Any, offset: int | Any, count: int) -> Any:
        """Load a vector of `count` int8."""
        place = self.builder.bitcast(self.pointer(address, INT8, offset), ir.VectorType(INT8, count).as_pointer())
        loaded = self.builder.load(place)
        loaded.align = 1
        return loaded

    def prefetch(self, address: Any, n_bytes: int) -> None:
        """Prefetch bytes into the L2 cache: the L1 cache can wait for only a few lines. Any address is safe."""
        signature = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, INT32, INT32, INT32])
        function = cgutils.get_or_insert_function(self.builder.module, signature, "llvm.prefetch.p0i8")
        read, to_l2, data = (ir.Constant(INT32, value) for value in (0, 2, 1))
        for offset in range(0, n_bytes, CACHE_LINE):
            place = self.builder.bitcast(self.pointer(address, INT8, offset), cgutils.voidptr_t)
            self.builder.call(function, [place, read, to_l2, data])

    def load_scalar(self, address: Any, offset: int | Any = 0) -> Any:
        """Load one f32."""
        return self.builder.load(self.pointer(address, FLOAT, offset))

    def store(self, value: Any, address: Any, offset: int | Any = 0) -> None:
        """Store a vector of f32, of any width."""
        pointer = self.builder.bitcast(self.pointer(address, FLOAT, offset), value.type.as_pointer())
        self.builder.store(value, pointer).align = 4

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return self.call("fma", x, y, z)

    def sum(self, x: Any) -> Any:
        """Return the sum of the lanes."""
        signature = ir.FunctionType(FLOAT, [FLOAT, self.vector])
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f32"
        function = cgutils.get_or_insert_function(self.builder.module, signature, name)
        return self.builder.call(function, [ir.Constant(FLOAT, -0.0), x], fastmath=("reassoc",))

    def sum_integers(self, x: Any) -> Any:
        """Return the sum of the lanes of an int32 vector."""
        name = f"llvm.vector.reduce.add.v{x.type.count}i32"
        function = cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(INT32, [x.type]), name)
        return self.builder.call(function, [x])

    def maximum_lane(self, x: Any) -> Any:
        """Return the largest lane that is a number, by halves: LLVM would compare lanes one after another."""
        step = self.lanes // 2
        while step:
            x = self.call("maxnum", x, self.shuffle(x, x, [(lane + step) % self.lanes for lane in range(self.lanes)]))
            step //= 2
        return self.builder.extract_element(x, ir.Constant(INT32, 0))

    def exp_difference(self, x: Any, y: Any, polynomial: tuple[float, ...] = _EXP2_POLYNOMIAL) -> Any:
        """Return exp(x - y) for x up to y + 88: 0 where the result would be a denormal, NaN for NaN."""
        builder = self.builder
        power = builder.fmul(builder.fsub(x, y), self.constant(_LOG2_E))
        n = self.call("rint", power)
        remainder = builder.fsub(power, n)
        return self._times_power(self._polynomial(polynomial, remainder), n)

    def exp_roughly(self, x: Any, y: Any) -> Any:
        """Return exp(x - y) for x up to y + 88, with relative error 1e-4: NaN for NaN, 0 or 2e-38 far below."""
        if self.lanes == LANES == 16:
            return self.exp_difference(x, y, _ROUGH_POLYNOMIAL)
        builder, least = self.builder, self.constant(_LEAST_POWER)
        power = builder.fmul(builder.fsub(x, y), self.constant(_LOG2_E))
        power = builder.select(builder.fcmp_ordered("<", power, least), least, power)  # a NaN stays one
        n = self.call("rint", power)
        bits = builder.bitcast(builder.fadd(n, self.constant(_TO_EXPONENT)), self.integers)
        whole = builder.bitcast(builder.shl(bits, ir.Constant(self.integers, [23] * self.lanes)), self.vector)
        return builder.fmul(self._polynomial(_ROUGH_POLYNOMIAL, builder.fsub(power, n)), whole)

    def _polynomial(self, coefficients: tuple[float, ...], x: Any) -> Any:
        """Return a polynomial's value, whose coefficients begin with that of the highest power."""
        y = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            y = self.fma(y, x, self.constant(coefficient))
        return y

    def _times_power(self, y: Any, n: Any) -> Any:
        """Return y * 2^n for whole n up to 127; 0 for n below _LEAST_POWER, whatever y is."""
        builder = self.builder
        normal = builder.fcmp_unordered(">=", n, self.constant(_LEAST_POWER))  # a NaN stays one
        if self.lanes == LANES == 16:
            types_ = [self.vector, self.vector, self.vector, ir.IntType(16), INT32]
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(self.vector, types_), "llvm.x86.avx512.mask.scalef.ps.512"
            )
            # A lane that underflows would take a hundred times as long, so it is masked.
            lanes, rounding = builder.bitcast(normal, ir.IntType(16)), ir.Constant(INT32, 4)  # as the CPU is set
            return builder.call(function, [y, n, self.constant(0.0), lanes, rounding])
        exponent = builder.add(builder.fptosi(n, self.integers), ir.Constant(self.integers, [127] * self.lanes))
        power = builder.bitcast(builder.shl(exponent, ir.Constant(self.integers, [23] * self.lanes)), self.vector)
        return builder.select(normal, builder.fmul(y, power), self.constant(0.0))


def constant(value: int) -> Any:
    """Return an int64 constant in IR."""
    return ir.Constant(INT64, value)


def accumulators(builder: Any, emit: Emit, count: int) -> list[Any]:
    """Allocate vectors of zeros to sum into. LLVM turns these stack slots into registers."""
    slots = [cgutils.alloca_once(builder, emit.vector) for _ in range(count)]
    for slot in slots:
        builder.store(emit.constant(0.0), slot)
    return slots


def cover(builder: Any, count: Any, sizes: tuple[int, ...], write: Callable[[Any, int], None]) -> None:
    """Write code that covers range(count), whose length is known at run time, with pieces of lengths known before.

    Parameters
    ----------
    count : LLVM int64
        Length of the range, a multiple of the last size.
    sizes : tuple of int
        Lengths, powers of two, the longest first: as many pieces of each as fit.
    write : callable
        Writes the code for a piece: it takes its start, an LLVM int64, and its length.
    """
    start = constant(0)
    for size in sizes:
        stop = builder.and_(count, constant(-size))
        with cgutils.for_range_slice(builder, start, stop, constant(size), INT64) as (place, _count):
            write(place, size)
        start = stop


def cover_evenly(builder: Any, count: Any, most: int, write: Callable[[Any, int], None]) -> None:
    """Write code that covers range(count), whose length is known at run time, with pieces of lengths known before.

    The last two pieces are of nearly equal length, because the sums of a short one would wait for each other.

    Parameters
    ----------
    count : LLVM int64
        Length of the range.
    most : int
        Most elements of a piece.
    write : callable
        Writes the code for a piece: it takes its start, an LLVM int64, and its length.
    """
    before, condition, body, after, end = [builder.basic_block, *(builder.append_basic_block() for _ in range(4))]
    builder.branch(condition)
    with builder.goto_block(condition):
        start = builder.phi(INT64)
        builder.cbranch(builder.icmp_signed("<", start, count), body, end)
    with builder.goto_block(body):
        left = builder.sub(count, start)
        half = builder.lshr(builder.add(left, constant(1)), constant(1))
        many = builder.select(builder.icmp_signed(">=", left, constant(2 * most)), constant(most), half)
        length = builder.select(builder.icmp_signed("<=", left, constant(most)), left, many)
        next_start = builder.add(start, length)
        choice = builder.switch(length, after)
    for size in range(1, most + 1):
        case = builder.append_basic_block()
        choice.add_case(constant(size), case)
        with builder.goto_block(case):
            write(start, size)
            builder.branch(after)
    with builder.goto_block(after):
        builder.branch(condition)
    start.add_incoming(constant(0), before)
    start.add_incoming(next_start, after)
    builder.position_at_end(end)


def cover_rest(builder: Any, columns: Any, write: Callable[[Emit, Any], None]) -> None:
    """Write code for the last 8 of a row's columns, a multiple of 8, if vectors of 16 leave them.

    `write` takes a writer of vectors of 8, and the first column, LLVM int64.
    """
    if LANES == 16:
        rest = builder.and_(columns, constant(8))
        with builder.if_then(builder.icmp_signed("!=", rest, constant(0)), likely=False):
            write(Emit(builder, 8), builder.sub(columns, rest))


def parts(total: int, most: int) -> list[range]:
    """Split range(total) into as few parts as possible, of nearly equal length."""
    count = -(-total // most)
    bounds = [total * i // max(count, 1) for i in range(count + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(bounds)]


@intrinsic
def load(typing: Any, address: Any) -> Any:
    """Load LANES f32 from an address of any alignment."""
    return VECTOR(types.int64), lambda context, builder, signature, args: Emit(builder).load_float(args[0])


@intrinsic
def store(typing: Any, address: Any, value: Any) -> Any:
    """Store LANES f32 at an address of any alignment."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        Emit(builder).store(args[1], args[0])
        return context.get_dummy_value()

    return types.void(types.int64, VECTOR), generate


@intrinsic
def prefetch_line(typing: Any, address: Any) -> Any:
    """Prefetch the cache line at an address for a read soon; any address is safe."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        Emit(builder).prefetch(args[0], CACHE_LINE)
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """Return a vector with an f32 in each lane."""
    return VECTOR(types.float32), lambda context, builder, signature, args: Emit(builder).splat(args[0])


@intrinsic
def add(typing: Any, x: Any, y: Any) -> Any:
    return VECTOR(VECTOR, VECTOR), lambda context, builder, signature, args: builder.fadd(*args)


@intrinsic
def subtract(typing: Any, x: Any, y: Any) -> Any:
    return VECTOR(VECTOR, VECTOR), lambda context, builder, signature, args: builder.fsub(*args)


@intrinsic
def multiply(typing: Any, x: Any, y: Any) -> Any:
    return VECTOR(VECTOR, VECTOR), lambda context, builder, signature, args: builder.fmul(*args)


@intrinsic
def maximum(typing: Any, x: Any, y: Any) -> Any:
    """Return the larger of x and y, lane by lane; x if y is NaN. This is one instruction, llvm.maxnum is three."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, y = args
        return builder.select(builder.fcmp_ordered("<", x, y), y, x)

    return VECTOR(VECTOR, VECTOR), generate


@intrinsic
def exp_difference(typing: Any, x: Any, y: Any) -> Any:
    """Return exp(x - y) for x up to y + 88, with relative error 1e-7 * (2 + y - x): 0 far below, NaN for NaN."""
    return VECTOR(VECTOR, VECTOR), lambda context, builder, signature, args: Emit(builder).exp_difference(*args)


@intrinsic
def exp_roughly(typing: Any, x: Any, y: Any) -> Any:
    """Return the result of `exp_difference` with relative error 1e-4, and perhaps 2e-38 where that is 0."""
    return VECTOR(VECTOR, VECTOR), lambda context, builder, signature, args: Emit(builder).exp_roughly(*args)


@intrinsic
def keep_at_most(typing: Any, x: Any, index: Any, limit: Any) -> Any:
    """Mask a vector of one key's scores: keep the lanes of x with limit >= index, and set the others to -inf.

    Parameters
    ----------
    index : float32
        Position of the key.
    limit : vector
        Newest position that the query of each lane sees.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, index, limit = args
        emit = Emit(builder)
        return builder.select(builder.fcmp_ordered(">=", limit, emit.splat(index)), x, emit.constant(-math.inf))

    return VECTOR(VECTOR, types.float32, VECTOR), generate


@intrinsic
def select_above(typing: Any, x: Any, y: Any, above: Any, otherwise: Any) -> Any:
    """Return, lane by lane, `above` where x > y, and `otherwise` elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, y, above, otherwise = args
        return builder.select(builder.fcmp_ordered(">", x, y), above, otherwise)

    return VECTOR(VECTOR, VECTOR, VECTOR, VECTOR), generate


@intrinsic
def sum_of(typing: Any, x: Any) -> Any:
    """Return the sum of the lanes, an f32."""
    return types.float32(VECTOR), lambda context, builder, signature, args: Emit(builder).sum(args[0])


@intrinsic
def any_above(typing: Any, x: Any, y: Any) -> Any:
    """Return whether x > y in any lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = builder.bitcast(builder.fcmp_ordered(">", *args), ir.IntType(LANES))
        return builder.icmp_unsigned("!=", lanes, ir.Constant(lanes.type, 0))

    return types.boolean(VECTOR, VECTOR), generate


@intrinsic
def max_of(typing: Any, x: Any) -> Any:
    """Return the largest lane, an f32."""
    return types.float32(VECTOR), lambda context, builder, signature, args: Emit(builder).maximum_lane(args[0])
