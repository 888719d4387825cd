"""Stretched positions: llama.cpp's logits, a longer context, and what depends on it."""

import numpy as np
import pytest

import octavo
from octavo.convert.clusters import ClusterSettings
from octavo.convert.identity import identity
from octavo.documents.document import hash_text
from octavo.errors import OctavoError
from octavo.runtime.models.llama_arguments import rope_arguments
from octavo.runtime.store.model_library import Library

TOKENS = np.random.default_rng(4).integers(0, 256, 300).tolist()
SAME = 0.02  # as in test_parity.py
STRETCHED = {"linear": {"rope_scaling": "linear", "rope_scale": 2.0}, "yarn": {"rope_scaling": "yarn", "rope_scale": 2}}


def new_llama(model, **options):
    return octavo.Llama(model, n_threads=2, **options)


def logits(model, **options):
    """Logits after a batch, and after a token more."""
    llama, rows = new_llama(model, n_ctx=512, n_batch=512, **options), []
    for tokens in (TOKENS, [7]):
        llama.eval(tokens)
        rows.append(llama.logits())
    return np.array(rows)


@pytest.mark.parametrize("way", STRETCHED)
def test_logits_are_those_of_llama_cpp(tiny_model, way):
    theirs = logits(tiny_model, attention="llama.cpp", **STRETCHED[way])
    np.testing.assert_allclose(logits(tiny_model, **STRETCHED[way]), theirs, atol=SAME)


def test_ways_differ(tiny_model):
    rows = [logits(tiny_model, **options) for options in ({}, *STRETCHED.values())]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(rows[first] - rows[second]).max() > 0.5


def test_a_scale_of_1_changes_nothing(tiny_model):
    np.testing.assert_array_equal(logits(tiny_model, rope_scaling="linear", rope_scale=1), logits(tiny_model))


@pytest.mark.parametrize("way", STRETCHED)
def test_the_context_is_stretched_too(tiny_model, way):
    assert new_llama(tiny_model).n_ctx() == 4096
    assert new_llama(tiny_model, **STRETCHED[way]).n_ctx() == 8192
    assert new_llama(tiny_model, n_ctx=300, **STRETCHED[way]).n_ctx() == 300


def test_a_text_longer_than_the_model_s_context_is_read(tiny_model):
    llama = new_llama(tiny_model, **STRETCHED["linear"])
    llama.eval([65] * 4100)
    assert llama.context.cache.n_tokens == 4100
    assert np.isfinite(llama.logits()).all()


@pytest.mark.parametrize(
    ("scaling", "scale", "named"),
    [
        ("longrope", 2, "'longrope' by 2"),
        ("", 2, "'' by 2"),
        (None, 2, "'None' by 2"),
        ("linear", 0.5, "'linear' by 0.5"),
        ("yarn", 0, "'yarn' by 0"),
        ("yarn", -2, "'yarn' by -2"),
        ("linear", float("nan"), "'linear' by nan"),
        ("linear", float("inf"), "'linear' by inf"),
    ],
)
def test_other_ways_are_refused(tiny_model, scaling, scale, named):
    sentence = f"Positions are stretched as linear or yarn, by 1 or more: not {named}."
    with pytest.raises(OctavoError) as refused:
        rope_arguments(scaling, scale)
    assert str(refused.value) == sentence
    with pytest.raises(OctavoError) as refused:
        new_llama(tiny_model, rope_scaling=scaling, rope_scale=scale)
    assert str(refused.value) == sentence


def test_an_index_is_of_its_positions(tiny_model, tmp_path):
    library, settings = Library.of(tiny_model, tmp_path), ClusterSettings()
    ways = [{}, *STRETCHED.values(), {"rope_scaling": "linear", "rope_scale": 4}, {"rope_freq_base": 5000.0}]
    identities = [identity(new_llama(tiny_model, n_ctx=512, **options), settings) for options in ways]
    assert len({str(library.index_path("a.txt", hash_text("text"), each)) for each in identities}) == len(ways)
    assert identities[0] == identity(new_llama(tiny_model), settings)
    assert len(identities[0]["rope"]) == 2  # as before there were others: indexes are found again
