"""The steps from text to index: batches, reading, and layers, clustered or whole."""

import numpy as np
import pytest
from helpers.index_builds import SETTINGS, Recorded, build
from hypothesis import given
from hypothesis import strategies as st

import octavo
from octavo import OctavoError
from octavo.convert import index_builder
from octavo.convert.clusters import UNCLUSTERED
from octavo.convert.pipeline import batches, characters_per_token, cluster, document_tokens, keep_whole, prefill
from octavo.progress import Silent


@given(st.integers(0, 300), st.integers(0, 2000), st.integers(1, 512), st.integers(0, 512))
def test_batches_hold_each_position_once_and_do_not_cross_the_border(start, length, n_batch, n_last):
    stop = start + length
    parts = list(batches(start, stop, n_batch, n_last))
    assert [position for part in parts for position in part] == list(range(start, stop))
    assert all(0 < len(part) <= n_batch for part in parts)
    border = stop - n_last
    assert not any(part.start < border < part.stop for part in parts)


def test_batches_are_full_but_for_the_last_before_the_border_and_at_the_end():
    assert list(batches(0, 1200, 512, 100)) == [range(0, 512), range(512, 1024), range(1024, 1100), range(1100, 1200)]
    assert list(batches(1150, 1200, 512, 100)) == [range(1150, 1200)]
    assert list(batches(5, 1030, 512)) == [range(5, 517), range(517, 1029), range(1029, 1030)]
    assert list(batches(7, 7, 512, 100)) == []


@pytest.mark.parametrize(
    "text", ["", "ß", "The island lies far in the north. ", "Die Insel. " * 150, "地理学の話。" * 300]
)
def test_of_a_text_that_is_one_sample_all_tokens_count(llama, text):
    n_tokens = len(llama.prompt().document(text))
    assert characters_per_token(llama, text) == len(text) / max(n_tokens, 1)


@pytest.mark.parametrize("n_characters", [2_001, 6_000, 40_000, 99_999])
def test_tokens_of_a_long_text_are_known_from_samples(llama, n_characters):
    word = "north "
    text = (word * n_characters)[:n_characters]
    of_word = len(llama.prompt().document(word * 100)) / 100
    samples = 2_000 / len(word) * of_word  # a border cuts two words at most
    assert characters_per_token(llama, text) == pytest.approx(len(word) / of_word, rel=2 * len(word) / samples)


def test_reading_captures_the_queries_of_the_last_tokens(llama, tokens):
    progress = Recorded()
    captured = prefill(llama, tokens, progress, n_queries=30)
    assert sum(progress.reports) == len(tokens) == llama.n_tokens
    assert [queries.shape for queries in captured] == [(2, 30, 2, 64)] * 3
    llama.reset()
    assert prefill(llama, tokens[:-30], Silent()) == []
    one_by_one = [prefill(llama, [token], Silent(), n_queries=1) for token in tokens[-30:]]
    for node, queries in enumerate(captured):
        expected = np.concatenate([each[node] for each in one_by_one], axis=1)
        np.testing.assert_allclose(queries, expected, atol=0.02)


def test_layers_are_clustered_or_kept_whole(llama, tokens):
    prefill(llama, tokens, Silent())
    cache, progress = llama.context.cache, Recorded()
    whole = keep_whole(cache)
    clustered = list(cluster(cache, SETTINGS, progress, n_jobs=2, missing=[0, 2]))
    assert progress.reports == [("Clustering keys", 3, "layers", 1), 1, 1]
    assert [layer.n_clusters for layer in whole] == [0, 0, 0]
    for i, layer in zip((0, 2), clustered, strict=True):
        assert layer.n_clusters == SETTINGS.n_clusters(len(tokens))
        for head, order in enumerate(layer.order):
            np.testing.assert_array_equal(layer.keys[head], whole[i].keys[head][order])
            np.testing.assert_array_equal(layer.values[head], whole[i].values[head][order])


@pytest.mark.parametrize(("n_tokens", "expected"), [(1, 1), (2, 1), (50, 49), (101, 100), (5000, 100)])
def test_thresholds_are_measured_on_the_last_tokens_but_not_on_all(n_tokens, expected):
    assert SETTINGS.n_queries(n_tokens) == expected


def test_a_text_of_any_length_is_refused_with_a_sentence(tiny_model):
    llama = octavo.Llama(tiny_model, n_ctx=64, n_threads=2)
    for n_characters in (600, 1200, *range(1999, 2018)):
        with pytest.raises(OctavoError, match=r"tokens but this context holds 64: split it"):
            document_tokens(llama, "document", "a" * n_characters)


@pytest.mark.parametrize("text", ["word " * 400_000, "x" * 2_000_000], ids=["words", "one word"])
def test_a_text_that_is_far_too_long_is_refused_by_samples(llama, monkeypatch, text):
    """To tokenize all of it would take minutes, where it is much longer still."""
    tokenized, tokenize = [], llama.tokenize

    def note(part, **options):
        tokenized.append(len(part))
        return tokenize(part, **options)

    monkeypatch.setattr(llama, "tokenize", note)
    with pytest.raises(OctavoError, match=r"document has about [\d,]{7,} tokens but this context holds 4,096: split"):
        document_tokens(llama, "document", text)
    assert sum(tokenized) < len(text) / 10


@pytest.mark.parametrize(("settings", "n_imports"), [(SETTINGS, 1), (UNCLUSTERED, 0)])
def test_scikit_learn_is_imported_for_clusters_only(llama, tmp_path, monkeypatch, settings, n_imports):
    imported = []
    monkeypatch.setattr(index_builder, "_import_clustering", lambda: imported.append(1))
    build(llama, tmp_path, settings=settings)
    assert len(imported) == n_imports
