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

#: Tile registers, and rows of each.
TILES, TILE_ROWS = 8, 16

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


def configure(builder: Any, saved: Any, shapes: tuple[tuple[int, int], ...]) -> None:
    """Configure the tiles of this thread, and save their configuration: CONFIGURATION_BYTES at an address.

    Parameters
    ----------
    shapes : tuple
        Rows of each tile, and their bytes.
    """
    settings = np.zeros(CONFIGURATION_BYTES, np.uint8)
    settings[0] = 1  # the only palette
    settings[48:56], settings[16:32].view(np.uint16)[:] = zip(*shapes, strict=True)
    array = ir.Constant(ir.ArrayType(INT8, len(settings)), bytearray(settings.tobytes()))
    configuration = cgutils.global_constant(builder, "octavo.tiles", array)
    call_amx(builder, "sttilecfg", Emit(builder).pointer(saved, INT8))
    call_amx(builder, "ldtilecfg", builder.bitcast(configuration, cgutils.voidptr_t))


def restore(builder: Any, saved: Any) -> None:
    """Restore the tiles' configuration of before `configure`."""
    call_amx(builder, "ldtilecfg", Emit(builder).pointer(saved, INT8))


@intrinsic
def enter_tiles(typing: Any, saved: Any) -> Any:
    """Configure whole tiles on this thread, and save their configuration: CONFIGURATION_BYTES at an address."""

    def write(builder: Any, saved: Any) -> None:
        configure(builder, saved, ((TILE_ROWS, ROW_BYTES),) * TILES)

    return types.void(types.int64), if_amx(write)


@intrinsic
def leave_tiles(typing: Any, saved: Any) -> Any:
    """Restore the tiles' configuration of before `enter_tiles`."""
    return types.void(types.int64), if_amx(restore)
