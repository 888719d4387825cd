"""Make the kernel that multiplies panels of weights of a type: it chooses how, by the number of tokens."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.amx import CONFIGURATION_BYTES, configure, restore
from ..numba_support.machine_features import HAS_AMX
from ..numba_support.vector import INT8, INT64, constant
from .integers import LANES, field
from .panel_tiles import TILED_ROWS, multiply_tiled
from .panels import JOB, ROWS, BlockType, Panel

#: Rows of weights that a thread takes at a time.
JOB_ROWS = TILED_ROWS if HAS_AMX else ROWS


def multiplier(of: BlockType) -> Any:
    """Make the intrinsic that multiplies panels of weights of a type, from one to another."""

    @intrinsic
    def multiply_panels(typing: Any, job: Any, first: Any, stop: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            job, first, stop = args
            read = {name: field(builder, job, JOB, name) for name in JOB.names or ()}

            def write_all(write: Any) -> None:
                with cgutils.for_range_slice(builder, first, stop, constant(1), INT64) as (panel, _count):
                    write(builder, of, read, builder.mul(panel, constant(JOB_ROWS)))

            if HAS_AMX:
                on_tiles = builder.icmp_signed("!=", read["on_tiles"], constant(0))
                with builder.if_else(on_tiles) as (tiled, others):
                    with tiled:
                        saved = builder.ptrtoint(cgutils.alloca_once(builder, INT8, CONFIGURATION_BYTES), INT64)
                        configure(builder, saved)
                        write_all(multiply_tiled)
                        restore(builder, saved)
                    with others:
                        write_all(_multiply_panels)
            else:
                write_all(_multiply_panels)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), generate

    return multiply_panels


def _multiply_panels(builder: Any, of: BlockType, job: dict[str, Any], first_row: Any) -> None:
    """Write code that multiplies JOB_ROWS rows by all tokens: few tokens by the rows as they are stored."""
    left = builder.sub(job["n_rows"], first_row)
    n_rows = builder.select(builder.icmp_signed("<", left, constant(JOB_ROWS)), left, constant(JOB_ROWS))
    many, end = builder.append_basic_block("many"), builder.append_basic_block("end")
    by_number = builder.switch(job["n_tokens"], many)
    for n in range(1, of.few + 1):
        few = builder.append_basic_block("few")
        by_number.add_case(constant(n), few)
        with builder.goto_block(few):
            with cgutils.for_range_slice(builder, constant(0), n_rows, constant(LANES), INT64) as (row, _count):
                Panel(builder, of, job, builder.add(first_row, row), LANES).multiply_stored(n)
            builder.branch(end)
    builder.position_at_end(many)
    with cgutils.for_range_slice(builder, constant(0), n_rows, constant(ROWS), INT64) as (row, _count):
        Panel(builder, of, job, builder.add(first_row, row), ROWS).multiply_unpacked()
    builder.branch(end)
    builder.position_at_end(end)
