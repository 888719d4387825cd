"""`auto`: what it chooses, when it chooses anew, and that it then is what it chose."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import tiny_models
from helpers.index_builds import build, library_of

import octavo
from octavo.errors import OctavoError
from octavo.runtime.devices.choose import metal_method
from octavo.runtime.methods.attention import DENSE_ATTENTION, LLAMA_CPP_ATTENTION, Attention, plan_for
from octavo.runtime.methods.auto import SHORT, Auto
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.plan import Plan

AUTO = Attention.parse("auto")
LONG = 20_000
BUDGETS = [("auto", 0.5), ("auto", None), ("squeezed", 0.5)]
PLAN = Plan("abc", "duo+squeezed", 0.5, 8, 32, {"squeezed": (1.5, 0.5)}, ((1, 0), (0, 0)), (0, 1))


def document_of(n_tokens, n_clusters=10):
    """As much of an index as the choice depends on."""
    return SimpleNamespace(tokens=np.zeros(n_tokens, np.int32), n_clusters=n_clusters)


@pytest.mark.parametrize("document", [None, document_of(SHORT), document_of(LONG), document_of(LONG, n_clusters=0)])
def test_on_the_cpu_it_selects_by_quality(document):
    assert AUTO.resolve_for(document, on_metal=False).method == "sketch"
    with_plan = AUTO.with_plan(PLAN).resolve_for(document, on_metal=False)
    assert (with_plan.method, with_plan.layers is not None) == ("sketch", True)


@pytest.mark.parametrize(
    ("attention", "on_metal", "wanted"),
    [
        ("auto", False, [False, False]),
        ("auto", True, [False, True]),
        ("squeezed", False, [True, True]),
        ("dense", True, [False, False]),
        ("sketch", False, [False, False]),
    ],
)
def test_keys_are_clustered_only_for_what_looks_clusters_up(attention, on_metal, wanted):
    parsed = Attention.parse(attention)
    assert [parsed.wants_clusters(n_tokens, on_metal) for n_tokens in (SHORT, LONG)] == wanted


def test_a_quality_and_the_most_are_kept():
    for document in (None, document_of(LONG)):
        parameters = Attention.parse("auto:quality=0.95,most=0.5").resolve_for(document, on_metal=False).parameters
        assert (parameters["quality"], parameters["most"]) == (0.95, 0.5)
    assert Auto(quality=0.99).choose()[1]["most"] == 1.0, "nothing else limits what was asked for"
    assert Auto(most=0.1).choose()[1]["most"] == 0.1
    assert Auto(most=0.05).choose(LONG)[1]["most"] == 0.05


@pytest.mark.parametrize(
    ("document", "method"), [(None, "dense"), (document_of(SHORT), "dense"), (document_of(SHORT + 1), "squeezed")]
)
def test_on_metal_it_chooses_what_metal_has(document, method):
    assert metal_method(AUTO.with_plan(PLAN).resolve_for(document, on_metal=True)) == (method, True)
    assert metal_method(AUTO) == ("dense", True)


def test_it_composes_with_nothing_and_takes_its_own_parameters():
    with pytest.raises(OctavoError, match="auto composes with nothing"):
        Attention.parse("plan+auto", plan=PLAN)
    with pytest.raises(OctavoError, match="auto has no parameter named 'budget': its parameters are quality, most"):
        Attention.parse("auto:budget=0.5")
    assert str(Attention.parse("auto:most=0.5", quality=0.9)) == "auto:most=0.5,quality=0.9"
    assert not AUTO.needs_plan
    assert not AUTO.has_budget


def test_a_quality_stands_in_place_of_a_budget():
    assert str(Attention.parse("duo+sketch", quality=0.9)) == "duo+sketch:quality=0.9"
    with pytest.raises(OctavoError, match="'quest' covers no share of the attention on request: use auto or sketch"):
        Attention.parse("quest", quality=0.9)
    with pytest.raises(OctavoError, match="in place of a budget"):
        Attention.parse("auto", quality=0.9, budget=0.5)
    with pytest.raises(OctavoError, match="auto's quality has to be"):
        Attention.parse("auto", quality=2)


def test_a_budget_is_the_most_that_it_reads():
    found = [Attention.parse(words, budget=budget) for words, budget in BUDGETS]
    assert [(str(attention), attention.budget) for attention in found] == [
        ("auto:most=0.5", 0.125),
        ("auto", 0.125),
        ("squeezed", 0.5),
    ]
    with pytest.raises(OctavoError, match="A budget is a share"):
        Attention.parse("auto", budget=1.5)


def test_it_follows_a_plan_if_there_is_one(tmp_path):
    library = SimpleNamespace(plan_path=tmp_path / "plan.json", plan=lambda named: ("read", named))
    assert plan_for([AUTO], library) is None
    assert plan_for([LLAMA_CPP_ATTENTION, AUTO], library, "own.json") == ("read", "own.json")
    library.plan_path.touch()
    assert plan_for([AUTO], library) == ("read", None)
    assert plan_for([DENSE_ATTENTION, Attention("squeezed")], library) is None


def test_what_it_chooses_has_the_method_s_parameters():
    assert DENSE_ATTENTION.resolve_for(None, on_metal=False) == DENSE_ATTENTION
    chosen = Attention.parse("auto:most=0.5").resolve_for(None, on_metal=False)
    assert str(chosen) == "sketch:quality=0.95,most=0.5,dense=2048"
    assert chosen == Attention.parse(str(chosen))
    assert str(AUTO.with_plan(PLAN).resolve_for(LONG)) == "plan+sketch:quality=0.95,most=0.25,dense=2048"


def test_it_chooses_anew_for_each_document(tmp_path, monkeypatch):
    def choose(self, n_clustered=0, *_):
        return ("squeezed", {"budget": 0.125}) if n_clustered > 512 else ("sketch", {"quality": 0.95})

    monkeypatch.setattr(Auto, "choose", choose)
    model = tiny_models.write_model(tmp_path / "tiny.gguf", "llama", n_layer=2)
    text = "The keeper of the lighthouse wrote down each ship that passed. " * 32
    llama = octavo.Llama(model, attention="auto", n_ctx=4096, n_batch=256, n_threads=2)
    library = library_of(llama, tmp_path)
    path = build(llama, tmp_path, text)
    index, _ = open_index(path, library.model_hash)
    question = list(range(40, 80))

    def logits_over_document(attention):
        llama.set_attention(attention)
        llama.attach(index)
        llama.eval(question)
        return llama.logits()

    expected = logits_over_document(AUTO.resolve_for(len(index.tokens)))
    llama.reset()
    llama.set_attention("auto")
    assert llama.resolved_attention == AUTO.resolve_for(0)
    assert np.array_equal(logits_over_document("auto"), expected)
    assert llama.resolved_attention == AUTO.resolve_for(len(index.tokens)) != AUTO.resolve_for(0)
    llama.rewind(len(index.tokens))
    llama.eval(question)
    assert np.array_equal(llama.logits(), expected)
    llama.reset()
    assert llama.resolved_attention == AUTO.resolve_for(0)
    assert str(llama.attention) == "auto"
