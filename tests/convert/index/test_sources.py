"""Where answers come from: what the recorder says against attention in float64, and the heads that are found."""

import json

import numpy as np
import pytest
from helpers.index_builds import ANSWER, QUESTION, library_of

from octavo.ask.sources.retrieval_heads import find_heads, head_scores, source_heads
from octavo.errors import OctavoError
from octavo.runtime import query_recorder as recorder
from octavo.runtime.document.stored_rows import as_floats
from octavo.runtime.llama import Llama
from octavo.runtime.query_recorder import PART, QueryHead, Recorder
from octavo.runtime.store.index_files import open_index


@pytest.fixture
def document(llama, index, model_hash):
    document, _ = open_index(index, model_hash)
    llama.attach(document)
    return document


def all_heads(llama):
    pairs = enumerate(zip(llama.context.nodes, llama.context.shapes, strict=True))
    return [QueryHead(i, k, m) for i, (node, shape) in pairs for k in range(node.n_kv_head) for m in range(shape.group)]


def recorded(llama, heads, answer=ANSWER):
    own = Recorder(llama.context.nodes, llama.context.shapes, heads)
    llama.context.record(own)
    llama.eval(QUESTION)
    del own.steps[:-1]
    for token in answer:
        llama.eval([token])
    llama.context.record(None)
    return own


def captured(llama, document, answer):
    """The queries of the same steps, as calibration captures them: (n_steps, n_kv_head, group, head_dim) a node."""
    llama.attach(document)
    llama.eval(QUESTION[:-1])
    steps = []
    for token in [QUESTION[-1], *answer]:
        with llama.context.captured_queries(1) as queries:
            llama.eval([token])
        steps.append([each[:, 0].copy() for each in queries])
    return [np.stack(of_node) for of_node in zip(*steps, strict=True)]


def exact(llama, document, queries, heads, parts):
    """What each part of an answer pays to each token beyond the mass of the document's end, in float64."""
    paid = np.zeros((len(parts), len(document.tokens)))
    for node, kv_head, member in heads:
        layer = document.layers[llama.context.nodes[node].kv_layer]
        scores = queries[node][:, kv_head, member].astype(np.float64) @ as_floats(layer.keys[kv_head]).T
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        usual = layer.mass[kv_head] / layer.mass[kv_head].sum()
        for number, part in enumerate(parts):
            paid[number, layer.positions(kv_head)] += (weights[part].mean(axis=0) - usual) / len(heads)
    return paid


@pytest.mark.parametrize("n_answer", [0, 8, 3 * PART + 5])
def test_what_is_recorded_is_what_dense_attention_pays(llama, document, n_answer, monkeypatch):
    monkeypatch.setattr(recorder, "_FEWEST", len(document.tokens))
    heads, answer = all_heads(llama), [65 + i % 20 for i in range(n_answer)]
    own = recorded(llama, heads, answer)
    assert len(own.steps) == n_answer + 1
    parts = np.array_split(np.arange(n_answer + 1), max((n_answer + 1) // PART, 1))
    expected = exact(llama, document, captured(llama, document, answer), heads, parts)
    np.testing.assert_allclose(own.attended(document), expected, atol=2e-5)


def test_steps_that_are_not_recorded_write_no_queries(llama, document):
    """They would be written where a step before had them, which may be anything by now."""
    kept = []

    class Kept(Recorder):
        def arrays(self, n_tokens):
            kept.append(super().arrays(n_tokens))
            return kept[-1]

    llama.context.record(Kept(llama.context.nodes, llama.context.shapes, all_heads(llama)))
    llama.eval(QUESTION)
    before = [array.copy() for array in kept[-1]]
    with llama.context.unrecorded():
        llama.eval(ANSWER)
    llama.context.record(None)
    for array, expected in zip(kept[-1], before, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_in_clusters_only_the_likely_rows_are_weighed(llama, document, monkeypatch):
    monkeypatch.setattr(recorder, "_FEWEST", 200)
    heads = all_heads(llama)[:1]
    own = recorded(llama, heads, [])
    attended = own.attended(document)[0]
    expected = exact(llama, document, captured(llama, document, []), heads, [np.arange(1)])[0]
    weighed = attended != 0
    assert document.n_exact < weighed.sum() <= document.n_exact + 200
    layer, mass = document.layers[0], np.zeros(len(attended))
    mass[layer.positions(0)] = layer.mass[0] / layer.mass[0].sum()
    ratios = (attended + mass)[weighed] / (expected + mass)[weighed]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-2)  # what was not weighed is in the sum ...
    assert 0.9 < ratios[0] < 1.5  # ... about as it should be


def test_a_step_that_is_not_recorded_leaves_nothing(llama, document):
    own = recorded(llama, all_heads(llama))
    llama.eval([65])
    assert len(own.steps) == len(ANSWER) + 1
    own.steps.clear()
    assert len(own.steps) == 0


def test_captured_queries_are_those_of_a_step_although_it_might_be_recorded(llama, document):
    own = Recorder(llama.context.nodes, llama.context.shapes, all_heads(llama))
    expected = captured(llama, document, ANSWER)
    llama.context.record(own)
    found = captured(llama, document, ANSWER)
    llama.context.record(None)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(own.steps) == 1  # of the question's first tokens, which nobody captured


def test_no_head_that_sees_the_document(llama, document):
    with pytest.raises(OctavoError, match="no head that retrieves sees the whole document"):
        recorded(llama, []).attended(document)


def test_heads_are_found_on_a_full_disk_too(llama, tmp_path, monkeypatch):
    library = library_of(llama, tmp_path)
    assert library.model_hash
    monkeypatch.setattr("octavo.ask.sources.retrieval_heads.write_json", fails)
    assert len(source_heads(llama, library, str)) == 4


def fails(*_):
    raise OctavoError("The disk is full.")


def test_heads_are_found_once_for_a_model(llama, tmp_path):
    library, notices = library_of(llama, tmp_path), []
    llama.eval([1, 2, 3])
    found = source_heads(llama, library, notices.append)
    assert notices == ["Preparing this model for sources, once."]
    assert (llama.n_tokens, str(llama.attention)) == (0, "dense")
    assert found == source_heads(llama, library, notices.append) == find_heads(llama)
    assert len(notices) == 1
    assert len(set(found)) == 4


@pytest.mark.parametrize("damage", ["", "[]", '{"format_version": 1}', "other model"])
def test_heads_are_found_again_if_their_file_is_of_no_use(llama, tmp_path, damage):
    library, notices = library_of(llama, tmp_path), []
    found = source_heads(llama, library, notices.append)
    path = library.folder / "retrieval_heads.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "model": "0"}) if damage == "other model" else damage)
    assert source_heads(llama, library, notices.append) == found
    assert len(notices) == 2
    assert json.loads(path.read_text()) == content


@pytest.mark.slow
def test_a_real_model_has_few_heads_that_retrieve(real_model):
    llama = Llama(real_model, n_ctx=2048, n_threads=2)
    scores = sorted(head_scores(llama).values())
    assert len(scores) == 30 * 9
    assert scores[-4] > 0.5
    assert scores[len(scores) // 2] < 0.05


def test_a_context_that_is_too_short_to_find_heads_in(tiny_model):
    llama = Llama(tiny_model, n_ctx=64, n_threads=1)
    assert find_heads(llama) == []
    with pytest.raises(OctavoError):
        llama.eval(list(range(100)))
