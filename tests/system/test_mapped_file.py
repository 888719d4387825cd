"""Files are mapped without a descriptor, as long as an array of them lives."""

import gc
import mmap
import os
import weakref
from pathlib import Path

import numpy as np
import pytest

from octavo.system.files import DamagedError, map_arrays, write_arrays
from octavo.system.mapped_file import MappedFile, mapping_of

ARRAYS = {"keys": np.arange(6000, dtype=np.float16).reshape(3, 20, 100), "order": np.arange(7, dtype=np.int32)}


@pytest.fixture
def path(tmp_path):
    write_arrays(tmp_path / "file.safetensors", ARRAYS)
    return tmp_path / "file.safetensors"


def n_open():
    gc.collect()  # other tests may have left files to it
    return len(os.listdir("/dev/fd"))


def test_thousands_of_files_are_mapped_without_a_descriptor(path):
    before = n_open()
    mapped = [map_arrays(path) for _ in range(2000)]
    assert n_open() <= before  # what earlier tests left open may be closed meanwhile
    for arrays in mapped[::500]:
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(arrays[name], array)


def test_the_bytes_are_those_of_the_file_and_cannot_be_written(path):
    with open(path, "rb") as file:
        mapped = MappedFile(file.fileno(), os.fstat(file.fileno()).st_size)
    assert np.asarray(mapped).tobytes() == path.read_bytes()
    assert not np.asarray(mapped).flags.writeable
    assert not map_arrays(path)["keys"].flags.writeable


def test_a_mapping_outlives_its_file_and_ends_with_its_last_array(path):
    arrays = map_arrays(path)
    part = arrays.pop("keys")[1:, ::2].view(np.uint16)
    mapping = weakref.ref(mapping_of(part))
    del arrays
    path.unlink()
    gc.collect()
    np.testing.assert_array_equal(part, ARRAYS["keys"][1:, ::2].view(np.uint16))
    del part
    gc.collect()
    assert mapping() is None


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system lists no mappings")
def test_the_system_forgets_a_mapping_that_has_ended(path):
    array = map_arrays(path)["keys"]
    assert str(path) in Path("/proc/self/maps").read_text()
    del array
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_arrays_in_memory_are_in_no_mapped_file(path):
    mapped = map_arrays(path)
    assert mapping_of(ARRAYS["keys"]) is mapping_of(mapped["keys"].copy()) is None
    assert mapping_of(mapped["keys"]) is mapping_of(mapped["order"][2:]) is not None
    mapping_of(mapped["keys"]).madvise(mmap.MADV_RANDOM)
    np.testing.assert_array_equal(mapped["keys"], ARRAYS["keys"])


def test_what_the_system_does_not_map_is_an_error(path):
    with open(path, "rb") as file, pytest.raises(OSError, match="Invalid argument"):
        MappedFile(file.fileno(), 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        MappedFile(-1, 100)


@pytest.mark.parametrize("shape", [(0, 2**62), (0, 2**40, 2**40), (2**62, 0, 4), (1,) * 33, (0,) * 70])
def test_a_shape_that_no_array_has_is_damage(tmp_path, shape):
    name = ",".join(map(str, shape))
    write_arrays(tmp_path / "file", {"a": np.zeros((0, 3), np.float16)})
    content = (tmp_path / "file").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size].replace(b'"shape":[0,3]', f'"shape":[{name}]'.encode())
    (tmp_path / "file").write_bytes(len(header).to_bytes(8, "little") + header + content[8 + size :])
    with pytest.raises(DamagedError, match="its header says what cannot be"):
        map_arrays(tmp_path / "file")
