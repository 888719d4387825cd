"""Shaders, compiled for a shape when it is first used: the text of all `*.metal` files after its macros."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cpu_kernels.compile import Q8_0, Shape
from ..errors import OctavoError
from .gpu import Gpu, reason

#: Files of one library, in the order in which they are put together: Apple's runtime compiler has no include path.
FILES = ("common", "append", "scores", "select", "decode", "prefill")

#: Threads of a threadgroup of each kernel; `select_spans` takes fewer where the GPU has no room for them.
THREADS = {
    "append_rows": 128,
    "score_items": 128,
    "keep_clusters": 256,
    "score_kept": 128,
    "select_spans": 1024,
    "attend_shares": 128,
    "merge_shares": 64,
    "attend_tiles": 128,
}

_FLEXIBLE, _SIMD_WIDTH = "select_spans", 32

#: What common.metal can be compiled for.
LONGEST_HEAD = 256


@dataclass(frozen=True)
class Pipeline:
    """A kernel, ready to be dispatched with so many threads in a threadgroup."""

    state: Any
    threads: int


def macros(shape: Shape) -> dict[str, int]:
    """What common.metal is told of a shape."""
    return {"HEAD_DIM": shape.head_dim, "GROUP": shape.group, "QUANTISED": int(shape.kv_type == Q8_0)}


def text_of(name: str) -> str:
    """A file of this folder."""
    return (Path(__file__).parent / f"{name}.metal").read_text("utf-8")


def source(shape: Shape) -> str:
    """The text of a shape's library."""
    defines = "".join(f"#define {name} {value}\n" for name, value in macros(shape).items())
    return defines + "\n".join(map(text_of, FILES))


def library(gpu: Gpu, shape: Shape) -> dict[str, Pipeline]:
    """The kernels of a shape by their names, compiled once in a process.

    Raises OctavoError with the compiler's words, and where a kernel needs more threads than the GPU gives it.
    """
    if shape not in gpu.libraries:
        with gpu.autorelease_pool():
            gpu.libraries[shape] = _compiled(gpu, shape)
    pipelines: dict[str, Pipeline] = gpu.libraries[shape]
    return pipelines


def _compiled(gpu: Gpu, shape: Shape) -> dict[str, Pipeline]:
    states = compile_kernels(gpu, source(shape), list(THREADS), str(shape))
    return {name: _pipeline(gpu, name, state) for name, state in states.items()}


def compile_kernels(gpu: Gpu, text: str, names: list[str], what: str) -> dict[str, Any]:
    """Pipeline states of the kernels of a source. Needs an autorelease pool.

    what : of the source, for a message    Raises OctavoError with the compiler's words.
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
        raise OctavoError(f"Metal cannot compile octavo's kernels for {what}: {reason(error)}. Use --device cpu.")
    states = {}
    for name in names:
        function = compiled.newFunctionWithName_(name)
        state = error = None
        if function is not None:
            state, error = gpu.device.newComputePipelineStateWithFunction_error_(function, None)
        if state is None:
            raise OctavoError(f"Metal cannot make a pipeline of the kernel {name}: {reason(error)}. Use --device cpu.")
        states[name] = state
    return states


def _pipeline(gpu: Gpu, name: str, state: Any) -> Pipeline:
    threads, most = THREADS[name], int(state.maxTotalThreadsPerThreadgroup())
    if name == _FLEXIBLE:
        threads = min(threads, most // _SIMD_WIDTH * _SIMD_WIDTH)
    if not 0 < threads <= most or int(state.threadExecutionWidth()) != _SIMD_WIDTH:
        raise OctavoError(
            f"The kernel {name} needs {threads} threads in simd groups of {_SIMD_WIDTH}, and {gpu.name} gives it "
            f"{most} in groups of {int(state.threadExecutionWidth())}: use --device cpu."
        )
    return Pipeline(state, threads)
