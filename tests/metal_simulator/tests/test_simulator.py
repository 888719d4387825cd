"""Test launches: positions, barriers, atomics, schedules, buffers, addresses, constants and errors."""

import struct

import numpy as np
import pytest
from metal_simulator import simulator
from metal_simulator.simulator import Address, Library, MSLError
from metal_simulator.small_kernels import HEADER, kernel, run

from octavo.cpu_kernels.numba_support import amx
from octavo.cpu_kernels.numba_support.compile import kernel as octavo_kernel
from octavo.cpu_kernels.numba_support.machine_features import HAS_AMX

simulator.require()


def test_positions():
    before = "kernel void p(device uint *out [[buffer(0)]], uint3 g [[threadgroup_position_in_grid]],\n"
    before += "uint3 t [[thread_position_in_threadgroup]], uint3 at [[thread_position_in_grid]],\n"
    before += "ushort2 size [[threads_per_threadgroup]], uint3 groups [[threadgroups_per_grid]],\n"
    before += "uint s [[simdgroup_index_in_threadgroup]], uint n [[simdgroups_per_threadgroup]],\n"
    before += (
        "uint i [[thread_index_in_threadgroup]], uint3 all [[threads_per_grid]], uint w [[threads_per_simdgroup]]) {\n"
    )
    before += "uint j = (at.z * all.y + at.y) * all.x + at.x;\n"
    before += "out[j] = g.x + 10 * t.y + 100 * s + 1000 * n + 10000 * size.y + 100000 * groups.x + 1000000 * (i / w); }"
    out = np.zeros((2, 8, 24), np.uint32)
    Library(HEADER + before).run("p", {0: out}, (3, 2, 1), (8, 4, 2), schedule=2)
    z, y, x = np.indices(out.shape)
    i = z * 32 + y % 4 * 8 + x % 8
    expected = x // 8 + 10 * (y % 4) + 100 * (i // 32) + 1000 * 2 + 10000 * 4 + 100000 * 3 + 1000000 * (i // 32)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("schedule", [0, 1, 2, 3])
def test_barriers(schedule):
    source = kernel(
        "threadgroup float tile[96]; float sum = 0;\n"
        "for (uint round = 0; round < 3; round++) { tile[i] = in[round * 96 + i];\n"
        "  threadgroup_barrier(mem_flags::mem_threadgroup); sum += tile[95 - i];\n"
        "  threadgroup_barrier(mem_flags::mem_threadgroup); }\n"
        "out[i] = sum;",
        "device const float *in [[buffer(0)]], device float *out [[buffer(1)]],",
    )
    x = np.arange(288, dtype=np.float32)
    out = run(source, x, np.zeros(96, np.float32), threads=96, schedule=schedule)
    np.testing.assert_array_equal(out, x.reshape(3, 96)[:, ::-1].sum(axis=0))


@pytest.mark.parametrize("schedule", [0, 1, 2])
def test_simdgroup_barrier(schedule):
    source = kernel(
        "threadgroup float tile[64]; tile[i] = in[i]; simdgroup_barrier(mem_flags::mem_threadgroup);\n"
        "out[i] = tile[i ^ 31];",
        "device const float *in [[buffer(0)]], device float *out [[buffer(1)]],",
    )
    x = np.arange(64, dtype=np.float32)
    out = run(source, x, np.zeros(64, np.float32), threads=64, schedule=schedule)
    np.testing.assert_array_equal(out, x[np.arange(64) ^ 31])


ATOMICS = {
    "fetch_add": np.sum,
    "fetch_max": np.max,
    "fetch_or": np.bitwise_or.reduce,
    "fetch_xor": np.bitwise_xor.reduce,
}


@pytest.mark.parametrize("kind", ["int", "uint"])
@pytest.mark.parametrize("name", ATOMICS)
def test_atomics(name, kind):
    source = kernel(
        f"threadgroup atomic_{kind} shared; if (i == 0) atomic_store_explicit(&shared, 0, memory_order_relaxed);\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        f"atomic_{name}_explicit(&shared, in[i], memory_order_relaxed);\n"
        f"atomic_{name}_explicit(out, in[i], memory_order_relaxed);\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "if (i == 0) atomic_store_explicit(out + 1, atomic_load_explicit(&shared, memory_order_relaxed),"
        " memory_order_relaxed);",
        f"device const {kind} *in [[buffer(0)]], device atomic_{kind} *out [[buffer(1)]],",
    )
    x = np.random.default_rng(6).integers(1, 1 << 20, 64).astype(np.int32 if kind == "int" else np.uint32)
    out = run(source, x, np.zeros(2, x.dtype), threads=64, schedule=2)
    assert out.tolist() == [ATOMICS[name](x)] * 2


def test_atomic_exchange_min_and_float():
    source = kernel(
        "atomic_fetch_min_explicit(least, int(i) - 7, memory_order_relaxed);\n"
        "uint before = atomic_exchange_explicit(ticket, i + 1, memory_order_relaxed);\n"
        "atomic_fetch_add_explicit(total, float(before), memory_order_relaxed);",
        "device atomic_int *least [[buffer(0)]], device atomic_uint *ticket [[buffer(1)]],\n"
        "device atomic_float *total [[buffer(2)]],",
    )
    least, ticket, total = np.zeros(1, np.int32), np.zeros(1, np.uint32), np.zeros(1, np.float32)
    run(source, least, ticket, total, threads=32, schedule=1)
    assert (least[0], ticket[0], total[0]) == (-7, 1, sum(range(2, 33)))


def test_schedules_differ_in_order():
    source = kernel(
        "uint n = atomic_fetch_add_explicit(ticket, 1u, memory_order_relaxed); order[n] = group.x * 64 + i;",
        "device atomic_uint *ticket [[buffer(0)]], device uint *order [[buffer(1)]],\n"
        "uint3 group [[threadgroup_position_in_grid]],",
    )
    orders = []
    for schedule in range(4):
        order = run(source, np.zeros(1, np.uint32), np.zeros(256, np.uint32), threads=64, groups=4, schedule=schedule)
        orders.append(order.tolist())
    assert orders[0] == list(range(256))
    assert orders[1] == list(range(255, -1, -1))
    assert sorted(orders[2]) == sorted(orders[3]) == orders[0]
    assert len({tuple(order) for order in orders}) == 4


SPANS = kernel(
    "float sum = 0; for (uint j = 0; j < spans[i].count; j++) sum += spans[i].keys[j]; out[i] = sum;\n"
    "spans[i].count = 0;",
    "device Span *spans [[buffer(0)]], device float *out [[buffer(1)]],",
    "struct Span { device const uchar *keys; uint count; };",
)


@pytest.mark.parametrize("sanitizer", [None, "address", "thread"])
def test_addresses_in_buffers(sanitizer):
    spans = np.zeros(2, np.dtype([("keys", np.uint64), ("count", np.uint32), ("padding", np.uint32)]))
    spans["keys"], spans["count"] = 7, (3, 2)
    keys, out = np.arange(8, dtype=np.uint8), np.zeros(2, np.float32)
    addresses = [Address(0, 0, 100), (0, 16, 100, 5)]
    Library(SPANS, sanitizer=sanitizer).run("k", {0: spans, 1: out, 100: keys}, 1, 2, addresses=addresses)
    assert out.tolist() == [3, 11]
    assert spans["count"].tolist() == [0, 0]
    assert spans["keys"].tolist() == [7, 7]  # unchanged


def test_an_address_outside_its_buffer_is_refused():
    spans, out = np.zeros(32, np.uint8), np.zeros(2, np.float32)
    for address in ((0, 28, 1, 0), (0, 0, 1, 9), (0, 0, 5, 0)):
        with pytest.raises(MSLError, match="is not in buffer"):
            Library(SPANS).run("k", {0: spans, 1: out}, 1, 2, addresses=[address])


CONSTANTS = kernel(
    "out[0] = causal ? factor * rows : -1; out[1] = is_function_constant_defined(extra) ? extra : 5;\n"
    "if (causal) out[2] = mask[0];",
    "device float *out [[buffer(0)]], device const float *mask [[buffer(1), function_constant(causal)]],",
    "constant bool causal [[function_constant(0)]];\nconstant float factor [[function_constant(1)]];\n"
    "constant uint rows [[function_constant(4)]];\nconstant int extra [[function_constant(5)]];",
)


@pytest.mark.parametrize("sanitizer", [None, "address"])
def test_function_constants(sanitizer):
    library = Library(CONSTANTS, sanitizer=sanitizer)
    out, mask = np.zeros(3, np.float32), np.array([9], np.float32)
    library.run("k", {0: out, 1: mask}, 1, 1, function_constants={0: True, "factor": 1.5, "rows": 4})
    assert out.tolist() == [6, 5, 9]
    library.run("k", {0: out}, 1, 1, function_constants={0: False, 1: 1.5, 4: 4, "extra": -2})
    assert out.tolist() == [-1, -2, 9]


def test_function_constants_that_are_missing_or_unknown():
    library = Library(CONSTANTS)
    out = np.zeros(3, np.float32)
    with pytest.raises(MSLError, match=r"function constant rows \(4\) has no value"):
        library.run("k", {0: out}, 1, 1, function_constants={0: False, 1: 1})
    with pytest.raises(MSLError, match="there is no function constant 9"):
        library.run("k", {0: out}, 1, 1, function_constants={9: 1})
    with pytest.raises(MSLError, match=r"needs buffer\(1\), mask"):
        library.run("k", {0: out}, 1, 1, function_constants={0: True, 1: 1, 4: 1})


def test_instances_of_templates():
    source = (
        f"{HEADER}template <typename T, int N> [[kernel]] void fill(device T *out [[buffer(0)]],\n"
        "uint i [[thread_position_in_grid]]) { threadgroup T tile[N]; tile[i] = T(i + N); out[i] = tile[i]; }\n"
        "#define INSTANCE(name, ...) template [[host_name(name)]] [[kernel]] decltype(fill<__VA_ARGS__>) "
        'fill<__VA_ARGS__>;\nINSTANCE("fill_half", half, 4)\nINSTANCE("fill_float", float, 8)\n'
    )
    library = Library(source)
    assert library.kernels == ["fill_half", "fill_float"]
    half, single = np.zeros(4, np.float16), np.zeros(8, np.float32)
    library.run("fill_half", {0: half}, 1, 4)
    library.run("fill_float", {0: single}, 1, 8)
    assert half.tolist() == [4, 5, 6, 7]
    assert single.tolist() == list(range(8, 16))


def test_threadgroup_parameters():
    source = kernel(
        "tile[i] = float(i); threadgroup_barrier(mem_flags::mem_threadgroup); out[i] = tile[31 - i];",
        "device float *out [[buffer(0)]], threadgroup float *tile [[threadgroup(1)]],",
    )
    out = np.zeros(32, np.float32)
    Library(source).run("k", {0: out}, 1, 32, threadgroup_memory={1: 128})
    assert out.tolist() == list(range(31, -1, -1))
    with pytest.raises(MSLError, match="33000 bytes, more than 32768"):
        Library(source).run("k", {0: out}, 1, 32, threadgroup_memory={1: 33000})
    with pytest.raises(MSLError, match="has threadgroup parameters"):
        Library(source).run("k", {0: out}, 1, 32)


def test_bytes_are_constants_and_arrays_results():
    source = kernel("out[0] = n + m[0];", "constant uint &n [[buffer(0)]], device const uint *m [[buffer(1)]],\n"
                    "device uint *out [[buffer(2)]],")  # fmt: skip
    out = np.zeros(1, np.uint32)
    Library(source).run("k", {0: struct.pack("I", 40), 1: np.array([2], np.uint32), 2: out}, 1, 1)
    assert out[0] == 42
    with pytest.raises(MSLError, match=r"buffer\(0\) of kernel k has 2 bytes, not 4"):
        Library(source).run("k", {0: b"xx", 1: out, 2: out.copy()}, 1, 1)


def test_limits_of_a_launch():
    source = f"{HEADER}[[kernel, max_total_threads_per_threadgroup(64)]] void k(device float *out [[buffer(0)]]) {{}}"
    out = np.zeros(1, np.float32)
    with pytest.raises(MSLError, match="1 to 64 threads"):
        Library(source).run("k", {0: out}, 1, 65)
    with pytest.raises(MSLError, match="1 to 1024 threads"):
        Library(kernel("")).run("k", {}, 1, (32, 33))
    with pytest.raises(MSLError, match="there is no kernel q, only k"):
        Library(kernel("")).run("q", {}, 1, 1)
    with pytest.raises(MSLError, match="is not contiguous"):
        Library(source).run("k", {0: np.zeros((4, 4), np.float32)[:, 1]}, 1, 1)


def test_a_kernel_that_does_not_end_is_stopped():
    source = kernel("while (flag[0] == 0) {} flag[0] = 2;", "volatile device uint *flag [[buffer(0)]],")
    for sanitizer in (None, "address"):
        with pytest.raises(MSLError, match="does not end"):
            Library(source, sanitizer=sanitizer).run("k", {0: np.zeros(1, np.uint32)}, 1, 1, timeout=1)


def test_a_kernel_that_crashes_leaves_the_process_alive():
    source = kernel("out[1ul << 40] = 1;", "device float *out [[buffer(0)]],")
    out = np.zeros(1, np.float32)
    with pytest.raises(MSLError, match="the kernel stopped: Segmentation fault"):
        Library(source).run("k", {0: out}, 1, 1)
    assert run(kernel("out[0] = 3;", "device float *out [[buffer(0)]],"), out)[0] == 3


@octavo_kernel
def leave_tiles(saved):
    """Configure the tiles of this thread as they were."""
    amx.leave_tiles(saved)


@octavo_kernel
def configure_tiles(saved):
    """Configure the tiles of this thread, and save what they were configured as."""
    amx.enter_tiles(saved)


@pytest.mark.skipif(not HAS_AMX, reason="this CPU has no AMX")
def test_a_kernel_that_crashes_leaves_the_tiles_of_amx_as_they_were():
    """Check what llama.cpp needs: it configures the tiles of a thread once, for as long as the thread lives."""
    before, after = np.zeros((2, amx.CONFIGURATION_BYTES), np.uint8)
    configure_tiles(before.ctypes.data)
    with pytest.raises(MSLError, match="the kernel stopped"):
        Library(kernel("out[1ul << 40] = 1;", "device float *out [[buffer(0)]],")).run(
            "k", {0: np.zeros(1, np.float32)}, 1, 1
        )
    configure_tiles(after.ctypes.data)
    assert after.any(), "the tiles are not configured any more"
    leave_tiles(before.ctypes.data)


def test_require(monkeypatch):
    monkeypatch.setattr(simulator, "missing", lambda: "there is no clang")
    monkeypatch.delenv("OCTAVO_REQUIRE_METAL_SIM", raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is no clang"):
        simulator.require()
    monkeypatch.setenv("OCTAVO_REQUIRE_METAL_SIM", "1")
    with pytest.raises(pytest.fail.Exception, match="there is no clang"):
        simulator.require()
