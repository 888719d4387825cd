"""Vector values for Numba: f32 vectors of LANES elements, as LLVM vectors, portable to AVX2, AVX-512 and NEON.

Numba has no float16 on the CPU, and its loop vectoriser misses the shape of attention loops. Here a kernel says what
it means: `total = fma(load(a), load(b), total)`. Memory is named by its address (an int64), as in the spans that
the kernels read. `Emit` writes the same operations into LLVM IR by hand, for the blocks of `blocks.py` whose
accumulators must stay in registers.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from .compile import LANES

HALF, FLOAT = ir.HalfType(), ir.FloatType()
INT8, INT16 = ir.IntType(8), ir.IntType(16)
INT32, INT64 = ir.IntType(32), ir.IntType(64)

_CACHE_LINE = 64

#: exp(x) of anything below is 0: smaller results would be denormal.
LOWEST_EXPONENT = -87.0

_LOG2_E = math.log2(math.e)
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # Cody and Waite: n * _LN2_HIGH is exact
_EXP_POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)  # Cephes


class VectorType(types.Type):
    """LANES f32 values in a register."""

    def __init__(self) -> None:
        super().__init__(name=f"Vector({LANES} x f32)")


VECTOR = VectorType()


@register_model(VectorType)
class VectorModel(models.PrimitiveModel):
    """A vector is held as the LLVM vector that it is."""

    def __init__(self, manager: Any, vector_type: Any) -> None:
        super().__init__(manager, vector_type, ir.VectorType(FLOAT, LANES))


class Emit:
    """Writes vector operations of one width into a function that is being compiled."""

    def __init__(self, builder: Any, lanes: int = LANES) -> None:
        self.builder = builder
        self.lanes = lanes
        self.vector = ir.VectorType(FLOAT, lanes)
        self.integers = ir.VectorType(INT32, lanes)

    def call(self, name: str, *arguments: Any) -> Any:
        """An LLVM intrinsic on vectors of this width, such as llvm.fma."""
        signature = ir.FunctionType(self.vector, [self.vector] * len(arguments))
        function = cgutils.get_or_insert_function(self.builder.module, signature, f"llvm.{name}.v{self.lanes}f32")
        return self.builder.call(function, arguments)

    def constant(self, value: float) -> Any:
        return ir.Constant(self.vector, [value] * self.lanes)

    def shuffle(self, x: Any, y: Any, lanes: list[int]) -> Any:
        return self.builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(INT32, len(lanes)), lanes))

    def splat(self, scalar: Any) -> Any:
        first = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), scalar, ir.Constant(INT32, 0))
        return self.shuffle(first, first, [0] * self.lanes)

    def pointer(self, address: Any, element: Any, offset: int | Any = 0) -> Any:
        """Pointer to the element that lies `offset` elements after an address."""
        base = self.builder.inttoptr(address, element.as_pointer())
        index = ir.Constant(INT64, offset) if isinstance(offset, int) else offset
        return self.builder.gep(base, [index])

    def load_float(self, address: Any, offset: int | Any = 0) -> Any:
        loaded = self.builder.load(self.builder.bitcast(self.pointer(address, FLOAT, offset), self.vector.as_pointer()))
        loaded.align = 4
        return loaded

    def load_half(self, address: Any, offset: int | Any = 0) -> Any:
        halves = ir.VectorType(HALF, self.lanes)
        loaded = self.builder.load(self.builder.bitcast(self.pointer(address, HALF, offset), halves.as_pointer()))
        loaded.align = 2
        return self.builder.fpext(loaded, self.vector)

    def load_int8(self, address: Any, offset: int | Any = 0) -> Any:
        return self.builder.sitofp(
            self.builder.sext(self.load_bytes(address, offset, self.lanes), self.integers), self.vector
        )

    def load_bytes(self, address: Any, offset: int | Any, count: int) -> Any:
        """`count` int8 as they are."""
        place = self.builder.bitcast(self.pointer(address, INT8, offset), ir.VectorType(INT8, count).as_pointer())
        loaded = self.builder.load(place)
        loaded.align = 1
        return loaded

    def prefetch(self, address: Any, n_bytes: int) -> None:
        """Ask for n_bytes bytes at any address to come to the L2 cache: the L1 cache waits for few lines at a time."""
        signature = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, INT32, INT32, INT32])
        function = cgutils.get_or_insert_function(self.builder.module, signature, "llvm.prefetch.p0i8")
        read, to_l2, data = (ir.Constant(INT32, value) for value in (0, 2, 1))
        for offset in range(0, n_bytes, _CACHE_LINE):
            place = self.builder.bitcast(self.pointer(address, INT8, offset), cgutils.voidptr_t)
            self.builder.call(function, [place, read, to_l2, data])

    def load_scalar(self, address: Any, offset: int | Any = 0) -> Any:
        return self.builder.load(self.pointer(address, FLOAT, offset))

    def store(self, value: Any, address: Any, offset: int | Any = 0) -> None:
        pointer = self.builder.bitcast(self.pointer(address, FLOAT, offset), value.type.as_pointer())
        self.builder.store(value, pointer).align = 4

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return self.call("fma", x, y, z)

    def sum(self, x: Any) -> Any:
        """The sum of the lanes, a scalar."""
        signature = ir.FunctionType(FLOAT, [FLOAT, self.vector])
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f32"
        function = cgutils.get_or_insert_function(self.builder.module, signature, name)
        return self.builder.call(function, [ir.Constant(FLOAT, -0.0), x], fastmath=("reassoc",))

    def sum_integers(self, x: Any) -> Any:
        """The sum of the lanes of an int32 vector, a scalar."""
        name = f"llvm.vector.reduce.add.v{x.type.count}i32"
        function = cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(INT32, [x.type]), name)
        return self.builder.call(function, [x])

    def maximum_lane(self, x: Any) -> Any:
        """The largest lane, a scalar."""
        signature = ir.FunctionType(FLOAT, [self.vector])
        name = f"llvm.vector.reduce.fmax.v{self.lanes}f32"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, signature, name), [x])

    def exp(self, x: Any) -> Any:
        """exp(x) to about 2 units in the last place; 0 below LOWEST_EXPONENT, NaN for NaN. For x up to 88."""
        tiny = self.builder.fcmp_ordered("<", x, self.constant(LOWEST_EXPONENT))
        x = self.builder.select(tiny, self.constant(0.0), x)
        n = self.call("rint", self.builder.fmul(x, self.constant(_LOG2_E)))
        rest = self.fma(n, self.constant(-_LN2_HIGH), x)
        rest = self.fma(n, self.constant(-_LN2_LOW), rest)
        y = self.constant(_EXP_POLYNOMIAL[0])
        for coefficient in _EXP_POLYNOMIAL[1:]:
            y = self.fma(y, rest, self.constant(coefficient))
        y = self.fma(y, self.builder.fmul(rest, rest), self.builder.fadd(rest, self.constant(1.0)))
        exponent = self.builder.add(
            self.builder.fptosi(n, self.integers), ir.Constant(self.integers, [127] * self.lanes)
        )
        power = self.builder.bitcast(
            self.builder.shl(exponent, ir.Constant(self.integers, [23] * self.lanes)), self.vector
        )
        return self.builder.select(tiny, self.constant(0.0), self.builder.fmul(y, power))


@intrinsic
def load(typing: Any, address: Any) -> Any:
    """LANES f32 from an address of any alignment."""
    return VECTOR(types.int64), lambda context, builder, signature, args: Emit(builder).load_float(args[0])


@intrinsic
def store(typing: Any, address: Any, value: Any) -> Any:
    """Write LANES f32 to an address of any alignment."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        Emit(builder).store(args[1], args[0])
        return context.get_dummy_value()

    return types.void(types.int64, VECTOR), generate


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """The same f32 in each lane."""
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
    return VECTOR(VECTOR, VECTOR), lambda context, builder, signature, args: Emit(builder).call("maxnum", *args)


@intrinsic
def exp(typing: Any, x: Any) -> Any:
    return VECTOR(VECTOR), lambda context, builder, signature, args: Emit(builder).exp(args[0])


@intrinsic
def keep_at_most(typing: Any, x: Any, index: Any, limit: Any) -> Any:
    """x where limit >= index, -inf elsewhere: a mask. index is an f32, limit a vector."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, index, limit = args
        emit = Emit(builder)
        return builder.select(builder.fcmp_ordered(">=", limit, emit.splat(index)), x, emit.constant(-math.inf))

    return VECTOR(VECTOR, types.float32, VECTOR), generate


@intrinsic
def sum_of(typing: Any, x: Any) -> Any:
    """The sum of the lanes."""
    return types.float32(VECTOR), lambda context, builder, signature, args: Emit(builder).sum(args[0])


@intrinsic
def any_above(typing: Any, x: Any, y: Any) -> Any:
    """Whether x > y in any lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = builder.bitcast(builder.fcmp_ordered(">", *args), ir.IntType(LANES))
        return builder.icmp_unsigned("!=", lanes, ir.Constant(lanes.type, 0))

    return types.boolean(VECTOR, VECTOR), generate


@intrinsic
def max_of(typing: Any, x: Any) -> Any:
    """The largest lane."""
    return types.float32(VECTOR), lambda context, builder, signature, args: Emit(builder).maximum_lane(args[0])
