"""What steps cost is measured once, is kept, and decides from where on `auto` selects. Times themselves are no test."""

import json
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.index_builds import Recorded, attach_document, library_of, text_of

import octavo
from octavo.runtime.devices import step_costs
from octavo.runtime.devices.random_layers import random_numbers
from octavo.runtime.devices.step_costs import LENGTHS, LONGER, StepCosts, keep_costs, kept_costs
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.document.index import Index
from octavo.runtime.methods.auto import SHORT

LAYERS = [CacheLayer(2, 64, 512, group=2), CacheLayer(2, 64, 0, group=2)]
COSTS = StepCosts(LENGTHS, (100.0, 200.0, 400.0), (150.0, 190.0, 300.0))


@pytest.mark.parametrize(
    ("selecting", "expected"),
    [
        ((90, 180, 300), SHORT),
        ((102, 205, 410), SHORT),  # within 3 %
        ((150, 190, 300), LENGTHS[1]),
        ((90, 250, 300), LENGTHS[2]),
        ((90, 180, 500), None),
    ],
)
def test_selecting_begins_where_it_pays_from_there_on(selecting, expected):
    assert StepCosts(LENGTHS, (100, 200, 400), selecting).selects_from == expected


@pytest.mark.sampled
@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize(("head_dim", "value_dim", "latent"), [(64, 64, False), (96, 64, False), (96, 64, True)])
def test_each_kind_of_rows_is_measured(kv_type, head_dim, value_dim, latent, monkeypatch):
    monkeypatch.setattr(step_costs, "LENGTHS", (2304,))
    monkeypatch.setattr(step_costs, "LONGER", ())
    layer = CacheLayer(2, head_dim, 0, kv_type, 2, value_dim=value_dim, latent=latent)
    costs = step_costs.measure(layer, 2)
    assert len(costs.dense) == len(costs.selecting) == 1
    assert costs.dense[0] > 0 < costs.selecting[0]


def test_random_documents_hold_no_more_than_their_rows():
    numbers, layer = random_numbers(), LAYERS[1]
    tracemalloc.start()
    document = step_costs._document(layer, 600, numbers, 8)
    n_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    rows = [(stored.keys, stored.values) for stored in document.layers]
    assert n_bytes < 1.1 * 8 * 600 * layer.row_bytes + 2**16
    assert not np.array_equal(rows[0][0], rows[1][0])
    assert not np.array_equal(rows[0][0], rows[0][1])


@pytest.mark.parametrize(
    ("pays_at", "lengths", "expected"),
    [
        (LENGTHS[2], LENGTHS, LENGTHS[2]),
        (LONGER[0], LENGTHS + LONGER[:1], LONGER[0]),
        (LONGER[1], LENGTHS + LONGER, LONGER[1]),
        (LONGER[1] + 1, LENGTHS + LONGER, None),
    ],
)
def test_longer_texts_are_measured_until_selecting_pays(pays_at, lengths, expected, measured_seconds, monkeypatch):
    measured_seconds(lambda n_tokens, selects: n_tokens * (2 if selects and n_tokens < pays_at else 1))
    costs = step_costs.measure(LAYERS[1], 2)
    assert costs.tokens == lengths
    assert costs.selects_from == expected
    monkeypatch.setattr(step_costs, "measure", lambda layer, n_threads: costs)
    others_use(0, monkeypatch)
    keep_costs(LAYERS, 2)
    assert kept_costs(LAYERS, 2) == costs


@pytest.fixture
def measured_seconds(monkeypatch):
    """Have passes over random layers take seconds by a function of the tokens, and of whether rows are selected."""

    def take(seconds):
        class Passes:
            def __init__(self, layer, rows, method, n_threads, document):
                self.seconds = lambda pool: seconds(len(document.tokens), method.name != "dense")

        monkeypatch.setattr(step_costs, "RandomLayers", Passes)
        monkeypatch.setattr(
            step_costs, "_document", lambda layer, n_tokens, *_: Index(np.zeros(n_tokens, np.int32), [])
        )
        monkeypatch.setattr(step_costs, "_share_codes", lambda *_: None)

    return take


@pytest.fixture
def measured(monkeypatch):
    """Have measuring return known costs; the layers that were measured."""
    layers = []

    def measure(layer, n_threads):
        layers.append(layer)
        return COSTS

    monkeypatch.setattr(step_costs, "measure", measure)
    others_use(0, monkeypatch)
    return layers


def others_use(n_cores, monkeypatch):
    """Have other programs use so many cores while costs are measured."""
    monkeypatch.setattr(step_costs, "look", lambda: SimpleNamespace(cores_of_others=lambda later: n_cores))


def test_costs_that_were_measured_beside_other_work_are_not_kept(measured, monkeypatch):
    others_use(0.5, monkeypatch)
    assert keep_costs(LAYERS, 2) == COSTS
    assert kept_costs(LAYERS, 2) is None
    others_use(0.1, monkeypatch)
    keep_costs(LAYERS, 2)
    assert kept_costs(LAYERS, 2) == COSTS


def test_costs_are_kept_by_threads_and_shape(measured):
    keep_costs(LAYERS, 2)
    assert measured == [LAYERS[1]], "the first layer that selects"
    assert kept_costs(LAYERS, 2) == COSTS
    assert kept_costs(LAYERS, 3) is None
    assert kept_costs([CacheLayer(2, 64, 0, group=3)], 2) is None


WORDS = '{"KEY": {"tokens": [2304, 4096, 8192], "dense": [1, 2, 3], "selecting": [1, "x", 3]}}'


@pytest.mark.parametrize("content", ["", "[]", "{}", "no JSON", '{"KEY": {}}', '{"KEY": {"tokens": [1]}}', WORDS])
def test_a_damaged_file_counts_as_missing(measured, costs_file, content):
    keep_costs(LAYERS, 2)
    [key] = json.loads(costs_file.read_text())
    costs_file.write_text(content.replace("KEY", key))
    assert kept_costs(LAYERS, 2) is None
    keep_costs(LAYERS, 2)
    assert kept_costs(LAYERS, 2) == COSTS


@pytest.mark.parametrize(("attention", "n_measured"), [("auto", 1), ("dense", 0)])
def test_they_are_measured_when_the_first_document_is_read(
    tiny_model, tmp_path, measured, monkeypatch, attention, n_measured
):
    monkeypatch.setattr("octavo.library.open_index.SHORT", 250)
    llama = octavo.Llama(tiny_model, n_ctx=4096, n_threads=2, attention=attention)
    for number in range(2):
        document = tmp_path / f"{number}.txt"
        document.write_text(text_of(1600, seed=number))
        attach_document(llama, library_of(llama, tmp_path), document, Recorded(), lambda notice: None)
        assert len(measured) == n_measured
    expected = {"dense": LENGTHS[1]} if n_measured else {}
    assert llama.resolved_attention.parameters.items() >= expected.items()
    later = octavo.Llama(tiny_model, n_ctx=4096, n_threads=2, attention=attention)
    assert later.resolved_attention.parameters.items() >= expected.items()


def test_where_selecting_never_pays_auto_reads_everything(tiny_model, monkeypatch):
    monkeypatch.setattr(step_costs, "measure", lambda layer, n_threads: StepCosts(LENGTHS, (1, 1, 1), (2, 2, 2)))
    llama = octavo.Llama(tiny_model, n_ctx=512, n_threads=2, attention="auto")
    llama.measure_steps()
    assert llama.resolved_attention.method == "dense"
