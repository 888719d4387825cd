"""Run MLX's attention kernels, which nobody wrote for the simulator, against NumPy.

pip downloads them into the cache folder, in the wheel that MLX publishes for macOS. This project keeps nothing of it.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from metal_simulator import compiler, simulator

pytestmark = pytest.mark.sampled

simulator.require()

HEADERS = "mlx/include/mlx/backend/metal/kernels/"
CONSTANTS = {"has_mask": 0, "query_transposed": 0, "do_causal": 0, "bool_mask": 0, "float_mask": 0, "has_sinks": 0}

# The kernels need Limits<U>::finite_min, and names for their instances.
SOURCE = """
#include <metal_stdlib>
template <typename U> struct Limits { static constexpr constant U finite_min = -metal::numeric_limits<U>::max(); };
#include "sdpa_vector.h"
#define INSTANCE(kernel, name, ...) \\
    template [[host_name(name)]] [[kernel]] decltype(kernel<__VA_ARGS__>) kernel<__VA_ARGS__>;
INSTANCE(sdpa_vector, "half", half, HEAD_DIM)
INSTANCE(sdpa_vector, "float", float, HEAD_DIM)
INSTANCE(sdpa_vector_2pass_1, "half_pass_1", half, HEAD_DIM)
INSTANCE(sdpa_vector_2pass_2, "half_pass_2", half, HEAD_DIM)
"""


def give_up(reason: str) -> None:
    if os.environ.get("OCTAVO_REQUIRE_METAL_SIM"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def include() -> Path:
    """Return the folder of MLX's kernels."""
    folder = compiler.cache_folder() / "mlx"
    folder.mkdir(exist_ok=True)
    if not (folder / "sdpa_vector.h").exists():
        wheels = list(folder.glob("mlx_metal-*.whl")) or download(folder)
        with zipfile.ZipFile(wheels[0]) as wheel:
            (folder / "sdpa_vector.h").write_bytes(wheel.read(f"{HEADERS}sdpa_vector.h"))
        wheels[0].unlink()
    return folder


def download(folder: Path) -> list[Path]:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--platform", "macosx_14_0_arm64", "--dest", str(folder), "mlx-metal"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        give_up("pip did not download mlx-metal in two minutes")
    if done.returncode:
        give_up(f"pip cannot download mlx-metal: {done.stderr.strip().splitlines()[-1:]}")
    return list(folder.glob("mlx_metal-*.whl"))


def library(include: Path, head_dim: int, sanitizer: str | None = None) -> simulator.Library:
    return simulator.Library(SOURCE, {"HEAD_DIM": head_dim}, sanitizer, name="mlx.metal", include=include)


def inputs(head_dim: int, length: int, heads: int = 4, kv_heads: int = 2, dtype=np.float16):
    rng = np.random.default_rng(head_dim * 10_000 + length)
    queries = rng.standard_normal((heads, head_dim)).astype(dtype)
    keys, values = rng.standard_normal((2, kv_heads, length, head_dim)).astype(dtype)
    return queries, keys, values


def attention(queries, keys, values):
    """Compute softmax(q k / sqrt(d)) v in float64. Each KV head has equally many query heads."""
    group = len(queries) // len(keys)
    keys, values = (np.repeat(x.astype(np.float64), group, axis=0) for x in (keys, values))
    scores = np.einsum("hd,hnd->hn", queries.astype(np.float64), keys) / np.sqrt(queries.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.einsum("hn,hnd->hd", weights / weights.sum(axis=1, keepdims=True), values)


def strides(keys):
    _, length, head_dim = keys.shape
    return np.array([length * head_dim, head_dim], np.uint64)


def run_one_pass(compiled, kernel, queries, keys, values, schedule=0):
    out = np.full_like(queries, np.nan)
    group, length = np.int32(len(queries) // len(keys)), np.int32(keys.shape[1])
    head, row = strides(keys)
    scale = np.float32(queries.shape[1] ** -0.5)
    buffers = {0: queries, 1: keys, 2: values, 3: out, 4: group.tobytes(), 5: length.tobytes()}
    buffers |= {6: head.tobytes(), 7: row.tobytes(), 8: head.tobytes(), 9: row.tobytes(), 10: scale.tobytes()}
    compiled.run(kernel, buffers, len(queries), 1024, schedule=schedule, function_constants={**CONSTANTS, "blocks": 32})
    return out


def run_two_passes(compiled, queries, keys, values, blocks=32, schedule=0):
    heads, head_dim = queries.shape
    kv_heads, length, _ = keys.shape
    partial = np.full((heads, blocks, head_dim), np.nan, np.float16)
    sums, maxima = np.full((2, heads, blocks), np.nan, np.float32)
    head, row = (stride.tobytes() for stride in strides(keys))
    scale = np.float32(head_dim**-0.5).tobytes()
    constants = {**CONSTANTS, "blocks": blocks}
    buffers = {0: queries, 1: keys, 2: values, 3: partial, 4: sums, 5: maxima, 7: np.int32(length).tobytes()}
    buffers |= {8: head, 9: row, 10: head, 11: row, 12: scale}
    grid, group = (kv_heads, 1, blocks), (32, heads // kv_heads, 1)
    compiled.run("half_pass_1", buffers, grid, group, schedule=schedule, function_constants=constants)
    out = np.full_like(queries, np.nan)
    buffers = {0: partial, 1: sums, 2: maxima, 3: out, 4: np.int32(blocks).tobytes()}
    compiled.run("half_pass_2", buffers, heads, 1024, schedule=schedule, function_constants=constants)
    return out


@pytest.mark.parametrize("head_dim", [64, 96, 128, 256])
def test_one_pass(include, head_dim):
    compiled = library(include, head_dim)
    for length in (1, 31, 33, 300):
        for dtype, kernel, tolerance in ((np.float16, "half", 2e-3), (np.float32, "float", 2e-6)):
            arrays = inputs(head_dim, length, dtype=dtype)
            out = run_one_pass(compiled, kernel, *arrays, schedule=length % 3)
            np.testing.assert_allclose(out, attention(*arrays), atol=tolerance)


@pytest.mark.parametrize("head_dim", [64, 96, 128, 256])
def test_two_passes(include, head_dim):
    compiled = library(include, head_dim)
    for length in (1, 33, 700):
        arrays = inputs(head_dim, length)
        np.testing.assert_allclose(run_two_passes(compiled, *arrays, schedule=2), attention(*arrays), atol=3e-3)


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_sanitizers_find_nothing(include, sanitizer):
    compiled = library(include, 64, sanitizer)
    arrays = inputs(64, 40, heads=2)
    np.testing.assert_allclose(run_one_pass(compiled, "half", *arrays), attention(*arrays), atol=2e-3)
    np.testing.assert_allclose(run_two_passes(compiled, *arrays), attention(*arrays), atol=3e-3)
