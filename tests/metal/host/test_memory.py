"""Test memory that CPU and GPU share: arenas, mapped files, and the GPU's addresses."""

import ctypes
import gc
import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from octavo import OctavoError
from octavo.cpu_kernels.layout.head import HEAD
from octavo.metal import shader_library
from octavo.metal import shared_memory as shared
from octavo.metal.gpu import open_gpu
from octavo.metal.records import GpuHeads, State
from octavo.metal.shared_memory import ALIGNMENT, ARENA_BYTES, SharedMemory
from octavo.system.files import map_arrays, write_arrays
from octavo.system.mapped_file import MappedFile


@pytest.fixture
def memory(metal):
    return SharedMemory(open_gpu())


def seen_by_gpu(memory, array):
    """Copy an array's bytes from where the GPU has them."""
    address = int(memory.on_gpu(np.array([array.ctypes.data]))[0])
    assert address != array.ctypes.data
    return np.frombuffer((ctypes.c_ubyte * array.nbytes).from_address(address), np.uint8).copy()


def test_arrays_are_aligned_and_apart_and_the_gpu_sees_them(memory):
    rng = np.random.default_rng(0)
    arrays = [memory.allocate(int(n)) for n in rng.integers(1, 5000, 50)]
    contents = [rng.integers(0, 256, array.size, np.uint8) for array in arrays]
    for array, content in zip(arrays, contents, strict=True):
        assert array.ctypes.data % ALIGNMENT == 0
        array[:] = content
    for array, content in zip(arrays, contents, strict=True):
        np.testing.assert_array_equal(seen_by_gpu(memory, array), content)
    assert len(memory.buffers) == 1


def test_an_array_is_free_when_the_last_view_of_it_is_gone(memory):
    kept = memory.allocate(1000)
    array = memory.allocate(1000)
    place, view = array.ctypes.data, array[100:].view(np.uint8)[:10]
    del array
    assert memory.allocate(1000).ctypes.data != place
    del view
    assert memory.allocate(1000).ctypes.data == place
    assert kept.size == 1000


def test_an_arena_grows_with_what_is_asked_for(memory):
    large = memory.allocate(ARENA_BYTES + 1)
    small = [memory.allocate(ARENA_BYTES // 4) for _ in range(5)]
    assert len(memory.buffers) == 3
    addresses = memory.on_gpu(np.array([large.ctypes.data, *(each.ctypes.data for each in small), 0]))
    assert addresses[-1] == 0
    assert len(set(addresses.tolist())) == 7


def test_arenas_in_which_nothing_is_left_are_given_back(memory):
    before = memory.generation
    array, kept = memory.allocate(ARENA_BYTES), memory.allocate(10)
    assert len(memory.buffers) == 2
    del array
    memory.tidy()
    assert len(memory.buffers) == 1
    assert memory.generation > before + 2
    kept[:] = 7
    assert (seen_by_gpu(memory, kept) == 7).all()


def test_an_array_outlives_the_memory_it_came_from(memory):
    array = memory.allocate(4096)
    array[:] = 3
    del memory
    gc.collect()
    assert (array == 3).all()


def test_an_address_that_the_gpu_does_not_see_is_an_error(memory):
    array = memory.allocate(100)
    for address in (array.ctypes.data - mmap.PAGESIZE, array.ctypes.data + ARENA_BYTES, np.zeros(1).ctypes.data, 1):
        with pytest.raises(OctavoError, match="an address that it does not see"):
            memory.on_gpu(np.array([array.ctypes.data, address]))
    with pytest.raises(OctavoError, match="an address that it does not see"):
        SharedMemory(open_gpu()).on_gpu(np.array([8]))


def test_a_mapped_file_is_shared_without_a_copy(memory, tmp_path):
    rng = np.random.default_rng(1)
    written = {"a": rng.normal(size=(3, 5, 64)).astype(np.float16), "b": rng.integers(0, 9, 7).astype(np.int32)}
    write_arrays(tmp_path / "file", written)
    mapped = map_arrays(tmp_path / "file")
    for name, array in mapped.items():
        assert memory.share(array) is array
        np.testing.assert_array_equal(seen_by_gpu(memory, array), written[name].reshape(-1).view(np.uint8))
    assert len(memory.buffers) == 1
    memory.release()
    assert memory.buffers == []
    with pytest.raises(OctavoError):
        memory.on_gpu(np.array([mapped["a"].ctypes.data]))


def test_plain_memory_is_copied(memory):
    array = np.arange(100, dtype=np.float16).reshape(4, 25)
    copy = memory.share(array[:, 3:])
    np.testing.assert_array_equal(copy, array[:, 3:])
    np.testing.assert_array_equal(seen_by_gpu(memory, copy), copy.reshape(-1).view(np.uint8))
    assert memory.share(np.zeros((2, 0, 8), np.float16)).shape == (2, 0, 8)


@pytest.mark.parametrize(
    ("dtype", "offset", "works"), [("f2", 8, False), ("f2", 16, True), ("u1", 4, True), ("u1", 2, False)]
)
def test_arrays_that_shaders_could_not_load_are_refused(memory, tmp_path, dtype, offset, works):
    np.arange(1000, dtype=np.uint8).tofile(tmp_path / "file")
    with open(tmp_path / "file", "rb") as file:
        array = np.asarray(MappedFile(file.fileno(), 1000))[offset : offset + 64].view(dtype)
    if works:
        assert memory.share(array) is array
    else:
        with pytest.raises(OctavoError, match='index the document again, or use `device="cpu"`'):
            memory.share(array)


def test_what_metal_does_not_take_is_a_clear_error(memory, metal, monkeypatch):
    metal.max_buffer_length = ARENA_BYTES - 1
    with pytest.raises(OctavoError, match=r"Metal takes 0\.0 GiB at once on Fake M1"):
        memory.allocate(10)
    metal.max_buffer_length = 1 << 40
    monkeypatch.setattr(
        type(memory.gpu.device), "newBufferWithBytesNoCopy_length_options_deallocator_", lambda *_: None
    )
    with pytest.raises(OctavoError, match="Metal gives no buffer of 32 MiB"):
        memory.allocate(10)


STATE = np.dtype([("place", "i8"), ("n", "i8")])


def read_gpu(address, dtype, n=1):
    """Read records where the GPU has them."""
    dtype = np.dtype(dtype)
    return np.frombuffer((ctypes.c_ubyte * (n * dtype.itemsize)).from_address(int(address)), dtype)


def test_shaders_know_the_fields_of_head():
    source = (Path(shader_library.__file__).parent / "common.metal").read_text()
    fields = source.split("struct Head {")[1].split("};")[0]
    assert tuple(re.findall(r"(\w+);", fields)) == HEAD.names


def test_records_get_the_gpus_addresses(memory, monkeypatch):
    monkeypatch.setattr(shared, "ARENA_BYTES", 1 << 16)
    heads, tables = np.zeros(3, HEAD), np.zeros((3, 5), np.int64)
    methods, appending, gpu_heads = np.array([0, 4, 2]), np.array([3, 4, 1]), GpuHeads(memory, 3, 5)
    chunks = [memory.allocate(1 << 15) for _ in range(6)]
    heads["scratch"] = [chunk.ctypes.data for chunk in chunks[:3]]
    heads["select"], heads["finish"], heads["state"], heads["bytes_read"] = 1234, 99, 77, 10
    tables[0, 0], tables[2, 3] = chunks[4].ctypes.data, chunks[5].ctypes.data + 64
    heads["document_keys"], heads["n_document"] = [0, chunks[3].ctypes.data, 12345], [0, 7, 0]

    def check():
        gpu_heads.update(heads, tables, methods, appending)
        assert gpu_heads.records["select"].tolist() == [0, 4, 2]
        assert gpu_heads.records["append"].tolist() == [3, 4, 1]
        assert gpu_heads.records["state"].tolist() == [0, 0, 0]
        assert gpu_heads.records["document_keys"].tolist() == [0, memory.on_gpu(heads["document_keys"][1:2])[0], 0]
        for row, start in zip(tables, gpu_heads.records["tail_chunks"].tolist(), strict=True):
            np.testing.assert_array_equal(read_gpu(start, np.int64, 5), memory.on_gpu(row))

    check()
    tables[0, 0], tables[1, 1] = 0, chunks[3].ctypes.data
    check()
    kept = memory.allocate(1 << 20)
    del kept
    memory.tidy()  # moves nothing, but what was translated is not trusted any more
    check()
    gpu_heads.records["bytes_read"] = [1, 2, 3]
    gpu_heads.take_back(heads)
    assert heads["bytes_read"].tolist() == [1, 2, 3]
    assert heads["select"].tolist() == [1234] * 3


def test_methods_records_get_the_gpus_addresses_and_give_their_numbers_back(memory):
    heads, tables, methods = np.zeros(3, HEAD), np.zeros((3, 5), np.int64), np.arange(3)
    gpu_heads = GpuHeads(memory, 3, 5)
    array = memory.allocate(100)
    states = np.array([(array.ctypes.data, 5), (0, 6)], STATE)
    own = State(np.array([2, 0]), states, ("place",))
    empty = State(np.array([1]), np.zeros(1, np.dtype([])), ())
    gpu_heads.serve([own, empty])
    gpu_heads.update(heads, tables, methods, methods)
    first, second, third = gpu_heads.records["state"].tolist()
    assert second == 0
    assert read_gpu(third, STATE).tolist() == [(memory.on_gpu(states["place"][:1])[0], 5)]
    assert read_gpu(first, STATE).tolist() == [(0, 6)]
    (ctypes.c_int64 * 2).from_address(third)[:] = 9, 11  # as the GPU does it
    gpu_heads.take_back(heads)
    assert states.tolist() == [(array.ctypes.data, 11), (0, 6)]
