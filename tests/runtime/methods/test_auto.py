"""`auto`: what it chooses, when it chooses anew, and that it then is what it chose."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import tiny_models
from helpers.index_builds import build, library_of

import octavo
from octavo.errors import OctavoError
from octavo.runtime.methods import auto as auto_module
from octavo.runtime.methods.auto import LONG, SHORT, Auto
from octavo.runtime.methods.compose import chosen, metal_method, parse, plan_for, with_budget, with_quality
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.plan import Plan

KV_TYPES = ["f16", "q8_0", "q4_0"]
PLAN = Plan("abc", "duo+squeezed", 0.5, 8, 32, {"squeezed": (1.5, 0.5)}, ((1, 0), (0, 0)), (0, 1))


def document_of(n_tokens, n_clusters=10, kv_type="f16"):
    """As much of an index as the choice depends on."""
    return SimpleNamespace(tokens=np.zeros(n_tokens, np.int32), n_clusters=n_clusters, kv_type=kv_type)


@pytest.mark.parametrize(
    ("document", "method"),
    [
        (None, "sketch"),
        (document_of(LONG - 1), "sketch"),
        (document_of(LONG), "squeezed"),
        (document_of(LONG, n_clusters=0), "sketch"),
    ],
)
def test_the_document_decides(document, method):
    assert parse(Auto().choose(None, document, on_metal=False)).method == method
    with_plan = parse(Auto().choose(PLAN, document, on_metal=False), PLAN)
    assert (with_plan.method, with_plan.layers is not None) == (method, True)


def test_a_quality_and_the_most_are_kept():
    for document in (None, document_of(LONG)):
        settings = parse(Auto(quality=0.95, most=0.5).choose(None, document, on_metal=False)).settings
        assert (settings["quality"], settings["most"]) == (0.95, 0.5)
    assert parse(Auto(quality=0.99).choose_for(0)).settings["most"] == 1.0, "nothing else limits what was asked for"
    assert parse(Auto(most=0.1).choose_for(0)).settings["most"] == 0.1
    assert parse(Auto(most=0.05).choose_for(LONG)).settings == {"budget": 0.05}
    assert parse(Auto(most=0.5).choose_for(LONG)).settings == {"budget": 0.125}


def test_the_budget_has_room_for_the_lookup_in_rows_of_4_bits():
    words = {kv_type: Auto().choose(None, document_of(LONG, kv_type=kv_type), on_metal=False) for kv_type in KV_TYPES}
    assert [parse(each).settings["budget"] for each in words.values()] == [0.125, 0.125, 0.25]
    assert parse(Auto(most=0.1).choose_for(LONG, kv_type="q4_0")).settings == {"budget": 0.1}


@pytest.mark.parametrize(
    ("document", "method"), [(None, "dense"), (document_of(SHORT), "dense"), (document_of(SHORT + 1), "squeezed")]
)
def test_on_metal_it_chooses_what_metal_has(document, method):
    words = Auto().choose(PLAN, document, on_metal=True)
    assert metal_method(words, PLAN) == (method, True)
    assert metal_method("auto", None) == ("dense", True)


def test_it_composes_with_nothing_and_takes_its_own_parameters():
    with pytest.raises(OctavoError, match="auto composes with nothing"):
        parse("plan+auto", PLAN)
    with pytest.raises(OctavoError, match="auto has no parameter named 'budget': its parameters are quality, most"):
        parse("auto:budget=0.5")
    assert with_quality("auto:most=0.5", 0.9) == "auto:most=0.5,quality=0.9"
    assert not parse("auto").needs_plan
    assert not parse("auto").has_budget


def test_a_budget_is_the_most_that_it_reads():
    assert with_budget("auto", 0.5) == ("auto:most=0.5", 0.125)
    assert with_budget("auto", None) == ("auto", 0.125)
    assert with_budget("squeezed", 0.5) == ("squeezed", 0.5)
    with pytest.raises(OctavoError, match="A budget is a share"):
        with_budget("auto", 1.5)


def test_it_follows_a_plan_if_there_is_one(tmp_path):
    library = SimpleNamespace(plan_path=tmp_path / "plan.json", plan=lambda named: ("read", named))
    assert plan_for(["auto"], None, library) is None
    assert plan_for(["llama.cpp", "auto"], "own.json", library) == ("read", "own.json")
    library.plan_path.touch()
    assert plan_for(["auto"], None, library) == ("read", None)
    assert plan_for(["dense", "squeezed"], None, library) is None


def test_what_it_chooses_has_the_method_s_parameters():
    assert chosen("dense", None, None, on_metal=False) == "dense"
    assert chosen("auto:most=0.5", None, None, on_metal=False) == Auto(most=0.5).choose_for(0)


@pytest.fixture
def short_texts(monkeypatch):
    """Choose over documents of 600 tokens as over long ones."""
    monkeypatch.setattr(auto_module, "SHORT", 256)
    monkeypatch.setattr(auto_module, "LONG", 512)


def test_it_chooses_anew_for_each_document(tmp_path, short_texts):
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

    expected = logits_over_document(Auto().choose_for(len(index.tokens)))
    llama.reset()
    llama.set_attention("auto")
    assert llama.chosen == Auto().choose_for(0)
    assert np.array_equal(logits_over_document("auto"), expected)
    assert llama.chosen == Auto().choose_for(len(index.tokens)) != Auto().choose_for(0)
    llama.rewind(len(index.tokens))
    llama.eval(question)
    assert np.array_equal(llama.logits(), expected)
    llama.reset()
    assert llama.chosen == Auto().choose_for(0)
    assert llama.attention == "auto"
