"""Write instructions of Intel's AMX: tiles of up to 16 rows of 64 bytes, and products of two that are added to a third.

ggml uses the same tile registers, and configures them once for each thread. Code that configures them otherwise saves
this configuration, and restores it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .machine_features import HAS_AMX
from .vector import INT8, Emit, constant

#: Rows of a tile.
TILE_ROWS = 16

#: Bytes of a row of a tile, and of the configuration of all tiles.
ROW_BYTES, CONFIGURATION_BYTES = 64, 64

TILE_BYTES = TILE_ROWS * ROW_BYTES

_STEP = constant(ROW_BYTES)


def if_amx(write: Callable[..., None]) -> Callable[..., Any]:
    """Return the generator of an intrinsic from `write`, which takes the builder and the arguments.

    Without AMX it writes nothing, so that kernels which never call it still compile.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if HAS_AMX:
            write(builder, *args)
        return context.get_dummy_value()

    return generate


def call_amx(builder: Any, name: str, *arguments: Any) -> None:
    """Call an LLVM intrinsic for AMX. Tiles are numbers."""
    values = [ir.Constant(INT8, each) if isinstance(each, int) else each for each in arguments]
    signature = ir.FunctionType(ir.VoidType(), [value.type for value in values])
    builder.call(cgutils.get_or_insert_function(builder.module, signature, f"llvm.x86.{name}"), values)


def load_tile(builder: Any, tile: int, address: Any, offset: int | Any = 0, step: Any = _STEP) -> None:
    """Load a tile whose rows are `step` bytes apart."""
    call_amx(builder, "tileloadd64", tile, Emit(builder).pointer(address, INT8, offset), step)


def store_tile(builder: Any, tile: int, address: Any, offset: int | Any = 0, step: Any = _STEP) -> None:
    """Store a tile whose rows are `step` bytes apart."""
    call_amx(builder, "tilestored64", tile, Emit(builder).pointer(address, INT8, offset), step)


def configure(builder: Any, saved: Any) -> None:
    """Configure whole tiles on this thread, and save their configuration: CONFIGURATION_BYTES at an address."""
    settings = np.zeros(CONFIGURATION_BYTES, np.uint8)
    settings[0] = 1  # the only palette
    settings[16:32].view(np.uint16)[:] = ROW_BYTES
    settings[48:56] = TILE_ROWS
    array = ir.Constant(ir.ArrayType(INT8, len(settings)), bytearray(settings.tobytes()))
    configuration = cgutils.global_constant(builder, "octavo.tiles", array)
    call_amx(builder, "sttilecfg", Emit(builder).pointer(saved, INT8))
    call_amx(builder, "ldtilecfg", builder.bitcast(configuration, cgutils.voidptr_t))


def restore(builder: Any, saved: Any) -> None:
    """Restore the tiles' configuration of before `configure`."""
    call_amx(builder, "ldtilecfg", Emit(builder).pointer(saved, INT8))


def paired(emit: Emit, even: Any, odd: Any) -> Any:
    """Return two vectors of f32 as pairs of bf16, int32: the upper halves of those of `odd` above those of `even`."""
    builder = emit.builder
    mask = ir.Constant(emit.integers, [0xFFFF0000] * emit.lanes)
    half = ir.Constant(emit.integers, [16] * emit.lanes)
    upper = builder.and_(builder.bitcast(odd, emit.integers), mask)
    return builder.or_(upper, builder.lshr(builder.bitcast(even, emit.integers), half))


def rounded_pairs(emit: Emit, even: Any, odd: Any) -> Any:
    """Return two vectors of f32 as pairs of the nearest bf16. A NaN may become a number, but for the plainest."""
    builder, half = emit.builder, ir.Constant(emit.integers, [1 << 15] * emit.lanes)
    return paired(emit, *(builder.add(builder.bitcast(x, emit.integers), half) for x in (even, odd)))


@intrinsic
def enter_tiles(typing: Any, saved: Any) -> Any:
    """Configure whole tiles on this thread, and save their configuration: CONFIGURATION_BYTES at an address."""
    return types.void(types.int64), if_amx(configure)


@intrinsic
def leave_tiles(typing: Any, saved: Any) -> Any:
    """Restore the tiles' configuration of before `enter_tiles`."""
    return types.void(types.int64), if_amx(restore)
