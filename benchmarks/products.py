"""Time products of quantised weights with batches, on one thread: octavo's, and llama.cpp's in the same process.

    python benchmarks/products.py [--rows 2048] [--columns 2048] [--tokens 1 4 8 256] [TYPE ...]

It prints billions of multiply-adds a second of the process's CPU time, the median of interleaved runs. llama.cpp's
weights are laid out for this CPU where it can do that.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType

from octavo.cpu_kernels.products.multiply import PRODUCT, multiply_batch
from octavo.cpu_kernels.products.product_table import ProductTable
from octavo.cpu_kernels.products.weights import KERNELS

_F32 = 0
_LIBRARIES = Path(os.environ.get("LLAMA_CPP_LIB_PATH") or Path(llama_cpp.__file__).parent / "lib")
_POINTER = ctypes.c_void_p


class _InitParams(ctypes.Structure):
    """struct ggml_init_params of ggml.h."""

    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", _POINTER), ("no_alloc", ctypes.c_bool)]


def _function(library: str, name: str, result: Any, *arguments: Any) -> Any:
    """Declare a function of ggml."""
    (path,) = _LIBRARIES.glob(f"lib{library}.so")
    function = getattr(ctypes.CDLL(str(path)), name)
    function.restype, function.argtypes = result, arguments
    return function


_new_tensor = _function("ggml-base", "ggml_new_tensor_2d", _POINTER, _POINTER, ctypes.c_int, *[ctypes.c_int64] * 2)
_allocate = _function("ggml-base", "ggml_backend_alloc_ctx_tensors_from_buft", _POINTER, _POINTER, _POINTER)
_set = _function("ggml-base", "ggml_backend_tensor_set", None, _POINTER, _POINTER, *[ctypes.c_size_t] * 2)


def quantised(number: int, floats: np.ndarray) -> np.ndarray:
    """Quantise rows of f32 to a type of ggml's."""
    sizes = [ctypes.c_int64] * 3
    quantise = _function(
        "ggml-base", "ggml_quantize_chunk", ctypes.c_size_t, ctypes.c_int, *[_POINTER] * 2, *sizes, _POINTER
    )
    kernels = KERNELS[number]
    rows = np.empty((len(floats), floats.shape[1] // kernels.of.columns * kernels.of.n_bytes), np.uint8)
    quantise(number, floats.ctypes.data, rows.ctypes.data, 0, *floats.shape, None)
    return rows


def llama_cpp_product(number: int, weights: np.ndarray, inputs: np.ndarray) -> Callable[[], object]:
    """Return what computes the product by llama.cpp."""
    init = _function("ggml-base", "ggml_init", _POINTER, _InitParams)
    own, others = (init(_InitParams(1 << 20, None, True)) for _ in range(2))
    matrix = _new_tensor(own, number, inputs.shape[1], len(weights))
    batch = _new_tensor(others, _F32, inputs.shape[1], len(inputs))
    product = _function("ggml-base", "ggml_mul_mat", _POINTER, *[_POINTER] * 3)(others, matrix, batch)
    graph = _function("ggml-base", "ggml_new_graph", _POINTER, _POINTER)(others)
    _function("ggml-base", "ggml_build_forward_expand", None, _POINTER, _POINTER)(graph, product)
    plain = _function("ggml-base", "ggml_backend_cpu_buffer_type", _POINTER)()
    _allocate(own, _laid_out(GGMLQuantizationType(number).name) or plain)
    _allocate(others, plain)
    _set(matrix, weights.ctypes.data, 0, weights.nbytes)
    _set(batch, inputs.ctypes.data, 0, inputs.nbytes)
    backend = _function("ggml-cpu", "ggml_backend_cpu_init", _POINTER)()
    _function("ggml-cpu", "ggml_backend_cpu_set_n_threads", None, _POINTER, ctypes.c_int)(backend, 1)
    compute = _function("ggml-base", "ggml_backend_graph_compute", ctypes.c_int, _POINTER, _POINTER)
    return lambda: compute(backend, graph)


def _laid_out(name: str) -> int | None:
    """Return the kind of memory that lays out weights of a type for this CPU, as llama.cpp chooses it; None if none."""
    kinds = {  # the first one is there if llama.cpp was built for AMX
        "_Z28ggml_backend_amx_buffer_typev": ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"),
        "_Z35ggml_backend_cpu_repack_buffer_typev": ("Q4_0", "Q4_K", "IQ4_NL", "MXFP4"),
    }
    for symbol, names in kinds.items():
        with contextlib.suppress(AttributeError):
            if name in names and (kind := _function("ggml-cpu", symbol, _POINTER)()):
                return int(kind)
    return None


def own_product(number: int, weights: np.ndarray, inputs: np.ndarray) -> Callable[[], object]:
    """Return what computes the product by octavo's kernels."""
    table, out = ProductTable(1), np.empty((len(inputs), len(weights)), np.float32)
    table.prepare(number, inputs.shape[1], len(inputs))

    def compute() -> None:
        place, matrix = table.address + number * PRODUCT.itemsize, (len(weights), inputs.shape[1], weights.shape[1])
        batch = inputs.ctypes.data, inputs.strides[0], len(inputs)
        multiply_batch(place, weights.ctypes.data, matrix, *batch, out.ctypes.data, out.strides[0], 0, 1)

    return compute


def median_seconds(runs: list[Callable[[], object]], repeats: int) -> list[float]:
    """Return the median CPU time of each, one after another in turns, after a run to warm up."""
    times = np.empty((repeats + 1, len(runs)))
    for row in times:
        for i, run in enumerate(runs):
            start = time.process_time()
            run()
            row[i] = time.process_time() - start
    return [float(each) for each in np.median(times[1:], axis=0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {GGMLQuantizationType(number).name: number for number in KERNELS}
    parser.add_argument("types", nargs="*", metavar="TYPE", help=f"of weights: {', '.join(names)} (all)")
    parser.add_argument("--rows", type=int, default=2048, help="of the weights (2048)")
    parser.add_argument("--columns", type=int, default=2048, help="of the weights (2048)")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 4, 8, 256], help="of batches (1 4 8 256)")
    parser.add_argument("--repeats", type=int, default=9, help="runs of each (9)")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    floats = rng.normal(size=(arguments.rows, arguments.columns)).astype(np.float32)
    print("| type | tokens | llama.cpp | octavo | ratio |\n| --- | ---: | ---: | ---: | ---: |")
    for name in arguments.types or names:
        weights = quantised(names[name], floats)
        for n_tokens in arguments.tokens:
            inputs = rng.normal(size=(n_tokens, arguments.columns)).astype(np.float32)
            runs = [make(names[name], weights, inputs) for make in (llama_cpp_product, own_product)]
            theirs, own = (floats.size * n_tokens / each / 1e9 for each in median_seconds(runs, arguments.repeats))
            print(f"| {name} | {n_tokens} | {theirs:.0f} | {own:.0f} | {own / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
