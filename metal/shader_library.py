"""Compile the shaders for a shape on first use: the shape's macros, then the text of all `*.metal` files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..cpu_kernels.numba_support.shape import Q8_0, Shape
from ..errors import OctavoError
from .gpu import Gpu, reason

#: Files before the parts of methods, and files with kernels after them. Apple's runtime compiler has no include path,
#: so this module joins the text.
HELPERS, KERNELS = ("common", "selection"), ("append", "select", "decode", "prefill")

#: Threads in a threadgroup of each kernel. `select_spans` uses fewer if the GPU cannot hold as many.
THREADS = {
    "append_rows": 128,
    "score_items": 128,
    "narrow_items": 256,
    "score_narrowed": 128,
    "select_spans": 1024,
    "rotate_queries": 32,
    "attend_shares": 128,
    "merge_shares": 32,
    "attend_tiles": 128,
}

_FLEXIBLE, _SIMD_WIDTH = "select_spans", 32

#: Elements of the longest keys and values that common.metal supports.
LONGEST_HEAD = 576

#: Elements of a row that the lanes of a simd group read at once, and rows of queries and of sums, of that length, that
#: their registers hold in decode.
_AT_ONCE, _ROWS_HELD = 256, 16


#: The functions that a part may define: NAME_append, NAME_score and so on.
FUNCTIONS = ("append", "score", "narrow", "score_narrowed", "select", "finish")

_FOLDER = Path(__file__).parent / "methods"


@cache
def method_names() -> tuple[str, ...]:
    """Return the names of the methods on Metal, in the order of their numbers in the shaders."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.metal")))


def has_method(name: str) -> bool:
    """Return whether Metal has a method."""
    return name in method_names()


@cache
def part_text(name: str) -> str:
    """Return the text of a method's shader part."""
    return (_FOLDER / f"{name}.metal").read_text("utf-8")


@cache
def defines(name: str, function: str) -> bool:
    """Return whether a method's part defines NAME_function."""
    return re.search(rf"\b{name}_{function}\(", part_text(name)) is not None


def calls() -> str:
    """Return macros that call each function of the parts: CALL_SCORE(number, ...) calls the method's NAME_score.

    A macro does nothing for a method that lacks the function.
    """
    return "\n".join(map(_call, FUNCTIONS)) + "\n"


def _call(function: str) -> str:
    lines = [f"#define CALL_{function.upper()}(number, ...)", "switch (number) {"]
    for number, name in enumerate(method_names()):
        if defines(name, function):
            lines.append(f"case {number}: {name}_{function}(__VA_ARGS__); break;")
    return " \\\n    ".join([*lines, "default: break; }"])


@dataclass(frozen=True)
class Pipeline:
    """A kernel that is ready to be dispatched.

    Parameters
    ----------
    threads : int
        Threads in a threadgroup.
    """

    state: Any
    threads: int


def macros(shape: Shape) -> dict[str, int]:
    """Return the macros of common.metal for a shape."""
    sizes = {"HEAD_DIM": shape.head_dim, "VALUE_DIM": shape.value_dim, "GROUP": shape.group}
    at_once = {"HEADS": heads_at_once(shape), "TILE": tile_queries(shape)}
    return sizes | at_once | {"LATENT": int(shape.latent), "QUANTISED": int(shape.kv_type == Q8_0)}


def heads_at_once(shape: Shape) -> int:
    """Return for how many query heads a threadgroup computes in decode; blocks of them are as even as possible."""
    most = _ROWS_HELD // (-(-shape.head_dim // _AT_ONCE) - (-shape.value_dim // _AT_ONCE))
    n_blocks = -(-shape.group // most)
    return -(-shape.group // n_blocks)


def tile_queries(shape: Shape) -> int:
    """Return for how many queries a threadgroup computes in a batch."""
    return 32 if shape.value_dim <= _AT_ONCE else 16


def text_of(name: str) -> str:
    """Return the text of a file in this folder."""
    return (Path(__file__).parent / f"{name}.metal").read_text("utf-8")


def source(shape: Shape) -> str:
    """Return the source text for a shape."""
    defines = "".join(f"#define {name} {value}\n" for name, value in macros(shape).items())
    parts = [*map(text_of, HELPERS), *map(part_text, method_names()), calls(), *map(text_of, KERNELS)]
    return defines + "\n".join(parts)


def library(gpu: Gpu, shape: Shape) -> dict[str, Pipeline]:
    """Return the kernels of THREADS for a shape, by name; compile them once in a process.

    Raises
    ------
    OctavoError
        The compiler fails, with its message; or a kernel needs more threads than the GPU has.
    """
    if shape not in gpu.libraries:
        with gpu.autorelease_pool():
            states = compile_kernels(gpu, source(shape), list(THREADS), str(shape))
            gpu.libraries[shape] = {name: _pipeline(gpu, name, state) for name, state in states.items()}
    pipelines: dict[str, Pipeline] = gpu.libraries[shape]
    return pipelines


def compile_kernels(gpu: Gpu, text: str, names: list[str], what: str) -> dict[str, Any]:
    """Compile kernels. Needs an autorelease pool.

    Raises
    ------
    OctavoError
        The compiler fails, with its message.
    """
    Metal = gpu.Metal
    options = Metal.MTLCompileOptions.alloc().init()
    options.setLanguageVersion_(Metal.MTLLanguageVersion3_0)
    if hasattr(options, "setMathMode_"):  # from macOS 15 on
        options.setMathMode_(Metal.MTLMathModeSafe)
    else:
        options.setFastMathEnabled_(False)
    compiled, error = gpu.device.newLibraryWithSource_options_error_(text, options, None)
    if compiled is None:
        raise OctavoError(f'Metal cannot compile octavo\'s kernels for {what}: {reason(error)}. Use `device="cpu"`.')
    states = {}
    for name in names:
        function = compiled.newFunctionWithName_(name)
        state = error = None
        if function is not None:
            state, error = gpu.device.newComputePipelineStateWithFunction_error_(function, None)
        if state is None:
            why = reason(error)
            raise OctavoError(f'Metal cannot make a pipeline of the kernel {name}: {why}. Use `device="cpu"`.')
        states[name] = state
    return states


def _pipeline(gpu: Gpu, name: str, state: Any) -> Pipeline:
    """Choose a kernel's number of threads, and check that the GPU has them."""
    threads, most = THREADS[name], int(state.maxTotalThreadsPerThreadgroup())
    if name == _FLEXIBLE:
        threads = min(threads, most // _SIMD_WIDTH * _SIMD_WIDTH)
    if not 0 < threads <= most or int(state.threadExecutionWidth()) != _SIMD_WIDTH:
        raise OctavoError(
            f"The kernel {name} needs {threads} threads in simd groups of {_SIMD_WIDTH}, and {gpu.name} gives it "
            f'{most} in groups of {int(state.threadExecutionWidth())}: use `device="cpu"`.'
        )
    return Pipeline(state, threads)
