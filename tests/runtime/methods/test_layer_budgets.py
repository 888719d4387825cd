"""Layer budgets: by the plan's sensitivity or importance, or by a prompt; and that the sum stays."""

import numpy as np
import pytest
from helpers import papers, tiny_models

import octavo
from octavo.errors import OctavoError
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.graph.residual import ResidualSums
from octavo.runtime.methods.compose import assign, metal_method, parse
from octavo.runtime.store.plan import Plan

LAYERS = [CacheLayer(2, 64, 0)] * 4
ORDER = tuple((layer, head) for layer in range(4) for head in range(2))
PLAN = Plan("abc", "duo+squeezed", 0.5, 8, 32, {"h2o": (0.4, 0.6, 1.0, 2.0)}, ORDER, (0, 1, 2, 2))
TOKENS = np.random.default_rng(8).integers(32, 127, 1501).tolist()


def scales_of(attention, plan=PLAN):
    [assignment] = [a for a in assign(attention, 0.2, LAYERS, plan) if a.method.name != "dense"]
    return assignment.scale[::2].tolist()


def test_a_method_gets_what_the_profile_found_best_for_it():
    assert scales_of("plan+h2o") == scales_of("plan:by=sensitivity+h2o") == [0.4, 0.6, 1.0, 2.0]
    assert scales_of("plan+streaming") == [1.0] * 4


def test_importance_is_algorithm_1():
    assert scales_of("plan:by=importance+streaming") == pytest.approx([1.65, 1.65, 0.35, 0.35])
    assert scales_of("plan:squeeze=0.2,by=importance+h2o") == pytest.approx([1.8, 1.8, 0.2, 0.2])


def test_a_prompt_needs_no_plan():
    assert not parse("plan:by=prompt+h2o").needs_plan
    assert parse("plan:by=prompt+duo+quest").needs_plan
    assert scales_of("plan:by=prompt+h2o", plan=None) == [1.0] * 4


def test_the_paper_goes_by_the_prompt():
    assert parse("plan:paper+h2o").layers == parse("plan:by=prompt,squeeze=0.35+h2o").layers
    assert metal_method("plan+quest", None) == ("quest", True)
    assert metal_method("plan:paper+quest", None) == ("quest", False)  # prompts are compared on the CPU


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.write_model(tmp_path_factory.mktemp("tiny") / "gqa.gguf", "llama", n_layer=4)


def new_llama(model, attention):
    return octavo.Llama(model, n_ctx=4096, n_batch=256, n_threads=1, attention=attention, budget=0.5)


def test_a_prompt_decides_what_layers_keep_of_it(model):
    llama = new_llama(model, "plan:by=prompt,squeeze=0.6+h2o:prefill=full")
    for _ in range(2):
        llama.reset()
        llama.eval(TOKENS[:1500])
        cache = llama.context.cache
        assert set(cache.heads["n_tail"].tolist()) == {1500}
        similarity = llama.context.sequence.residual.means
        assert len(set(similarity.tolist())) == 4
        llama.eval([TOKENS[1500]])
        expected = papers.squeeze_budgets(similarity, 0.5 * 1501, 0.6)
        np.testing.assert_allclose(cache.heads["n_tail"][::2], expected, atol=1)
        assert len(set(cache.heads["n_tail"].tolist())) == 2


def test_quest_follows_a_prompt_from_its_end_on(model):
    plain, llama = new_llama(model, "quest"), new_llama(model, "plan:by=prompt+quest")
    for each in (plain, llama):
        each.read(TOKENS[:1500])
    np.testing.assert_array_equal(llama.logits(), plain.logits())
    llama.eval(TOKENS[1500:])
    [served] = llama.context.cache.served
    assert served.heads.scale.sum() == pytest.approx(8)
    assert served.layer_scale.min() < 1
    llama.rewind(0)
    assert served.layer_scale.tolist() == [1.0] * 8


def test_a_graph_without_names_is_refused(model, monkeypatch):
    llama = new_llama(model, "plan:by=prompt+h2o")
    llama.read(TOKENS[:300])
    monkeypatch.setattr(ResidualSums, "means", np.empty(0))
    with pytest.raises(OctavoError, match="does not name what goes into their attention"):
        llama.eval(TOKENS[300:301])
