"""A method that has all hooks and is defined in this file alone: each hook is called, and what it counts is counted.

`sixteenth` attends to every sixteenth row of the tail and to the newest ones. Its budget says how many are newest. It
keeps a number beside each chunk, so that all hooks have something to do.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import pytest
from numba import float32, int64

import octavo
from octavo.cpu_kernels.layout.head import ANY_ORDER, chunk_at, chunk_extras, head_at
from octavo.cpu_kernels.layout.hooks import Hooks
from octavo.cpu_kernels.layout.scores import importance_of, scores_of, share_of
from octavo.cpu_kernels.layout.spans import add_tail_rows, spans_to_fill
from octavo.cpu_kernels.methods.dense import select_all
from octavo.cpu_kernels.numba_support.compile import kernel
from octavo.cpu_kernels.numba_support.views import array_at, record_at
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.runtime.methods import METHODS
from octavo.runtime.methods.method import Method, Storage
from octavo.runtime.methods.parameters import parameter

STATE = np.dtype([("n_recent", "i8"), ("n_steps", "i8")])


@kernel
def score_rows(shape, head_address, query, part, n_parts):
    head = head_at(head_address)
    start, stop = share_of(head.n_tail, part, n_parts)
    for g in range(shape.group):
        scores = scores_of(head, g)
        for row in range(start, stop):
            scores[row] = float32(row % 16 == 0)
    return 0


@kernel
def select_rows(shape, head_address, query, n_tokens, spans_address):
    if n_tokens > 1:
        return select_all(shape, head_address, query, n_tokens, spans_address)
    head, spans = head_at(head_address), spans_to_fill(spans_address)
    state, scores, n_spans = record_at(head.state, STATE), scores_of(head, 0), 0
    for row in range(head.n_tail):
        if scores[row] > 0 or row >= head.n_tail - state.n_recent:
            n_spans = add_tail_rows(shape, head, row, row + 1, ANY_ORDER, 0, spans, n_spans)
    head.bytes_read += head.n_tail
    importance_of(head)[0] = float32(n_spans)
    return n_spans


@kernel
def append_rows(shape, head_address, start, stop):
    head = head_at(head_address)
    for row in range(start, stop):
        count = array_at(chunk_extras(chunk_at(head, row // CHUNK_ROWS)), (1,), np.int64)
        count[0] = row % CHUNK_ROWS + 1
    return 0


@kernel
def count_step(shape, head_address, n_tokens):
    record_at(head_at(head_address).state, STATE).n_steps += int64(1)
    return 0


@kernel
def leave_output(shape, head_address, out, out_stride):
    return 0


@dataclass(frozen=True)
class Sixteenth(Method):
    """Attend to every sixteenth row and to the newest ones."""

    budget: float = parameter(0.5)

    name = "sixteenth"
    hooks = Hooks(select_rows, score_rows, leave_output, append_rows, count_step)
    state = STATE
    storage = Storage.CHUNKS

    def extras_bytes(self, shape):
        return 8

    def n_items(self, heads):
        return heads.n_chunks * CHUNK_ROWS

    def before_step(self, heads, index, n_tokens):
        rows = np.rint(np.minimum(self.budget * heads.scale, 1) * n_tokens).astype(int)
        heads.state["n_recent"] = np.maximum(16 * rows - n_tokens, 15) // 15  # a sixteenth of the others is read, too


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(METHODS, "sixteenth", "Sixteenth")
    monkeypatch.setitem(sys.modules, "octavo.runtime.methods.sixteenth", sys.modules[__name__])


def test_it_runs_a_model_and_reads_what_its_budget_says(tiny_model):
    tokens = np.random.default_rng(0).integers(97, 123, 700).tolist()
    dense, own = (octavo.Llama(tiny_model, n_ctx=2048, attention=name, budget=0.5) for name in ("dense", "sixteenth"))
    for llama in (dense, own):
        llama.prefill(tokens)
        llama.context.bytes_read = 0
        llama.eval([65])
    share = own.context.bytes_read / dense.context.bytes_read
    assert share == pytest.approx(0.5, abs=0.02), "counted, with a byte a row for the lookup"
    assert np.isfinite(own.logits()).all()
    assert not np.array_equal(own.logits(), dense.logits())
    tail = own.context.cache.tails[0]
    assert tail.state["n_steps"] == 700 // 512 + 2
    assert tail.chunk(0).extras.view(np.int64)[0] == CHUNK_ROWS
    own.rewind(300)
    assert own.context.cache.tails[0].chunk(1).extras.view(np.int64)[0] == 300 - CHUNK_ROWS


def test_everything_is_read_with_a_budget_of_1(tiny_model):
    tokens = np.random.default_rng(1).integers(97, 123, 300).tolist()
    logits = []
    for name in ("dense", "sixteenth"):
        llama = octavo.Llama(tiny_model, n_ctx=2048, attention=name, budget=1.0)
        llama.eval(tokens)
        llama.eval([65])
        logits.append(llama.logits())
    np.testing.assert_allclose(logits[1], logits[0], atol=0.01)
