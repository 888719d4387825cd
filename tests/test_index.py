"""Indexes: what one holds, what it gives, and that it is whole or not there."""

import builtins
import errno
import json
import os
import shutil
import time
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import oracle
import psutil
import pytest
import tiny_models
from safetensors.numpy import load_file

import octavo
from octavo import OctavoError
from octavo.convert import files
from octavo.convert.clusters import ClusterSettings, cluster_keys, sort_layer
from octavo.convert.files import MANIFEST, map_arrays, read_json, sha256_of, write_json
from octavo.convert.index import IndexBuilder, document_tokens, identity, open_index
from octavo.convert.library import Library, hash_text
from octavo.convert.open import attach_document, index_document
from octavo.convert.progress import Silent
from octavo.runtime.document import ANY_ORDER, ThresholdCurve

SAME = 0.01  # the same numbers in f16, added up in another order; logits have a standard deviation of about three
NAME = "document.txt"
QUESTION = [72, 105, 33, 10]
ANSWER = [65, 66, 67, 68, 69, 70, 71, 72]
SETTINGS = ClusterSettings()


def text_of(n_characters, seed=0):
    """Words of a small random vocabulary; about a token a character."""
    rng = np.random.default_rng(seed)
    words = ["".join(map(chr, rng.integers(97, 123, rng.integers(2, 9)))) for _ in range(60)]
    return " ".join(rng.choice(words, n_characters // 3))[:n_characters]


TEXT = text_of(1600)


def new_llama(model, **options):
    return octavo.Llama(model, n_ctx=4096, n_threads=2, **options)


@pytest.fixture(scope="module")
def llama(tiny_model):
    return new_llama(tiny_model)


@pytest.fixture(autouse=True)
def dense_and_empty(llama):
    """Each test finds the shared model as it was loaded."""
    llama.context.attach(None)
    llama.set_attention("dense")
    llama.reset()


def library_of(llama, folder):
    return Library.of(llama.model_path, folder)


def build(llama, folder, text=TEXT, progress=None, settings=SETTINGS):
    """Build the index of a text in a folder; returns its path."""
    library = library_of(llama, folder)
    path = library.index_path(NAME, text, identity(llama, settings))
    IndexBuilder(llama, library, path, NAME, text, settings, progress or Silent(), n_jobs=2).build()
    return path


@pytest.fixture(scope="module")
def index(llama, tmp_path_factory):
    """The index of TEXT: not to be changed."""
    return build(llama, tmp_path_factory.mktemp("index"))


@pytest.fixture
def copied_index(index, tmp_path):
    return shutil.copytree(index, tmp_path / index.name)  # times too


@pytest.fixture(scope="module")
def model_hash(llama, index):
    return library_of(llama, index.parent.parent).model_hash


@pytest.fixture(scope="module")
def tokens(llama):
    return document_tokens(llama, NAME, TEXT)


def evaluate_directly(llama, tokens):
    llama.context.attach(None)
    llama.set_attention("dense")
    llama.reset()
    llama.eval(tokens)


def logits_after(llama):
    """Logits after the question in one batch, and after each token of an answer."""
    rows = []
    llama.eval(QUESTION)
    rows.append(llama.logits())
    for token in ANSWER:
        llama.eval([token])
        rows.append(llama.logits())
    return np.array(rows)


@pytest.fixture(scope="module")
def direct_logits(llama, tokens):
    evaluate_directly(llama, tokens)
    return logits_after(llama)


def attached_logits(llama, document, attention, budget=1.0):
    llama.set_attention(attention, budget)
    llama.reset()
    llama.attach(document)
    return logits_after(llama)


def arrays_of(path):
    return {file.name: map_arrays(file) for file in sorted(path.glob("*.safetensors"))}


def assert_same_index(actual, expected):
    actual, expected = arrays_of(actual), arrays_of(expected)
    assert actual.keys() == expected.keys()
    for name in expected:
        assert actual[name].keys() == expected[name].keys()
        for kind, array in expected[name].items():
            np.testing.assert_array_equal(actual[name][kind], array, err_msg=f"{kind} of {name}")


# What an index gives.


def test_dense_over_the_index_gives_the_logits_of_the_document(llama, index, model_hash, direct_logits):
    document, _ = open_index(index, model_hash)
    np.testing.assert_allclose(attached_logits(llama, document, "dense"), direct_logits, atol=SAME)


def test_squeezed_with_a_budget_of_1_gives_the_logits_of_the_document(llama, index, model_hash, direct_logits):
    document, _ = open_index(index, model_hash)
    np.testing.assert_allclose(attached_logits(llama, document, "squeezed", 1.0), direct_logits, atol=SAME)


def test_logits_depend_on_what_is_read_of_the_document(llama, index, model_hash, direct_logits):
    """The two tests above could not fail otherwise."""
    document, _ = open_index(index, model_hash)
    assert np.abs(attached_logits(llama, document, "squeezed", 0.12) - direct_logits).max() > 10 * SAME
    evaluate_directly(llama, document.tokens[:60].tolist())
    assert np.abs(logits_after(llama) - direct_logits).max() > 10 * SAME


def test_a_larger_budget_is_closer_to_dense(llama, index, model_hash, direct_logits):
    document, _ = open_index(index, model_hash)
    errors = [
        np.abs(attached_logits(llama, document, "squeezed", budget) - direct_logits).mean()
        for budget in (0.15, 0.4, 0.8)
    ]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("budget", [0.15, 0.3, 0.5, 0.8])
def test_a_step_reads_about_its_budget(llama, index, model_hash, budget):
    document, _ = open_index(index, model_hash)
    n_tokens, row_bytes = len(document.tokens), llama.context.cache.row_bytes
    llama.set_attention("squeezed", budget)
    llama.attach(document)
    llama.eval(QUESTION)
    llama.context.bytes_read = 0
    of_tail = 0
    for token in ANSWER:
        llama.eval([token])
        of_tail += llama.context.cache.n_tail * row_bytes
    share = (llama.context.bytes_read - of_tail) / (len(ANSWER) * n_tokens * row_bytes)
    assert 0.6 * budget < share < 1.5 * budget
    assert share < 1


def test_an_index_opened_twice_serves_two_contexts(llama, index, model_hash, direct_logits):
    document, _ = open_index(index, model_hash)
    other = new_llama(llama.model_path)
    for each in (llama, other):
        each.attach(document)
    np.testing.assert_allclose(logits_after(llama), direct_logits, atol=SAME)
    np.testing.assert_allclose(logits_after(other), direct_logits, atol=SAME)


def test_a_document_is_not_written_to(llama, index, model_hash):
    document, _ = open_index(index, model_hash)
    for layer in document.layers:
        for array in (layer.keys, layer.values, layer.centroids, layer.cluster_starts):
            assert not array.flags.writeable
    before = {file: sha256_of(file) for file in index.iterdir()}
    attached_logits(llama, document, "squeezed", 0.5)
    assert {file: sha256_of(file) for file in index.iterdir()} == before


def test_layers_hold_the_rows_of_the_document_sorted_by_cluster(llama, index, model_hash, tokens):
    document, _ = open_index(index, model_hash)
    np.testing.assert_array_equal(document.tokens, tokens)
    evaluate_directly(llama, tokens)
    n_clustered, first, last = SETTINGS.n_clustered(len(tokens)), SETTINGS.exact_first, SETTINGS.exact_last
    for i, layer in enumerate(document.layers):
        keys, values = llama.context.cache.rows(i)
        assert layer.position == ANY_ORDER
        assert layer.n_clusters == round(0.05 * n_clustered)
        for head in range(len(keys)):
            stored = np.hstack([layer.keys[head], layer.values[head]])
            original = np.hstack([keys[head], values[head]])
            exact = np.vstack([original[:first], original[-last:]])
            np.testing.assert_array_equal(stored[n_clustered:], exact)
            np.testing.assert_array_equal(in_one_order(stored), in_one_order(original))
            starts = layer.cluster_starts[head]
            assert (starts[0], starts[-1]) == (0, n_clustered)
            assert (np.diff(starts) > 0).all()
            means = [layer.keys[head, a:b].astype(float).mean(axis=0) for a, b in pairwise(starts)]
            np.testing.assert_allclose(layer.centroids[head], means, atol=2e-3, rtol=2e-3)


def in_one_order(rows):
    return rows[np.lexsort(rows.T)]


def test_clusters_hold_keys_that_point_the_same_way(index, model_hash):
    document, _ = open_index(index, model_hash)
    for layer in document.layers:
        for head, starts in enumerate(layer.cluster_starts):
            keys = layer.keys[head].astype(float)
            keys /= np.linalg.norm(keys, axis=1, keepdims=True)
            coherence = [np.linalg.norm(keys[a:b].mean(axis=0)) for a, b in pairwise(starts) if b > a + 1]
            shuffled = np.random.default_rng(0).permutation(keys[: starts[-1]])
            by_chance = [np.linalg.norm(shuffled[a:b].mean(axis=0)) for a, b in pairwise(starts) if b > a + 1]
            assert np.mean(coherence) > 1.5 * np.mean(by_chance)


def test_keys_are_clustered_by_their_direction_whatever_their_length():
    directions, lengths = np.eye(64, dtype=np.float32)[:2], np.geomspace(0.1, 100, 20, dtype=np.float32)
    keys = (lengths[:, None, None] * directions).reshape(40, 64).astype(np.float16)
    order, starts = cluster_keys(keys, 2, SETTINGS)
    assert starts.tolist() == [0, 20, 40]
    assert {tuple(sorted(set(part % 2))) for part in (order[:20], order[20:])} == {(0,), (1,)}


def test_fewer_directions_than_clusters_leave_some_empty():
    keys = np.ones((30, 64), np.float16)
    with pytest.warns(UserWarning, match="distinct clusters"):
        order, starts = cluster_keys(keys, 4, SETTINGS)
    layer = sort_layer(keys[None], keys[None], [(order, starts)], ClusterSettings(exact_first=0, exact_last=0))
    sizes = np.diff(starts)
    assert sorted(sizes) == [0, 0, 0, 30]
    np.testing.assert_array_equal(layer.centroids[0], np.where(sizes[:, None] > 0, 1, 0) * np.ones(64))


def test_the_prompt_head_is_a_part_of_the_index(llama, index, model_hash, tokens):
    text = llama.detokenize(tokens, special=True).decode()
    assert text.startswith("<|im_start|>user\n")
    assert text.endswith(TEXT)


# The threshold curve.


def test_the_curve_spends_the_budget_on_the_queries_that_it_was_measured_on(llama, index, model_hash, tokens):
    document, _ = open_index(index, model_hash)
    n_tokens, n_last = len(tokens), SETTINGS.exact_last
    evaluate_directly(llama, tokens[:-n_last])
    with llama.context.captured_queries(n_last) as queries:
        llama.eval(tokens[-n_last:])
    for budget in (0.15, 0.3, 0.6):
        threshold = document.curve.threshold(budget)
        n_rows = []
        for node, captured in zip(llama.context.nodes, queries, strict=True):
            layer = document.layers[node.kv_layer]
            for head in range(node.n_kv_head):
                starts = layer.cluster_starts[head]
                for token in captured[head]:
                    importance = oracle.centroid_importance(token, layer.centroids[head], np.diff(starts))
                    n_rows.append(len(oracle.selected_rows(importance, threshold, starts, n_tokens)))
        lookup = layer.n_clusters / (2 * n_tokens)
        assert np.mean(n_rows) / n_tokens + lookup == pytest.approx(budget, abs=0.01)


def test_the_curve_rises_as_the_threshold_falls(index, model_hash):
    curve = open_index(index, model_hash)[0].curve
    assert (np.diff(curve.budgets) > 0).all()
    assert (np.diff(curve.thresholds) < 0).all()
    thresholds = [curve.threshold(budget) for budget in np.linspace(curve.budgets[0], 1, 50)]
    assert (np.diff(thresholds) <= 0).all()
    assert thresholds[-1] < 0  # every share is above it


def test_the_least_budget_is_that_of_the_lookup_and_the_exact_rows(index, model_hash, tokens):
    curve, n = open_index(index, model_hash)[0].curve, len(tokens)
    least = (SETTINGS.n_clusters(n) / 2 + SETTINGS.exact_first + SETTINGS.exact_last) / n
    assert curve.budgets[0] == pytest.approx(least, abs=0.01)


def test_thresholds_between_measured_budgets_are_interpolated():
    curve = ThresholdCurve(np.array([0.1, 0.2, 0.6]), np.array([1e-1, 1e-2, 1e-6]))
    assert curve.threshold(0.1) == pytest.approx(1e-1)
    assert curve.threshold(0.15) == pytest.approx(10**-1.5)
    assert curve.threshold(0.4) == pytest.approx(1e-4)
    assert curve.threshold(1) == -1


def test_a_budget_below_the_lookup_is_refused_with_one_that_would_do():
    curve = ThresholdCurve(np.array([0.1234, 0.2]), np.array([1e-1, 1e-2]))
    with pytest.raises(OctavoError) as refusal:
        curve.threshold(0.12)
    assert str(refusal.value) == (
        "A budget of 0.12 is too small for this document: looking up its centroids and reading its "
        "last tokens takes 0.123. Give --budget 0.13 or more."
    )
    curve.threshold(0.13)


def test_a_model_refuses_a_budget_that_is_too_small_for_its_document(llama, index, model_hash):
    llama.attach(open_index(index, model_hash)[0])
    with pytest.raises(OctavoError, match=r"A budget of 0\.01 is too small .* Give --budget 0\.\d+ or more"):
        llama.set_attention("squeezed", 0.01)
    assert (llama.attention, llama.n_tokens) == ("dense", llama.context.cache.n_document)


# Interruptions.


class Recorded:
    """Notes what is reported, and is interrupted at the report number `at`."""

    def __init__(self, at=None):
        self.at, self.reports = at, []

    def start(self, task, total, unit, done=0):
        self._report((task, total, unit, done))

    def advance(self, amount):
        self._report(amount)

    def _report(self, what):
        self.reports.append(what)
        if len(self.reports) - 1 == self.at:
            raise KeyboardInterrupt

    @property
    def done_before(self):
        """For each task, how much was there when it began."""
        return [report[-1] for report in self.reports if isinstance(report, tuple)]


def assert_nothing_to_open(llama, folder, path):
    library = library_of(llama, folder)
    partial = path.with_name(path.name + ".partial")
    assert not path.exists()
    assert not (partial / MANIFEST).exists()
    assert library.indexes() == []
    for place in (path, partial):
        with pytest.raises(OctavoError, match="is not an octavo index"):
            open_index(place, library.model_hash)


def test_a_build_reports_all_of_its_work(llama, tmp_path, tokens):
    progress = Recorded()
    build(llama, tmp_path, progress=progress)
    clustering = progress.reports.index(("Clustering keys", 3, "layers", 0))
    assert progress.reports[0] == (f"Reading {NAME}", len(tokens), "tokens", 0)
    assert sum(progress.reports[1:clustering]) == len(tokens)
    assert progress.reports[clustering + 1 :] == [1, 1, 1]
    assert len(progress.reports) == REPORTS


REPORTS = 9  # two tasks; 512 and 512, then the rest, then the last 100 tokens; three layers


@pytest.mark.parametrize("at", range(REPORTS))
def test_an_interrupted_build_goes_on_to_the_same_index(llama, index, tmp_path, at):
    with pytest.raises(KeyboardInterrupt):
        build(llama, tmp_path, progress=Recorded(at))
    path = library_of(llama, tmp_path).index_path(NAME, TEXT, identity(llama, SETTINGS))
    assert_nothing_to_open(llama, tmp_path, path)
    assert build(llama, tmp_path) == path
    assert_same_index(path, index)
    assert [each.name for each in path.parent.iterdir() if each.is_dir()] == [path.name]  # the partial one is gone


def test_a_build_that_is_interrupted_again_and_again_gets_done(llama, index, tmp_path):
    for _ in range(20):
        try:
            path = build(llama, tmp_path, progress=Recorded(at=3))
        except KeyboardInterrupt:
            continue
        break
    assert_same_index(path, index)


def test_what_was_done_is_not_done_again(llama, tmp_path, tokens):
    with pytest.raises(KeyboardInterrupt):
        build(llama, tmp_path, progress=Recorded(at=3))  # after the first piece
    while_clustering = Recorded(at=4)  # after the first layer
    with pytest.raises(KeyboardInterrupt):
        build(llama, tmp_path, progress=while_clustering)
    assert while_clustering.done_before == [1024, 0]
    last = Recorded()
    build(llama, tmp_path, progress=last)
    assert last.done_before == [len(tokens), 1]


class Crash(BaseException):
    """The process ends here."""


def failing(function, at, problem):
    """`function`, but call number `at` raises `problem`."""
    calls = iter(range(10_000))

    def call(*arguments, **options):
        if next(calls) == at:
            raise problem
        return function(*arguments, **options)

    return call


#: Three pieces of the prefill, three layers, the document, and the manifest are synced and renamed; then the folder.
WRITES = 8


@pytest.mark.parametrize(
    ("function", "at"), [("replace", at) for at in range(WRITES)] + [("fsync", at) for at in range(WRITES + 1)]
)
def test_a_build_that_crashes_while_writing_goes_on_to_the_same_index(
    llama, index, tmp_path, monkeypatch, function, at
):
    path = library_of(llama, tmp_path).index_path(NAME, TEXT, identity(llama, SETTINGS))  # writes model.json
    with monkeypatch.context() as patch:
        patch.setattr(os, function, failing(getattr(os, function), at, Crash()))
        with pytest.raises(Crash):
            build(llama, tmp_path)
    if at < WRITES:
        assert_nothing_to_open(llama, tmp_path, path)
    assert build(llama, tmp_path) == path
    assert_same_index(path, index)
    assert not list(path.glob("*.tmp"))


def test_a_crash_before_the_folder_has_its_name_leaves_no_index(llama, index, tmp_path, monkeypatch):
    library = library_of(llama, tmp_path)
    path = library.index_path(NAME, TEXT, identity(llama, SETTINGS))
    with monkeypatch.context() as patch:
        patch.setattr(type(path), "rename", failing(None, 0, Crash()))
        with pytest.raises(Crash):
            build(llama, tmp_path)
    assert not path.exists()
    assert library.indexes() == []
    build(llama, tmp_path)
    assert_same_index(path, index)


def test_unfinished_files_of_a_crash_are_removed(llama, index, tmp_path):
    path = library_of(llama, tmp_path).index_path(NAME, TEXT, identity(llama, SETTINGS))
    partial = path.with_name(path.name + ".partial")
    partial.mkdir(parents=True)
    (partial / "layer-000.safetensors.tmp").write_bytes(b"half of it")
    build(llama, tmp_path)
    assert_same_index(path, index)
    assert {file.name for file in path.iterdir()} == {file.name for file in index.iterdir()}


# The disk.


def out_of_space():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("at", [0, 2, 3, 6, 7])
@pytest.mark.parametrize("function", ["fsync", "open"])
def test_a_full_disk_is_told_and_the_build_goes_on_later(llama, index, tmp_path, monkeypatch, function, at):
    path = library_of(llama, tmp_path).index_path(NAME, TEXT, identity(llama, SETTINGS))
    with monkeypatch.context() as patch:
        if function == "fsync":
            patch.setattr(os, "fsync", failing(os.fsync, at, out_of_space()))
        else:
            write = failing(builtins.open, at, out_of_space())
            to_read_or_write = lambda path, mode: (write if mode == "wb" else builtins.open)(path, mode)  # noqa: E731
            patch.setattr(files, "open", to_read_or_write, raising=False)
        with pytest.raises(OctavoError, match=r"is full.*run the same command again.*--index-dir"):
            build(llama, tmp_path)
    assert_nothing_to_open(llama, tmp_path, path)
    build(llama, tmp_path)
    assert_same_index(path, index)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_disk_that_cannot_be_written_is_told(llama, tmp_path, monkeypatch, number):
    library_of(llama, tmp_path).model_hash  # noqa: B018 - writes model.json
    monkeypatch.setattr(os, "fsync", failing(os.fsync, 0, OSError(number, os.strerror(number))))
    with pytest.raises(OctavoError, match=r"cannot be written: give another folder with --index-dir"):
        build(llama, tmp_path)


def test_a_disk_that_is_too_small_is_refused_before_the_work(llama, tmp_path, monkeypatch, tokens):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    progress = Recorded()
    needed = 2 * len(tokens) * llama.context.cache.row_bytes / 2**20
    with pytest.raises(OctavoError, match=rf"takes {needed:.0f} MiB .* has 1 MiB left: .* --index-dir"):
        build(llama, tmp_path, progress=progress)
    assert progress.reports == []


def test_memory_that_is_too_small_is_refused_before_the_work(llama, tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=0))
    progress = Recorded()
    with pytest.raises(OctavoError, match=r"The KV cache of .* tokens needs"):
        build(llama, tmp_path, progress=progress)
    assert progress.reports == []


def test_a_folder_that_cannot_be_made_is_told(llama, tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OctavoError, match="--index-dir"):
        build(llama, tmp_path / "taken")


def test_a_document_that_is_longer_than_the_context_is_refused(tiny_model, tmp_path):
    llama = octavo.Llama(tiny_model, n_ctx=512, n_threads=2)
    with pytest.raises(OctavoError, match=r"document\.txt has 1,\d{3} tokens but this context holds 512"):
        build(llama, tmp_path)


# The rules of convert/files.py.


def test_rule_1_an_index_is_a_folder_of_a_manifest_a_document_and_layers(index):
    layers = {f"layer-00{i}.safetensors" for i in range(3)}
    assert {file.name for file in index.iterdir()} == {"manifest.json", "document.safetensors"} | layers
    for name, arrays in arrays_of(index).items():  # and they are safetensors to others too
        expected = load_file(index / name)
        assert arrays.keys() == expected.keys()
        for kind, array in expected.items():
            assert arrays[kind].dtype == array.dtype
            np.testing.assert_array_equal(arrays[kind], array)


def test_rule_2_it_is_written_under_another_name_synced_and_renamed(llama, tmp_path, monkeypatch):
    """Each file's content reaches the disk before its name, and all files before the folder's."""
    path = library_of(llama, tmp_path).index_path(NAME, TEXT, identity(llama, SETTINGS))
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
        temporary = str(partial / f"{name}.tmp")
        assert events.index(("sync", temporary)) < events.index(("rename", temporary, str(partial / name)))
    named = events.index(("rename", str(partial), str(path)))
    assert events[named - 1] == ("sync", str(partial))
    assert events[named + 1 :] == [("sync", str(path.parent))]


def test_rule_3_the_manifest_names_what_the_index_depends_on(llama, index, tokens):
    manifest = json.loads((index / MANIFEST).read_text())
    assert manifest["format_version"] == 1
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
        status = (index / name).stat()
        assert manifest["files"][name] == {
            "size": status.st_size,
            "mtime_ns": status.st_mtime_ns,
            "sha256": sha256_of(index / name),
        }


def flip_a_byte(file, keep_time):
    status = file.stat()
    with open(file, "r+b") as stream:
        stream.seek(status.st_size // 2)
        byte = stream.read(1)[0]
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte ^ 1]))
    later = 0 if keep_time else 1_000_000
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + later))


@pytest.mark.parametrize("name", ["document.safetensors", "layer-000.safetensors", "layer-002.safetensors"])
def test_rule_4_a_file_that_has_changed_is_refused(copied_index, model_hash, name):
    flip_a_byte(copied_index / name, keep_time=False)
    with pytest.raises(OctavoError, match=f"{name} of the index .* has changed .*: delete that folder and index"):
        open_index(copied_index, model_hash)


def test_rule_4_a_file_of_another_size_is_refused(copied_index, model_hash):
    file = copied_index / "layer-001.safetensors"
    status = file.stat()
    with open(file, "ab") as stream:
        stream.write(b"\0")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(OctavoError, match=r"layer-001\.safetensors .* has another size"):
        open_index(copied_index, model_hash)


def test_rule_4_a_file_of_another_time_is_compared_with_its_checksum(copied_index, model_hash, index, monkeypatch):
    os.utime(copied_index / "layer-001.safetensors")
    read_whole = []
    monkeypatch.setattr(files, "sha256_of", lambda path: read_whole.append(path.name) or sha256_of(path))
    document, _ = open_index(copied_index, model_hash)
    assert read_whole == ["layer-001.safetensors"]
    np.testing.assert_array_equal(document.layers[1].keys, open_index(index, model_hash)[0].layers[1].keys)


def test_rule_4_an_untouched_file_is_not_read_whole_unless_asked(copied_index, model_hash):
    flip_a_byte(copied_index / "layer-000.safetensors", keep_time=True)
    open_index(copied_index, model_hash)
    with pytest.raises(OctavoError, match="has changed"):
        open_index(copied_index, model_hash, thorough=True)


# Indexes that cannot be opened.


def test_a_missing_file_is_told(copied_index, model_hash):
    (copied_index / "layer-002.safetensors").unlink()
    with pytest.raises(OctavoError, match=r"layer-002\.safetensors of the index .* is missing"):
        open_index(copied_index, model_hash)


def test_the_index_of_another_model_is_refused(index):
    with pytest.raises(OctavoError, match=r"was made with another model \(tiny\.gguf\): index the document again"):
        open_index(index, "0" * 64)


def test_an_index_of_another_format_is_refused(copied_index, model_hash):
    write_json(copied_index / MANIFEST, read_json(copied_index / MANIFEST) | {"format_version": 2})
    with pytest.raises(OctavoError, match="has format 2, and this octavo reads 1: index the document again"):
        open_index(copied_index, model_hash)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"{}", b'{"format_version": 1}'])
def test_a_manifest_that_is_damaged_is_told(copied_index, model_hash, content):
    (copied_index / MANIFEST).write_bytes(content)
    with pytest.raises(OctavoError, match="index the document again"):
        open_index(copied_index, model_hash)


def test_a_folder_that_is_no_index_is_told(tmp_path, model_hash):
    with pytest.raises(OctavoError, match=r"is not an octavo index: it has no manifest\.json"):
        open_index(tmp_path, model_hash)


# Documents as users open them.


def open_file(llama, folder, document, notices):
    attach_document(llama, library_of(llama, folder), document, Silent(), 2, notices.append)
    return llama.context.cache.document


def test_a_document_is_indexed_once(llama, tmp_path):
    document, notices = tmp_path / NAME, []
    document.write_text(TEXT)
    first = open_file(llama, tmp_path, document, notices)
    assert notices == [f"Indexing {NAME}, once."]
    time.sleep(0.01)
    document.touch()
    second = open_file(llama, tmp_path, document, notices)
    assert len(notices) == 1
    np.testing.assert_array_equal(first.tokens, second.tokens)
    library = library_of(llama, tmp_path)
    path = index_document(llama, library, document, Silent(), 2, notices.append)
    assert notices[1:] == [f"{NAME} is indexed already: {path}"]
    assert [each for each, _ in library.indexes()] == [path]


def test_a_document_that_has_changed_is_indexed_again(llama, tmp_path):
    document, notices = tmp_path / NAME, []
    document.write_text(TEXT)
    open_file(llama, tmp_path, document, notices)
    document.write_text(TEXT + " And one more sentence.")
    changed = open_file(llama, tmp_path, document, notices)
    assert notices[1] == f"{NAME} has changed since it was indexed: indexing it again."
    assert llama.detokenize(changed.tokens.tolist()).endswith(b"one more sentence.")
    document.write_text(TEXT)
    open_file(llama, tmp_path, document, notices)
    assert len(notices) == 2  # the first index is still there


def test_indexing_leaves_the_attention_as_it_was(llama, tmp_path):
    document = tmp_path / NAME
    document.write_text(TEXT)
    llama.set_attention("squeezed", 0.4)
    open_file(llama, tmp_path, document, [])
    assert (llama.attention, llama.budget) == ("squeezed", 0.4)
    expected = build(llama, tmp_path / "dense")  # `build` is told to attend densely by its caller only
    assert expected.exists()


@pytest.mark.parametrize("n_characters", [1, 2, 50, 99, 100, 101, 300])
@pytest.mark.parametrize("budget", [0.01, 0.5, 1.0])
def test_a_short_document_is_attended_whole(llama, tmp_path, n_characters, budget):
    text = text_of(n_characters)
    path = build(llama, tmp_path, text)
    document, manifest = open_index(path, library_of(llama, tmp_path).model_hash)
    assert document.curve is None
    assert [layer.n_clusters for layer in document.layers] == [0, 0, 0]
    assert manifest["document"]["tokens"] == len(document.tokens)
    evaluate_directly(llama, document.tokens.tolist())
    expected = logits_after(llama)
    np.testing.assert_allclose(attached_logits(llama, document, "squeezed", budget), expected, atol=SAME)


def test_a_document_is_clustered_from_a_given_length_on(llama, tmp_path):
    n_head = len(document_tokens(llama, NAME, "a")) - 1
    for n_tokens, clustered in [(SETTINGS.shortest - 1, False), (SETTINGS.shortest, True)]:
        text = "xy" * 1000
        text = text[: n_tokens - n_head]
        assert len(document_tokens(llama, NAME, text)) == n_tokens
        document, _ = open_index(build(llama, tmp_path, text), library_of(llama, tmp_path).model_hash)
        assert [layer.n_clusters > 0 for layer in document.layers] == [clustered] * 3
        assert (document.curve is not None) == clustered


def test_a_document_of_one_word_repeated_works(llama, tmp_path):
    """Fewer distinct directions than clusters, perhaps: clusters may be empty."""
    path = build(llama, tmp_path, "z" * 1500)
    document, _ = open_index(path, library_of(llama, tmp_path).model_hash)
    evaluate_directly(llama, document.tokens.tolist())
    expected = logits_after(llama)
    np.testing.assert_allclose(attached_logits(llama, document, "squeezed", 1.0), expected, atol=SAME)
    assert np.isfinite(attached_logits(llama, document, "squeezed", 0.3)).all()


def test_the_size_of_batches_does_not_change_the_index(llama, index, tmp_path):
    path = build(new_llama(llama.model_path, n_batch=SETTINGS.exact_last), tmp_path)
    expected, actual = (map_arrays(each / "document.safetensors") for each in (index, path))
    np.testing.assert_array_equal(actual["tokens"], expected["tokens"])
    for budget in (0.15, 0.3, 0.6):
        logs = [
            np.log(ThresholdCurve(each["budgets"], each["thresholds"]).threshold(budget)) for each in (expected, actual)
        ]
        assert logs[0] == pytest.approx(logs[1], abs=0.1)


def test_batches_too_small_to_calibrate_on_are_refused(llama, tmp_path):
    with pytest.raises(OctavoError, match="n_batch=100 or more"):
        build(new_llama(llama.model_path, n_batch=SETTINGS.exact_last - 1), tmp_path)


# Sliding windows.


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    path = tmp_path_factory.mktemp("gemma") / "gemma.gguf"
    return new_llama(tiny_models.write_model(path, "gemma3", n_layer=6, window=32))


@pytest.mark.parametrize("n_characters", [20, 1600])
def test_a_model_with_sliding_windows_gives_the_logits_of_the_document(gemma, tmp_path, n_characters):
    path = build(gemma, tmp_path, text_of(n_characters))
    document, _ = open_index(path, library_of(gemma, tmp_path).model_hash)
    n_tokens = len(document.tokens)
    kept = min(32, n_tokens)
    assert [layer.keys.shape[1] for layer in document.layers] == [kept] * 5 + [n_tokens]
    assert [layer.position for layer in document.layers[:5]] == [n_tokens - kept] * 5
    assert (document.layers[5].n_clusters > 0) == (n_tokens >= SETTINGS.shortest)
    evaluate_directly(gemma, document.tokens.tolist())
    expected = logits_after(gemma)
    np.testing.assert_allclose(attached_logits(gemma, document, "dense"), expected, atol=SAME)
    np.testing.assert_allclose(attached_logits(gemma, document, "squeezed", 1.0), expected, atol=SAME)
    long_tail = np.random.default_rng(0).integers(0, 256, 50).tolist()  # the window leaves the document behind
    logits = []
    for attach in (lambda: gemma.attach(document), lambda: evaluate_directly(gemma, document.tokens.tolist())):
        gemma.set_attention("dense")
        gemma.reset()
        attach()
        gemma.eval(long_tail)
        gemma.eval([1])
        logits.append(gemma.logits())
    np.testing.assert_allclose(*logits, atol=SAME)


def test_an_interrupted_build_with_sliding_windows_goes_on_to_the_same_index(gemma, tmp_path):
    expected = build(gemma, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        build(gemma, tmp_path / "interrupted", progress=Recorded(at=8))
    assert_same_index(build(gemma, tmp_path / "interrupted"), expected)
