"""Files that others change: models, templates, plans, manifests, and every byte of an index."""

import json
import os
import random
import shutil

import numpy as np
import pytest
from helpers import tiny_models
from helpers.index_builds import QUESTION, attach_document, build, library_of, new_llama, text_of
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import octavo
from octavo import OctavoError
from octavo.convert.clusters import ClusterSettings
from octavo.progress import Silent
from octavo.runtime.store import index_files, manifest
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.manifest import MANIFEST, read_manifest, save_manifest
from octavo.runtime.store.plan import Plan, read_plan
from octavo.system.files import checksum_of

pytestmark = pytest.mark.sampled

REFUSED, SAME, LOADED, CRASHED = "a sentence", "the same result", "loaded", "a crash or a traceback"

#: Clusters in so short a text that every byte of its index can be tried.
SMALL = ClusterSettings(shortest=48, exact_last=16, centroid_share=0.2, coarse_share=0.05)


@pytest.fixture(scope="module")
def small(llama, tmp_path_factory):
    """The smallest index that has everything, and what the model says after it."""
    path = build(llama, tmp_path_factory.mktemp("small"), text_of(70), settings=SMALL)
    llama.attach(open_index(path, library_of(llama, path.parent.parent).model_hash)[0])
    llama.eval(QUESTION)
    return path, llama.logits()


def outcome_of(path, llama, model_hash, expected):
    """Open an index and compute with it, if that is not refused."""
    try:
        document, _ = open_index(path, model_hash)
        llama.attach(document)
    except OctavoError:
        return REFUSED
    llama.eval(QUESTION)
    return SAME if np.array_equal(llama.logits(), expected) else "another result"


@pytest.mark.parametrize("keep_time", [True, False], ids=["same time", "other time"])
def test_every_byte_of_an_index(llama, small, tmp_path, amount, tally, keep_time, monkeypatch):
    """Each is flipped after the index was opened once, so that files are only compared again if they look changed."""
    path, expected = shutil.copytree(small[0], tmp_path / "index"), small[1]
    model_hash = library_of(llama, tmp_path).model_hash
    open_index(path, model_hash)
    of_kind = f"a byte of an index flipped, {'time kept' if keep_time else 'time changed'}"
    rng, outcomes = random.Random(0), set()
    for file in sorted(path.iterdir()):
        size, status = file.stat().st_size, file.stat()
        places = range(size) if amount(True, False) else rng.sample(range(size), 12)
        with open(file, "r+b", buffering=0) as stream:
            for place in places:
                byte = os.pread(stream.fileno(), 1, place)[0]
                os.pwrite(stream.fileno(), bytes([byte ^ 1 << place % 8]), place)
                if keep_time:
                    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
                outcomes.add(outcome := outcome_of(path, llama, model_hash, expected))
                tally(of_kind, outcome)
                os.pwrite(stream.fileno(), bytes([byte]), place)
    assert outcomes <= {REFUSED, SAME}  # the same: of what says nothing, such as the marks of comparisons


def test_numbers_that_lie_with_right_checksums(llama, small, tmp_path, amount, tally, monkeypatch):
    """As of a file that somebody made: nothing crashes. What an answer is then, no checksum can say."""
    monkeypatch.setattr(manifest, "_check_file", lambda *arguments: [])
    path = small[0]
    rng = random.Random(1)
    model_hash = library_of(llama, path.parent.parent).model_hash
    for number in range(amount(5000, 40)):
        copy = tmp_path / str(number)
        shutil.copytree(path, copy)
        file = rng.choice(sorted(copy.glob("*.safetensors")))
        content = bytearray(file.read_bytes())
        header = int.from_bytes(content[:8], "little")
        end = 8 + header if rng.random() < 0.4 else len(content)
        for _ in range(rng.choice([1, 1, 1, 4])):
            content[rng.randrange(end)] = rng.randrange(256)
        file.write_bytes(content)
        outcome = outcome_of(copy, llama, model_hash, small[1])
        tally("a byte of an index forged", "used" if "result" in outcome else outcome)
        shutil.rmtree(copy)


def test_bounds_that_lie_with_right_checksums(llama, small, tmp_path, tally):
    """Of every array that says where others are, with values that a kernel would follow out of memory."""
    path, model_hash = small[0], library_of(llama, small[0].parent.parent).model_hash
    for name in ("cluster_starts", "coarse_starts", "order", "position", "streaming"):
        for value in (-2, 1 << 30, -(1 << 31)):
            copy = shutil.copytree(path, tmp_path / f"{name}{value}")
            file = copy / "layer-001.safetensors"
            arrays = {kind: np.array(array) for kind, array in index_files.map_arrays(file).items()}
            changed = arrays.setdefault(name, np.zeros(1, np.int32))
            changed.reshape(-1)[-1] = value
            index_files.write_arrays(file, arrays)
            described = read_manifest(copy)
            described["files"][file.name] = manifest.describe(file)
            save_manifest(copy, described)
            assert checksum_of(file) == described["files"][file.name]["blake3"]
            outcome = outcome_of(copy, llama, model_hash, small[1])
            tally("bounds in an index forged, with right checksums", outcome)
            assert outcome == REFUSED


@pytest.mark.parametrize("damage", ["cut", "swapped", "gone", "linked", "emptied", "a folder"])
def test_files_that_are_cut_swapped_and_linked_heal(llama, small, tmp_path, tally, damage):
    text = text_of(1500)
    document, library = tmp_path / "document.txt", library_of(llama, tmp_path)
    document.write_text(text)
    notices = []

    def ask():
        attach_document(llama, library, document, Silent(), notices.append, prefill="dense")
        llama.eval(QUESTION)
        return llama.logits()

    expected = ask()
    [(path, described)] = library.indexes()
    for name in [*described["files"], MANIFEST]:
        file, other = path / name, path / "layer-000.safetensors"
        if damage == "cut":
            os.truncate(file, file.stat().st_size * 2 // 3)
        elif damage == "emptied":
            os.truncate(file, 0)
        elif damage == "swapped":
            shutil.copy(small[0] / name if (small[0] / name).exists() else other, file)
        else:
            file.unlink()
            if damage == "linked":
                file.symlink_to(other if file != other else path / MANIFEST)
            elif damage == "a folder":
                file.mkdir()
        np.testing.assert_array_equal(ask(), expected)
        tally(f"a file of an index {damage}", "healed, " + SAME)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def mutated(draw, value):
    """A JSON value with one thing inside it changed."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 5)) == 0:
            return {key: each for key, each in value.items() if key != name}
        return value | {name: mutated(draw, value[name])}
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], mutated(draw, value[place]), *value[place + 1 :]]
    if isinstance(value, int) and draw(st.booleans()):
        return draw(st.sampled_from([-1, 0, 1, 1 << 31, 1 << 70, -(1 << 63), 1.5, float("nan"), float("inf"), True]))
    return draw(JSON)


PLAN = {
    "format_version": 3,
    "model": {"name": "tiny", "sha256": "0" * 64},
    "attention": "duo+squeezed",
    "retrieval_heads": 0.5,
    "layers": {"budget_scale": {"squeezed": [1.5, 0.5, 1.0]}, "group": [0, None, 1]},
    "heads": {"n_sinks": 8, "n_recent": 32, "elimination": [[0, 0], [0, 1], [2, 1]]},
}


def test_plans(tmp_path, amount, tally):
    path = tmp_path / "plan.json"

    @seed(0)
    @settings(max_examples=amount(1000, 100), deadline=None, database=None)
    @given(st.data())
    def check(data):
        path.write_text(json.dumps(mutated(data.draw, PLAN)))
        try:
            plan = read_plan(path)
        except OctavoError:
            tally("a plan mutated", REFUSED)
            return
        assert isinstance(plan, Plan)
        assert all(np.isfinite(scale).all() for scale in plan.layer_scale.values())
        tally("a plan mutated", LOADED)

    check()


def test_manifests(llama, small, tmp_path, amount, tally):
    path = shutil.copytree(small[0], tmp_path / "index")
    model_hash, whole = library_of(llama, tmp_path).model_hash, read_manifest(path)

    @seed(0)
    @settings(max_examples=amount(1000, 60), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data):
        changed = mutated(data.draw, whole)
        if isinstance(changed, dict):
            save_manifest(path, changed)  # with the checksum that goes with it
        else:
            (path / MANIFEST).write_text(json.dumps(changed))
        outcome = outcome_of(path, llama, model_hash, small[1])
        assert outcome in (REFUSED, SAME)
        tally("a manifest mutated, with a right checksum", outcome)
        library_of(llama, tmp_path).indexes()

    check()


def mutated_header(content, rng):
    """A GGUF file with something in its header changed."""
    content = bytearray(content)
    kind, header = rng.randrange(5), 4000
    if kind == 0:
        content[rng.randrange(header)] ^= 1 << rng.randrange(8)
    elif kind == 1:
        for _ in range(8):
            content[rng.randrange(header)] = rng.randrange(256)
    elif kind == 2:  # a length or a count
        place = rng.randrange(header)
        number = rng.choice([0, 1, 255, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
        content[place : place + 8] = number.to_bytes(8, "little")
    elif kind == 3:  # a piece from elsewhere
        source, target, length = (rng.randrange(header) for _ in range(3))
        content[target : target + length % 64] = content[source : source + length % 64]
    else:
        del content[rng.randrange(len(content)) :]
    return bytes(content)


def test_headers_of_models(tiny_model, tmp_path, amount, tally, loads_apart, monkeypatch):
    """Each model that passes our check is loaded in the process for it, and then in this one."""
    from octavo.runtime.models import model_file

    monkeypatch.setattr(model_file, "load_apart", loads_apart)
    content, rng, path = tiny_model.read_bytes(), random.Random(2), tmp_path / "model.gguf"
    for _ in range(amount(1000, 12)):
        path.write_bytes(mutated_header(content, rng))
        try:
            octavo.Llama(path, n_ctx=64, n_batch=32).eval([1, 2, 3])
        except OctavoError as problem:
            aborted = "SIG" in str(problem)
            outcome = "a sentence, after llama.cpp aborted in a process of its own" if aborted else REFUSED
        else:
            outcome = LOADED
        tally("a header of a model mutated", outcome)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\3\0\0\0", b"GGUF\2\0\0\0" + bytes(16), b"\0" * 100])
def test_models_of_a_few_bytes(tmp_path, content, tally):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(OctavoError, match=r"is damaged or incomplete|is not a GGUF model"):
        octavo.Llama(path)
    tally("a model of a few bytes", REFUSED)


def test_a_sliding_window_and_forged_indexes(tmp_path, tally):
    """Layers that slide have other bounds."""
    llama = new_llama(tiny_models.write_model(tmp_path / "g.gguf", "gemma3"))
    path = build(llama, tmp_path, text_of(200))
    model_hash = library_of(llama, tmp_path).model_hash
    for value in (-1, 0, 1 << 40):
        copy = shutil.copytree(path, tmp_path / f"copy{value}")
        file = copy / "layer-000.safetensors"
        arrays = {kind: np.array(array) for kind, array in index_files.map_arrays(file).items()}
        arrays["position"][0] = value
        index_files.write_arrays(file, arrays)
        described = read_manifest(copy)
        described["files"][file.name] = manifest.describe(file)
        save_manifest(copy, described)
        with pytest.raises(OctavoError, match="contradict one another"):
            open_index(copy, model_hash)
        tally("bounds in an index forged, with right checksums", REFUSED)
