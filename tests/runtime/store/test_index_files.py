"""The rules of runtime/store/index_files.py, and indexes that cannot be opened."""

import json
import os
from dataclasses import fields

import numpy as np
import pytest
from blake3 import blake3
from helpers.index_builds import NAME, SETTINGS, TEXT, arrays_of, build, library_of
from safetensors.numpy import load_file, save

import octavo
from octavo import OctavoError
from octavo.convert.identity import identity
from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.documents.document import hash_text
from octavo.runtime.document.index import Calibration, IndexLayer
from octavo.runtime.document.thresholds import measured_curve
from octavo.runtime.store import index_files
from octavo.runtime.store import manifest as manifests
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.manifest import MANIFEST, read_manifest, save_manifest
from octavo.system import files
from octavo.system.files import DamagedError, checksum_of, sha256_of, write_json

# The rules of index_files.py.


def test_rule_1_an_index_is_a_folder_of_a_manifest_a_document_and_layers(index):
    layers = {f"layer-00{i}.safetensors" for i in range(3)}
    others = {"manifest.json", "document.safetensors", "means.safetensors"}
    assert {file.name for file in index.iterdir()} == others | layers
    for name, arrays in arrays_of(index).items():  # and they are safetensors to others too
        expected = {kind: array for kind, array in load_file(index / name).items() if not kind.startswith("padding.")}
        assert arrays.keys() == expected.keys()
        for kind, array in expected.items():
            assert arrays[kind].dtype == array.dtype
            np.testing.assert_array_equal(arrays[kind], array)


def test_rule_2_it_is_written_under_another_name_synced_and_renamed(llama, tmp_path, monkeypatch):
    """Each file's content reaches the disk before its name, and all files before the folder's."""
    path = library_of(llama, tmp_path).index_path(NAME, hash_text(TEXT), identity(llama, SETTINGS))
    partial = path.with_name(path.name + ".partial")
    events = []
    fsync, replace, rename = os.fsync, os.replace, type(path).rename

    def note_sync(descriptor):
        events.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def note_replace(source, target):
        assert not path.exists()
        events.append(("rename", str(source), str(target)))
        replace(source, target)

    def note_rename(source, target):
        events.append(("rename", str(source), str(target)))
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    monkeypatch.setattr(type(path), "rename", note_rename)
    build(llama, tmp_path)
    for name in (file.name for file in path.iterdir()):
        [renamed] = [event for event in events if event[2:] == (str(partial / name),)]
        assert renamed[1].startswith(str(partial / f"{name}."))
        assert renamed[1].endswith(".tmp")
        assert events.index(("sync", renamed[1])) < events.index(renamed)
    named = events.index(("rename", str(partial), str(path)))
    assert events[named - 1] == ("sync", str(partial))
    assert events[named + 1 :] == [("sync", str(path.parent))]


def test_rule_3_the_manifest_names_what_the_index_depends_on(llama, index, tokens):
    manifest = json.loads((index / MANIFEST).read_text())
    assert manifest["format_version"] == 4
    assert manifest["model"] == {"name": "tiny.gguf", "sha256": sha256_of(llama.model_path)}
    assert manifest["document"] == {"name": NAME, "sha256": hash_text(TEXT), "tokens": len(tokens)}
    assert manifest["clustering"] == SETTINGS.as_json()
    assert manifest["clustering"]["seed"] == 0
    assert manifest["dtype"] == "f16"
    assert manifest["rope"] == [llama.context_params.rope_freq_base, llama.context_params.rope_freq_scale]
    assert manifest["octavo"] == octavo.__version__
    arrays = {file.name for file in index.glob("*.safetensors")}
    assert manifest["files"].keys() == arrays
    for name in arrays:
        with open(index / name, "rb") as file:
            content = file.read()
        checksum = blake3(content[:35] + content[99:]).hexdigest()
        assert content[8:35] == b'{"__metadata__":{"blake3":"'
        assert content[35:99].decode() == checksum
        assert manifest["files"][name] == {"size": len(content), "blake3": checksum}
    others = {name: value for name, value in manifest.items() if name != "blake3"}
    assert manifest["blake3"] == blake3(json.dumps(others, sort_keys=True).encode()).hexdigest()


def test_rule_9_means_are_computed_where_an_index_has_none(llama, copied_index):
    with_file, _ = open_index(copied_index, sha256_of(llama.model_path))
    manifest = read_manifest(copied_index)
    del manifest["files"][index_files.MEANS]
    (copied_index / index_files.MEANS).unlink()
    save_manifest(copied_index, manifest)
    without, _ = open_index(copied_index, sha256_of(llama.model_path))
    for layer, other in zip(with_file.layers, without.layers, strict=True):
        assert (layer.known_means is None) == (layer.n_clusters == 0)
        assert other.known_means is None
        for array, again in zip(layer.means, other.means, strict=True):
            np.testing.assert_array_equal(array, again)


def test_rule_10_arrays_begin_at_multiples_of_64(tmp_path):
    path, rng = tmp_path / "arrays.safetensors", np.random.default_rng(0)
    shapes = [(3,), (2, 0), (5, 7), (64,), (1, 1, 1)]
    kinds = [np.float16, np.uint8, np.int32, np.int64, np.float32, np.float64]
    written = {
        f"{np.dtype(kind)}.{i}": rng.integers(0, 9, s).astype(kind) for kind in kinds for i, s in enumerate(shapes)
    }
    files.write_arrays(path, written)
    read = files.map_arrays(path)
    assert read.keys() == written.keys()
    for name, array in written.items():
        np.testing.assert_array_equal(read[name], array, strict=True)
        assert array.size == 0 or read[name].ctypes.data % 64 == 0
    assert load_file(path).keys() > written.keys()  # the gaps are filled, as the format wants it


def flip_a_byte(file, keep_time):
    status = file.stat()
    with open(file, "r+b") as stream:
        stream.seek(status.st_size // 2)
        byte = stream.read(1)[0]
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte ^ 1]))
    later = 0 if keep_time else 1_000_000
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + later))


@pytest.mark.parametrize("keep_time", [True, False], ids=["same time", "other time"])
@pytest.mark.parametrize("name", ["document.safetensors", "layer-000.safetensors", "layer-002.safetensors"])
def test_rule_4_a_file_that_has_changed_is_refused(copied_index, model_hash, name, keep_time):
    open_index(copied_index, model_hash)  # compares all files
    flip_a_byte(copied_index / name, keep_time)
    with pytest.raises(DamagedError, match=f"{name} of the index .* has changed since it was written"):
        open_index(copied_index, model_hash)


def test_rule_4_a_file_of_another_size_is_refused(copied_index, model_hash):
    file = copied_index / "layer-001.safetensors"
    status = file.stat()
    with open(file, "ab") as stream:
        stream.write(b"\0")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(OctavoError, match=r"layer-001\.safetensors .* has another size"):
        open_index(copied_index, model_hash)


@pytest.fixture
def compared(monkeypatch):
    """The names of the files that were compared with their checksums."""
    names = []
    monkeypatch.setattr(manifests, "checksum_of", lambda path: names.append(path.name) or checksum_of(path))
    return names


def test_rule_4_files_are_compared_with_their_checksums_once(copied_index, model_hash, compared):
    open_index(copied_index, model_hash)
    assert set(compared) == read_manifest(copied_index)["files"].keys()
    compared.clear()
    open_index(copied_index, model_hash)
    assert compared == []
    os.utime(copied_index / "layer-001.safetensors")
    open_index(copied_index, model_hash)
    assert compared == ["layer-001.safetensors"]


def test_rule_4_files_are_compared_once_more_after_the_machine_has_started_again(
    copied_index, model_hash, compared, monkeypatch
):
    import psutil

    start = psutil.boot_time()
    n_files = len(read_manifest(copied_index)["files"])
    for later, n_compared in [(0, n_files), (0, 0), (10**9, n_files), (2 * 10**9, 0)]:
        monkeypatch.setattr(psutil, "boot_time", lambda later=later: start + later)
        compared.clear()
        open_index(copied_index, model_hash)
        assert len(compared) == n_compared


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"layer-000.safetensors": [1, 2, 3, 4, "a"]}'])
def test_rule_4_marks_that_are_damaged_say_nothing(copied_index, model_hash, compared, content):
    (copied_index / "checked.json").write_bytes(content)
    open_index(copied_index, model_hash)
    assert len(compared) == len(read_manifest(copied_index)["files"])


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir])
def test_rule_4_links_and_pipes_are_refused(copied_index, model_hash, make):
    (copied_index / "layer-001.safetensors").unlink()
    make(copied_index / "layer-001.safetensors")
    with pytest.raises(DamagedError, match=r"layer-001\.safetensors of the index .* is not a plain file"):
        open_index(copied_index, model_hash)


@pytest.mark.parametrize(
    "name", ["../layer-000.safetensors", "/etc/passwd", "other.safetensors", "layer-000.safetensors/"]
)
def test_rule_4_names_of_other_files_are_refused(copied_index, model_hash, name):
    manifest = read_manifest(copied_index)
    manifest["files"][name] = manifest["files"]["layer-000.safetensors"]
    save_manifest(copied_index, manifest)
    with pytest.raises(DamagedError, match="an entry is missing, or is what it cannot be"):
        open_index(copied_index, model_hash)


def test_rule_4_an_index_from_before_has_other_checksums(copied_index, model_hash, compared):
    """Whole files by SHA-256, and nothing about the manifest itself."""
    manifest = read_manifest(copied_index)
    for file in copied_index.glob("*.safetensors"):
        arrays = {name: array.copy() for name, array in files.map_arrays(file).items()}
        file.write_bytes(save(arrays))
        own = {"size": file.stat().st_size, "mtime_ns": file.stat().st_mtime_ns, "sha256": sha256_of(file)}
        manifest["files"][file.name] = own
    del manifest["blake3"]
    write_json(copied_index / MANIFEST, manifest)
    document, _ = open_index(copied_index, model_hash)
    assert len(document.layers) == 3
    flip_a_byte(copied_index / "layer-001.safetensors", keep_time=False)
    with pytest.raises(DamagedError, match=r"layer-001\.safetensors of the index .* has changed"):
        open_index(copied_index, model_hash)


def test_rule_8_thresholds_that_are_damaged_are_measured_again(copied_index, model_hash):
    document, _ = open_index(copied_index, model_hash)
    expected = measured_curve(document, Calibration())
    flip_a_byte(copied_index / f"thresholds-{Calibration()}.safetensors", keep_time=True)
    document, _ = open_index(copied_index, model_hash)
    assert document.curves == {}
    np.testing.assert_array_equal(measured_curve(document, Calibration()).thresholds, expected.thresholds)
    assert open_index(copied_index, model_hash, thorough=True)[0].curves.keys() == {Calibration()}


def test_rule_5_a_layers_file_holds_its_arrays_sorted_by_cluster_and_coarse_cluster(index, tokens):
    for i in range(3):
        arrays = arrays_of(index)[f"layer-00{i}.safetensors"]
        assert arrays["position"].tolist() == [ANY_ORDER]
        others = {"mass", "streaming", "known_means", "split"}
        assert {field.name for field in fields(IndexLayer)} == arrays.keys() | others
        assert arrays["order"].shape == (2, len(tokens))
        for starts, coarse_starts in zip(arrays["cluster_starts"], arrays["coarse_starts"], strict=True):
            assert (starts[0], starts[-1]) == (0, SETTINGS.n_clustered(len(tokens)))
            assert (coarse_starts[0], coarse_starts[-1]) == (0, len(starts) - 1)
            assert (np.diff(coarse_starts) >= 0).all()
    assert arrays["coarse_centroids"].shape == (2, SETTINGS.n_coarse(len(tokens)), 64)


def test_rule_6_the_documents_file_holds_what_was_measured(index, model_hash, tokens):
    arrays = arrays_of(index)["document.safetensors"]
    document, _ = open_index(index, model_hash)
    masses, queries = ([f"{name}.{i}" for i in range(3)] for name in ("mass", "queries"))
    assert arrays.keys() == {"tokens", "query_layers", "query_softcaps", *masses, *queries}
    for i, layer in enumerate(document.layers):
        assert layer.mass.dtype == np.float32
        np.testing.assert_array_equal(layer.mass, arrays[f"mass.{i}"])
    for i, each in enumerate(document.queries):
        assert (each.layer, each.softcap) == (arrays["query_layers"][i], arrays["query_softcaps"][i]) == (i, 0)
        assert each.queries.dtype == np.float16
        assert each.queries.shape == (2, SETTINGS.exact_last // 2, 2, 64)
        np.testing.assert_array_equal(each.queries, arrays[f"queries.{i}"])


def test_rule_8_thresholds_are_kept_when_they_were_asked_for(copied_index, model_hash):
    for how in (Calibration(), Calibration("global", "each", "group", 2)):
        document, _ = open_index(copied_index, model_hash)
        assert how not in document.curves
        measured = measured_curve(document, how)
        again, _ = open_index(copied_index, model_hash, thorough=True)
        arrays = arrays_of(copied_index)[f"thresholds-{how}.safetensors"]
        for name, array in vars(measured).items():
            np.testing.assert_array_equal(getattr(again.curves[how], name), array)
            assert (name in arrays) == (array is not None)
    assert len(again.curves) == 2, "the first ones are still there"


def test_rule_8_thresholds_that_cannot_be_kept_are_measured_each_time(copied_index, model_hash, monkeypatch):
    def refused(*arguments):
        raise OctavoError("The disk is full.")

    monkeypatch.setattr(index_files, "write_arrays", refused)
    for _ in range(2):
        document, _ = open_index(copied_index, model_hash)
        assert document.curves == {}
        assert measured_curve(document, Calibration()) is document.curves[Calibration()]


# Indexes that cannot be opened.


def test_a_missing_file_is_told(copied_index, model_hash):
    (copied_index / "layer-002.safetensors").unlink()
    with pytest.raises(OctavoError, match=r"layer-002\.safetensors of the index .* is missing"):
        open_index(copied_index, model_hash)


def test_the_index_of_another_model_is_refused(index):
    with pytest.raises(OctavoError, match=r"was made with another model \(tiny\.gguf\): index the document again"):
        open_index(index, "0" * 64)


def test_an_index_of_another_format_is_refused(copied_index, model_hash):
    save_manifest(copied_index, read_manifest(copied_index) | {"format_version": 1})
    with pytest.raises(OctavoError, match="has format 1, and this octavo reads 4: index the document again"):
        open_index(copied_index, model_hash)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"{}", b'{"format_version": 4}'])
def test_a_manifest_that_is_damaged_is_told(copied_index, model_hash, content):
    (copied_index / MANIFEST).write_bytes(content)
    with pytest.raises(DamagedError, match=r"manifest\.json (is damaged|has changed)"):
        open_index(copied_index, model_hash)


def test_a_folder_that_is_no_index_is_told(tmp_path, model_hash):
    with pytest.raises(OctavoError, match=r"is not an octavo index: it has no manifest\.json"):
        open_index(tmp_path, model_hash)
