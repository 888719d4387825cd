"""Steps ask for what they select of a document only after one that had to wait for the disk, and compute the same."""

import mmap
from dataclasses import replace

import numpy as np
import pytest
from helpers.index_builds import attached_logits

from octavo.runtime.document import mapped_pages
from octavo.runtime.store.index_files import open_index

pytest_plugins = ["helpers.index_fixtures"]

SELECTS = "squeezed:rest=off"


@pytest.fixture
def waits(monkeypatch):
    """How often this process has waited, as the test says."""
    counted = [0]
    monkeypatch.setattr(mapped_pages, "_waits", lambda: counted[0])
    return counted


@pytest.fixture
def document(index, model_hash, waits):
    return open_index(index, model_hash)[0]


@pytest.fixture
def advice(monkeypatch, document):
    """What the system is told of the first layer's file."""
    told = []

    class File(mmap.mmap):
        def madvise(self, option):
            told.append({mmap.MADV_RANDOM: "random", mmap.MADV_NORMAL: "normal"}[option])

    document.pages._files[0] = File(-1, mmap.PAGESIZE)
    return told


def asking(llama):
    """Which heads' steps ask, after a step of one token."""
    llama.eval([1])
    return llama.context.cache.table.heads["document_pages"] != 0


def test_nothing_is_asked_for_while_nothing_waits(llama, document, advice):
    attached_logits(llama, document, SELECTS, 0.3)
    assert not asking(llama).any()
    assert advice == []


def test_steps_ask_for_a_while_after_one_that_waited(llama, document, waits, advice, monkeypatch):
    monkeypatch.setattr(mapped_pages, "_ASKING", 3)
    attached_logits(llama, document, SELECTS, 0.3)
    waits[0] += 1
    asked = [bool(asking(llama).all()) for _ in range(5)]
    assert asked == [True, True, True, False, False]
    assert advice == ["random", "normal"]


def test_a_batch_is_read_as_the_system_likes(llama, document, waits, advice):
    attached_logits(llama, document, SELECTS, 0.3)
    waits[0] += 1
    assert asking(llama).all()
    llama.eval([1, 2, 3])
    assert advice == ["random", "normal", "random"], "the last token of a prompt is a step of its own"


def test_attention_that_reads_everything_asks_for_nothing(llama, document, waits, advice):
    attached_logits(llama, document, "dense")
    waits[0] += 1
    assert not asking(llama).any()
    assert advice == []


def test_pages_that_steps_select_are_those_of_the_document(llama, document, waits):
    attached_logits(llama, document, SELECTS, 0.3)
    waits[0] += 1
    llama.eval([1])
    for record, selected in zip(document.pages._records, document.pages._selected, strict=True):
        assert 0 < np.count_nonzero(selected) <= record["n_pages"]
        assert set(np.unique(selected).tolist()) <= {0, int(record["step"])}


def test_asking_changes_no_logit(llama, document, waits):
    expected = attached_logits(llama, document, SELECTS, 0.3)
    waits[0] += 1
    actual = attached_logits(llama, document, SELECTS, 0.3)
    np.testing.assert_array_equal(actual, expected)


def test_a_document_in_memory_has_no_pages(llama, document, waits):
    layers = [replace(layer, keys=np.array(layer.keys), values=np.array(layer.values)) for layer in document.layers]
    copied = replace(document, layers=layers)
    attached_logits(llama, copied, SELECTS, 0.3)
    waits[0] += 1
    assert not asking(llama).any()
