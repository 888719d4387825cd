"""What `--attention` may say, how a model changes its attention, and which heads attend how."""

import json
import pickle
from dataclasses import replace

import pytest

import octavo
from octavo.cli.options import ATTENTIONS
from octavo.errors import OctavoError
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.methods import words
from octavo.runtime.methods.assignment import assign
from octavo.runtime.methods.attention import DENSE_ATTENTION, Attention
from octavo.runtime.methods.dense import Dense
from octavo.runtime.methods.duo import Duo
from octavo.runtime.methods.layer_budgets import LayerBudgets
from octavo.runtime.methods.quest import Quest
from octavo.runtime.methods.squeezed import Squeezed
from octavo.runtime.methods.streaming import Streaming
from octavo.runtime.store.plan import PLAN_VERSION, Plan, read_plan

LAYERS = [CacheLayer(2, 64, 0), CacheLayer(2, 64, 0), CacheLayer(2, 64, 16), CacheLayer(2, 64, 0)]
SCALE = (1.5, 1.15, 1.0, 0.35)
FALLEN = ((3, 1), (0, 0), (1, 1), (0, 1), (3, 0), (1, 0))
SCALES = dict.fromkeys(("squeezed", "h2o"), SCALE)
GROUPS = (0, 1, None, 2)
PLAN = Plan("abc".rjust(64, "0"), "duo+squeezed", 0.5, 8, 32, SCALES, FALLEN, GROUPS)


def served(assignments):
    """The method of each KV head, by its number."""
    by_head = {int(head): a.method for a in assignments for head in a.heads}
    return [by_head[i] for i in range(8)]


@pytest.mark.parametrize(
    ("attention", "method"),
    [
        ("dense", Attention("dense")),
        ("squeezed2", Attention("squeezed2")),
        ("duo", Attention("dense", duo=Duo())),
        ("duo+quest", Attention("quest", duo=Duo())),
        ("quest+duo", Attention("quest", duo=Duo())),
        ("plan+h2o", Attention("h2o", layers=LayerBudgets())),
        ("plan+duo+sparq", Attention("sparq", duo=Duo(), layers=LayerBudgets())),
        ("plan", Attention("squeezed", duo=Duo(), layers=LayerBudgets())),
    ],
)
def test_what_composes(attention, method):
    parsed = Attention.parse(attention, plan=PLAN)
    assert replace(parsed, text="") == replace(method, plan=PLAN)
    assert str(parsed) == attention
    assert Attention.parse(attention).needs_plan == method.needs_plan


@pytest.mark.parametrize(
    ("attention", "reason"),
    [
        ("magic", "There is no attention named 'magic': choose from auto, dense,"),
        ("", "There is no attention named ''"),
        ("duo+", "There is no attention named ''"),
        ("quest+sparq", "quest and sparq do not compose: both choose what the same heads attend."),
        ("duo+h2o", "duo and h2o do not compose: retrieval heads are those that must not forget"),
        ("streaming+duo", "duo and streaming do not compose"),
        ("plan+dense", "has no budget for the plan's layers to scale"),
        ("plan+duo", "has no budget for the plan's layers to scale"),
        ("duo+duo", "names something twice"),
    ],
)
def test_what_does_not_compose_is_refused_with_the_reason(attention, reason):
    with pytest.raises(OctavoError) as refusal:
        Attention.parse(attention, plan=PLAN)
    assert reason in str(refusal.value)


@pytest.mark.parametrize("words", ["dense", "quest:paper", "sparq+duo:retrieval=0.25", "plan", "auto:most=0.5"])
def test_an_attention_gives_its_words_back(words):
    attention = Attention.parse(words, budget=None if words.startswith("auto") else 0.5)
    assert str(attention) == words
    assert Attention.parse(**attention.as_json()) == attention == pickle.loads(pickle.dumps(attention))
    assert hash(replace(attention, plan=PLAN)) == hash(attention), "plans and parameters are mappings"


def test_words_that_say_the_default_are_the_default():
    assert Attention.parse("dense") == DENSE_ATTENTION
    assert Attention.parse("quest") != Attention.parse("quest", budget=0.5)


def test_settings_go_with_words(tiny_model):
    assert Attention.of("quest", budget=0.5) == Attention.parse("quest", budget=0.5)
    assert Attention.of(DENSE_ATTENTION, budget=None) is DENSE_ATTENTION
    with pytest.raises(OctavoError, match="An Attention has its own"):
        octavo.Llama(tiny_model, attention=DENSE_ATTENTION, quality=0.9)


def test_a_model_attends_otherwise_for_a_while(tiny_model):
    llama = octavo.Llama(tiny_model, attention="auto", quality=0.9, n_ctx=256, n_threads=1)
    before = llama.attention
    assert str(before) == "auto:quality=0.9"
    with llama.attending(DENSE_ATTENTION):
        llama.eval([1, 2, 3])
        assert llama.attention == llama.resolved_attention == DENSE_ATTENTION
    assert (llama.attention, llama.n_tokens) == (before, 0)
    with pytest.raises(ZeroDivisionError), llama.attending(DENSE_ATTENTION):
        llama.eval([1 // 0])
    assert (llama.attention, llama.n_tokens) == (before, 0)


def test_help_names_all_methods():
    assert all(f"{word}," in ATTENTIONS for word in words())


def test_sliding_layers_are_dense():
    methods = served(assign(Attention.parse("squeezed", budget=0.2), LAYERS))
    assert methods == [*[Squeezed(0.2)] * 4, Dense(), Dense(), Squeezed(0.2), Squeezed(0.2)]


def test_first_layers_are_dense_where_a_method_wants_it():
    quest = Quest(0.2, dense_layers=2)
    assert served(assign(Attention.parse("quest:dense_layers=2", budget=0.2), LAYERS)) == [*[Dense()] * 6, quest, quest]


@pytest.mark.parametrize(("share", "n_streaming"), [(None, 3), (0.5, 3), (0.25, 4), (0.26, 4), (0, 6), (1, 0)])
def test_the_heads_that_fell_first_stream(share, n_streaming):
    methods = served(assign(Attention.parse("duo+squeezed", budget=0.2, plan=PLAN, retrieval_heads=share), LAYERS))
    streaming = {i for i, method in enumerate(methods) if isinstance(method, Streaming)}
    assert streaming == {2 * layer + head for layer, head in FALLEN[:n_streaming]}
    assert {methods[i] for i in streaming} <= {Streaming(sinks=8, recent=32, positions="sequence")}
    assert methods[4:6] == [Dense(), Dense()]


def test_layer_budgets_scale_a_budget():
    squeezed = assign(Attention.parse("plan+squeezed", budget=0.2, plan=PLAN), LAYERS)[1]
    assert squeezed.heads.tolist() == [0, 1, 2, 3, 6, 7]
    assert squeezed.scale.tolist() == [1.5, 1.5, 1.15, 1.15, 0.35, 0.35]
    assert assign(Attention.parse("squeezed", budget=0.2, plan=PLAN), LAYERS)[1].scale.tolist() == [1] * 6


@pytest.mark.parametrize("attention", ["duo", "plan", "duo+quest", "plan+h2o"])
def test_a_missing_plan_is_named(attention):
    with pytest.raises(OctavoError, match=r"needs a plan of this model: `octavo profile`"):
        assign(Attention.parse(attention, budget=0.2), LAYERS)


def test_the_plan_of_another_model_is_refused():
    with pytest.raises(OctavoError, match="measured on another model"):
        assign(Attention.parse("duo", budget=0.2, plan=PLAN), LAYERS[:3])
    assign(Attention.parse("quest", budget=0.2, plan=PLAN), LAYERS[:3])  # needs none


@pytest.mark.parametrize("budget", [0.0, -1.0, 1.5, float("nan")])
def test_a_wrong_budget_is_refused(budget):
    with pytest.raises(OctavoError, match="A budget is a share of the KV cache"):
        assign(Attention.parse("quest", budget=budget), LAYERS)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_wrong_share_of_retrieval_heads_is_refused(share):
    with pytest.raises(OctavoError, match="share of retrieval heads"):
        assign(Attention.parse("duo", budget=0.2, plan=PLAN, retrieval_heads=share), LAYERS)


def plan_file(tmp_path, **changes):
    content = {
        "format_version": PLAN_VERSION,
        "model": {"name": "tiny", "sha256": "abc".rjust(64, "0")},
        "attention": "duo+squeezed",
        "retrieval_heads": 0.5,
        "layers": {"budget_scale": {name: list(scale) for name, scale in SCALES.items()}, "group": list(GROUPS)},
        "heads": {"n_sinks": 8, "n_recent": 32, "elimination": [list(pair) for pair in FALLEN]},
    }
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(content | changes))
    return path


def test_a_plan_is_read(tmp_path):
    assert read_plan(plan_file(tmp_path)) == PLAN


def test_a_plan_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OctavoError, match=r"There is no plan .*plan\.json: `octavo profile`"):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize("changes", [{"heads": {}}, {"layers": {"budget_scale": 1}}, {"retrieval_heads": "many"}])
def test_a_plan_that_lacks_something_is_refused(tmp_path, changes):
    with pytest.raises(OctavoError, match=r"cannot be used: .* Run `octavo profile` again, or mend it"):
        read_plan(plan_file(tmp_path, **changes))


def test_a_plan_of_another_format_is_refused(tmp_path):
    with pytest.raises(OctavoError, match="has format 7, and this octavo reads 3"):
        read_plan(plan_file(tmp_path, format_version=7))


def test_a_plans_own_attention_must_say_something():
    with pytest.raises(OctavoError, match="mend the plan"):
        Attention.parse("plan", plan=Plan("abc".rjust(64, "0"), "plan+quest", 0.5, 8, 32, SCALES, FALLEN, GROUPS))
