"""Give kernels plain memory: values at addresses, copies, barriers, calls by address.

An address is an int64. For arrays and records at an address see views.py.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import errors, types
from numba.core import cgutils
from numba.extending import intrinsic

from .compile import kernel

#: Turns, about 50 microseconds, that a waiting thread spins before it yields its core on every further turn.
_SPINS = 1 << 10

#: The Python type of a function that `call_native` calls.
Callback = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 5)

_ON_X86 = llvmlite.binding.get_default_triple().startswith(("x86_64", "i686", "amd64"))


def _reader(numba_type: Any) -> Any:
    """Make the intrinsic that reads a value of a type."""

    @intrinsic
    def read(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            stored = context.get_data_type(numba_type)
            loaded = builder.load(builder.inttoptr(args[0], stored.as_pointer()))
            loaded.align = 4  # ggml writes some 8-byte fields with memcpy, at multiples of 4
            return loaded

        return numba_type(types.int64), generate

    return read


def _writer(numba_type: Any) -> Any:
    """Make the intrinsic that writes a value of a type."""

    @intrinsic
    def write(typing: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], builder.inttoptr(args[0], args[1].type.as_pointer())).align = 4
            return context.get_dummy_value()

        return types.void(types.int64, numba_type), generate

    return write


read_int32, write_int32 = _reader(types.int32), _writer(types.int32)
read_int64, write_int64 = _reader(types.int64), _writer(types.int64)
read_float, write_float = _reader(types.float32), _writer(types.float32)


@intrinsic
def write_half(typing: Any, address: Any, value: Any) -> Any:
    """Write an f32 as f16. Return the rounded value, f32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, value = args
        half = builder.fptrunc(value, ir.HalfType())
        builder.store(half, builder.inttoptr(address, half.type.as_pointer())).align = 2
        return builder.fpext(half, ir.FloatType())

    return types.float32(types.int64, types.float32), generate


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """Turn an address into the `void *` that `numba.carray` takes."""
    return types.voidptr(types.int64), lambda context, builder, signature, args: builder.inttoptr(
        args[0], cgutils.voidptr_t
    )


@intrinsic
def address_of(typing: Any, pointer: Any) -> Any:
    """Turn a `void *` into an address."""
    return types.int64(types.voidptr), lambda context, builder, signature, args: builder.ptrtoint(
        args[0], ir.IntType(64)
    )


@intrinsic
def copy_bytes(typing: Any, target: Any, source: Any, n_bytes: Any) -> Any:
    """Copy bytes from one address to another. The two ranges must not overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = (builder.inttoptr(address, cgutils.voidptr_t) for address in args[:2])
        cgutils.raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def fetch_add(typing: Any, address: Any, amount: Any) -> Any:
    """Add to the int64 at an address, a multiple of 8, atomically. Return the value before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", place, args[1], "acq_rel")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _read_shared(typing: Any, address: Any) -> Any:
    """Read an int64 that other threads change, and see everything that they wrote before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def _pause(typing: Any) -> Any:
    """Tell the core that this thread spins, so that its sibling gets the execution units."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _ON_X86:
            function_type = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, function_type, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _yield_core(typing: Any) -> Any:
    """Let another thread run on this core: sched_yield()."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function_type = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, function_type, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


@kernel
def barrier(counter, n_threads):
    """Wait until all threads have arrived. Everything that each wrote before is then visible to all.

    There may be more threads than cores: a thread that waits long yields its core.

    Parameters
    ----------
    counter : int64
        Address of an int64 that was 0 before the first barrier. It counts arrivals over all barriers.
    """
    if n_threads == 1:
        return
    arrived = fetch_add(counter, 1) + 1
    target = -(-arrived // n_threads) * n_threads
    spins = 0
    while _read_shared(counter) < target:
        _pause()
        spins += 1
        if spins > _SPINS:
            _yield_core()


@intrinsic
def call_native(typing: Any, function: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Call the native function at an address, such as a hook (see hooks.py).

    Parameters
    ----------
    function : int64
        Address of a function of four int64 that returns an int64.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        int64 = ir.IntType(64)
        function_type = ir.FunctionType(int64, [int64] * 4)
        return builder.call(builder.inttoptr(args[0], function_type.as_pointer()), list(args[1:]))

    return types.int64(*[types.int64] * 5), generate


#: Bytes up to which `borrow` takes the stack: threads of ggml have 512 KiB of it on macOS, and several functions that
#: call one another borrow.
MOST_ON_STACK = 8192

_ALIGNMENT = 64


def _stack_of(builder: Any, n_bytes: Any) -> Any:
    """Allocate memory that begins on a cache line on the stack of the function that is compiled; return its address."""
    room = builder.alloca(ir.IntType(8), n_bytes)
    room.align = _ALIGNMENT
    return builder.ptrtoint(room, ir.IntType(64))


@intrinsic
def stack_bytes(typing: Any, n_bytes: Any) -> Any:
    """Allocate a constant number of bytes, uninitialised, on the stack of the calling function.

    Return the address, a multiple of 64. The memory lasts until the calling function returns, so no loop may allocate.
    Memory whose size depends on a model is borrowed: see `borrow`.
    """
    if not isinstance(n_bytes, types.IntegerLiteral):
        raise errors.RequireLiteralValue("The size of memory on the stack must be a constant: borrow other memory.")
    return types.int64(n_bytes), lambda context, builder, signature, args: _stack_of(
        builder, ir.Constant(ir.IntType(64), n_bytes.literal_value)
    )


@intrinsic
def borrow(typing: Any, n_bytes: Any) -> Any:
    """Allocate bytes, uninitialised: few on the stack of the calling function, others on the heap.

    Return the address, a multiple of 64. The calling function must `give_back` the memory, and no loop may borrow.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        n_bytes, int64 = args[0], ir.IntType(64)
        with builder.if_else(_is_small(builder, n_bytes)) as (small, large):
            with small:
                on_stack, from_small = _stack_of(builder, n_bytes), builder.block
            with large:
                size = builder.and_(builder.add(n_bytes, int64(_ALIGNMENT - 1)), int64(-_ALIGNMENT))
                allocate = cgutils.get_or_insert_function(
                    builder.module, ir.FunctionType(cgutils.voidptr_t, [int64, int64]), "aligned_alloc"
                )
                on_heap = builder.ptrtoint(builder.call(allocate, [int64(_ALIGNMENT), size]), int64)
                from_large = builder.block
        address = builder.phi(int64)
        address.add_incoming(on_stack, from_small)
        address.add_incoming(on_heap, from_large)
        return address

    return types.int64(types.int64), generate


@intrinsic
def give_back(typing: Any, address: Any, n_bytes: Any) -> Any:
    """Free memory that the calling function has borrowed, of n_bytes bytes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, n_bytes = args
        with builder.if_then(builder.not_(_is_small(builder, n_bytes)), likely=False):
            free = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t]), "free"
            )
            builder.call(free, [builder.inttoptr(address, cgutils.voidptr_t)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _is_small(builder: Any, n_bytes: Any) -> Any:
    return builder.icmp_signed("<=", n_bytes, ir.Constant(ir.IntType(64), MOST_ON_STACK))
