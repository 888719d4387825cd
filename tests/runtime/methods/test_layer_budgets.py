"""Layer budgets: by the plan's sensitivity or importance; and that the sum stays."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import papers, tiny_models

import octavo
from octavo.runtime.devices.choose import metal_method
from octavo.runtime.document.cache_layer import CacheLayer, Rope
from octavo.runtime.methods.assignment import assign
from octavo.runtime.methods.attention import Attention
from octavo.runtime.methods.layer_budgets import importance_groups
from octavo.runtime.store.plan import Plan

LAYERS = [CacheLayer(2, 64, 0, rope=Rope(np.ones(8), interleaved=False))] * 4
ORDER = tuple((layer, head) for layer in range(4) for head in range(2))
PLAN = Plan("abc", "duo+squeezed", 0.5, 8, 32, {"h2o": (0.4, 0.6, 1.0, 2.0)}, ORDER, (0, 1, 2, 2))
TOKENS = np.random.default_rng(8).integers(32, 127, 1501).tolist()


def scales_of(attention, plan=PLAN):
    assignments = assign(Attention.parse(attention, budget=0.2, plan=plan), LAYERS)
    [assignment] = [a for a in assignments if a.method.name != "dense"]
    return assignment.scale[::2].tolist()


def test_a_method_gets_what_the_profile_found_best_for_it():
    assert scales_of("plan+h2o") == scales_of("plan:by=sensitivity+h2o") == [0.4, 0.6, 1.0, 2.0]
    assert scales_of("plan+streaming") == [1.0] * 4


def test_importance_is_algorithm_1():
    assert scales_of("plan:by=importance+streaming") == pytest.approx([1.65, 1.65, 0.35, 0.35])
    assert scales_of("plan:squeeze=0.2,by=importance+h2o") == pytest.approx([1.8, 1.8, 0.2, 0.2])


def test_metal_has_them():
    assert metal_method(Attention.parse("plan+quest")) == ("quest", True)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.write_model(tmp_path_factory.mktemp("tiny") / "gqa.gguf", "llama", n_layer=4)


def test_layers_keep_what_algorithm_1_gives_them(model):
    similarity = [0.2, 0.9, 0.5, 0.95]
    groups = tuple(importance_groups(similarity, [False] * 4))
    plan = replace(PLAN, groups=groups)
    attention = "plan:by=importance,squeeze=0.6+h2o:prefill=full"
    settings = {"n_ctx": 4096, "n_batch": 256, "n_threads": 1, "budget": 0.5}
    llama = octavo.Llama(model, attention=attention, plan=plan, **settings)
    for _ in range(2):
        llama.reset()
        llama.eval(TOKENS[:1500])
        cache = llama.context.cache
        assert set(cache.table.heads["n_tail"].tolist()) == {1500}
        llama.eval([TOKENS[1500]])
        expected = papers.squeeze_budgets(similarity, 0.5 * 1501, 0.6)
        np.testing.assert_allclose(cache.table.heads["n_tail"][::2], expected, atol=1)
        assert len(set(cache.table.heads["n_tail"].tolist())) == 2
