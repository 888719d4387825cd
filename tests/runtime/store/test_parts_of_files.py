"""Tokens and keys of an index are read without the rest of its files."""

from pathlib import Path

import numpy as np
import pytest
from helpers.index_builds import arrays_of

from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.runtime.document.index import IndexLayer, StreamingRows
from octavo.runtime.store.index_files import layer_path, read_keys, read_tokens, write_layer
from octavo.system import files
from octavo.system.files import DamagedError, map_arrays, write_arrays

N_HEADS, N_ROWS, HEAD_DIM = 6, 2000, 64


def layer_of(position=ANY_ORDER, streaming=None, dtype=np.float16):
    rng = np.random.default_rng(0)
    n_heads = N_HEADS - (len(streaming.heads) if streaming else 0)
    keys, values = rng.integers(0, 255, (2, n_heads, N_ROWS, HEAD_DIM)).astype(dtype)
    n_ordered = N_ROWS if position == ANY_ORDER else 0
    order = np.array([rng.permutation(N_ROWS)[:n_ordered] for _ in range(n_heads)], np.int32)
    centroids, starts = np.zeros((n_heads, 0, HEAD_DIM), np.float16), np.zeros((n_heads, 1), np.int32)
    mass = np.zeros((n_heads, N_ROWS), np.float32)
    return IndexLayer(keys, values, position, centroids, starts, centroids, starts, order, mass, streaming)


def n_read():
    """Bytes that this process has read from files so far, without those that are mapped."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


@pytest.mark.parametrize("dtype", [np.float16, np.uint8, np.uint16])
@pytest.mark.parametrize("position", [ANY_ORDER, 0, 7])
def test_the_keys_of_a_head_are_those_of_the_layer(tmp_path, position, dtype):
    layer = layer_of(position, dtype=dtype)
    write_layer(tmp_path, 3, layer)
    for head in range(N_HEADS):
        keys, order = read_keys(tmp_path, 3, head)
        assert keys.dtype == dtype
        np.testing.assert_array_equal(keys, layer.keys[head])
        np.testing.assert_array_equal(order, layer.positions(head))


def test_heads_that_streamed_have_no_place_among_the_keys(tmp_path):
    rows = np.zeros((2, 10, HEAD_DIM), np.float16)
    layer = layer_of(streaming=StreamingRows((1, 4), 4, rows, rows))
    write_layer(tmp_path, 0, layer)
    assert read_keys(tmp_path, 0, 1) is None
    assert read_keys(tmp_path, 0, 4) is None
    for place, head in enumerate((0, 2, 3, 5)):
        np.testing.assert_array_equal(read_keys(tmp_path, 0, head)[0], layer.keys[place])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system counts no bytes")
def test_the_keys_of_a_head_are_all_that_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MappedFile", None)  # the system reads more around what is mapped, and does not count it
    write_layer(tmp_path, 0, layer_of())
    before = n_read()
    keys, order = read_keys(tmp_path, 0, 2)
    assert n_read() - before < keys.nbytes + order.nbytes + 3 * 32_768
    assert layer_path(tmp_path, 0).stat().st_size > 5 * keys.nbytes


def test_the_tokens_are_those_of_the_index(index):
    tokens = read_tokens(index)
    np.testing.assert_array_equal(tokens, arrays_of(index)["document.safetensors"]["tokens"])
    assert not tokens.flags.writeable


@pytest.mark.parametrize(
    "changed",
    [
        {"keys": np.zeros((N_HEADS, N_ROWS - 1, HEAD_DIM), np.float16)},
        {"keys": np.zeros((2, N_ROWS, HEAD_DIM), np.float16)},
        {"keys": np.zeros((N_HEADS, N_ROWS), np.float16)},
        {"keys": np.zeros((), np.float16)},
        {"keys": np.zeros((N_HEADS, N_ROWS, HEAD_DIM), np.float32)},
        {"order": None},
        {"keys": None},
        {"order": np.zeros((N_HEADS, 0), np.int32), "position": np.zeros(0, np.int64)},
    ],
)
def test_keys_that_contradict_the_layer_are_damage(tmp_path, changed):
    write_layer(tmp_path, 0, layer_of())
    arrays = map_arrays(layer_path(tmp_path, 0)) | changed
    write_arrays(layer_path(tmp_path, 0), {name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(DamagedError, match="contradict"):
        read_keys(tmp_path, 0, 4)


@pytest.mark.parametrize("arrays", [{}, {"tokens": np.zeros(3, np.float32)}, {"tokens": np.zeros((2, 2), np.int32)}])
def test_tokens_of_another_kind_are_damage(tmp_path, arrays):
    write_arrays(tmp_path / "document.safetensors", arrays)
    with pytest.raises(DamagedError, match="contradict"):
        read_tokens(tmp_path)


@pytest.mark.parametrize("content", [None, b"", b"damaged", b"\xff" * 8, (2).to_bytes(8, "little") + b"{}rest"])
def test_files_that_are_missing_or_damaged_are_told(tmp_path, content):
    if content is not None:
        layer_path(tmp_path, 0).write_bytes(content)
    with pytest.raises(DamagedError, match=r"layer-000\.safetensors is"):
        read_keys(tmp_path, 0, 0)


def test_files_that_become_shorter_are_damaged(tmp_path):
    write_layer(tmp_path, 0, layer_of())
    path = layer_path(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(DamagedError, match="its header"):
        read_keys(tmp_path, 0, 0)
