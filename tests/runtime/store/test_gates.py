"""Gates of KV heads in the format of DuoAttention's authors: read as a plan, and written from one."""

import json

import numpy as np
import pytest
from helpers import papers

from octavo import OctavoError
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.methods.assignment import assign
from octavo.runtime.methods.attention import Attention
from octavo.runtime.store.plan import N_RECENT, N_SINKS, Plan, read_plan, write_gates

N_LAYERS, N_HEADS = 4, 2
N_ALL = N_LAYERS * N_HEADS
LAYERS = [CacheLayer(N_HEADS, 64, 0)] * N_LAYERS
HYBRID = [CacheLayer(N_HEADS, 64, 16 if i % 2 else 0) for i in range(N_LAYERS)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "full_attention_heads.tsv"


def save(path, gates, config=None):
    """Write files as the authors' script does."""
    np.savetxt(path, np.array(gates), delimiter="\t")
    if config is not None:
        path.with_name("config.json").write_text(json.dumps(config))


def random_gates():
    """Gates as training leaves them: some a little below 0, and all different."""
    return np.random.default_rng(3).permutation(np.linspace(-1e-4, 1, N_ALL)).reshape(N_LAYERS, N_HEADS)


def plan_of(layers, seed=5):
    heads = [(i, head) for i, layer in enumerate(layers) if not layer.window for head in range(layer.n_kv_head)]
    order = [heads[i] for i in np.random.default_rng(seed).permutation(len(heads))]
    return Plan("abc", "duo+squeezed", 0.5, 8, 32, {}, tuple(order), (None,) * len(layers))


def test_gates_are_read_as_a_plan(path):
    gates = [[0.5, 1.0], [0.0, 0.25], [0.125, 0.75], [0.9, 0.6]]
    save(path, gates, {"sink_size": 64, "recent_size": 256, "deploy_sink_size": None, "lr": 0.02})
    order = ((1, 0), (2, 0), (1, 1), (0, 0), (3, 1), (2, 1), (3, 0), (0, 1))
    assert read_plan(path) == Plan(None, "duo+squeezed", 0.5, 64, 256, {}, order, (None,) * N_LAYERS)


@pytest.mark.parametrize("n_retrieval", range(1, N_ALL))
def test_retrieval_heads_are_those_of_the_authors_rule(path, n_retrieval):
    gates, share = random_gates(), n_retrieval / N_ALL
    save(path, gates)
    full = papers.duo_full_heads(gates, 1 - share)
    streaming = read_plan(path).streaming_heads(share)
    assert len(streaming) == N_ALL - n_retrieval
    assert sorted(streaming) == [tuple(head) for head in np.argwhere(~full).tolist()]


def test_equal_gates_stream_by_layer_and_head(path):
    save(path, [[1.0, 1.0002], [-0.1, 0.0], [1.0, 0.5], [0.0, -1e-5]])  # beyond 0 and 1 they count as these
    assert read_plan(path).elimination == ((1, 0), (1, 1), (3, 0), (3, 1), (2, 1), (0, 0), (0, 1), (2, 0))


@pytest.mark.parametrize("config", [None, {"model_type": "llama"}])
def test_without_sinks_and_recent_tokens_they_are_the_defaults(path, config):
    save(path, random_gates(), config)
    plan = read_plan(path)
    assert (plan.n_sinks, plan.n_recent) == (N_SINKS, N_RECENT) == (128, 512)


@pytest.mark.parametrize("layers", [LAYERS, HYBRID])
@pytest.mark.parametrize("share", [*np.linspace(0, 1, 11).tolist(), 1 / 3])
def test_written_gates_make_the_same_heads_stream(path, layers, share):
    plan = plan_of(layers)
    write_gates(path, plan.gates(layers))
    read = read_plan(path).of_layers(layers)
    read.check(layers)
    assert read.streaming_heads(share) == plan.streaming_heads(share)
    assert (read.n_sinks, read.n_recent) == (8, 32)


@pytest.mark.parametrize("n_retrieval", range(1, N_ALL))
def test_the_authors_rule_finds_the_retrieval_heads_of_a_plan(path, n_retrieval):
    plan, share = plan_of(LAYERS), n_retrieval / N_ALL
    write_gates(path, plan.gates(LAYERS))
    gates = np.loadtxt(path, delimiter="\t")
    assert gates.min() > 0
    assert gates.max() == 1
    streaming = [tuple(head) for head in np.argwhere(~papers.duo_full_heads(gates, 1 - share)).tolist()]
    assert streaming == sorted(plan.streaming_heads(share))
    assert json.loads(path.with_name("config.json").read_text()) == {"sink_size": 8, "recent_size": 32}


def test_heads_of_layers_that_slide_have_no_part(path):
    plan = plan_of(HYBRID)
    write_gates(path, plan.gates(HYBRID))
    gates = np.loadtxt(path, delimiter="\t")
    assert np.array_equal(gates == 0, [[bool(layer.window)] * N_HEADS for layer in HYBRID])
    save(path, random_gates())  # the authors' files have gates of all layers
    own = read_plan(path).of_layers(HYBRID)
    assert set(own.elimination) == set(plan.elimination)
    assigned = assign(Attention.parse("duo", budget=0.5, plan=own, retrieval_heads=0.5), HYBRID)
    assert [len(each.heads) for each in assigned] == [4, 2, 2]  # of layers that slide, retrieval, streaming


@pytest.mark.parametrize(
    ("layers", "shape"),
    [(LAYERS[:3], "3 of 2"), ([CacheLayer(3, 64, 0)] * 4, "4 of 3"), ([CacheLayer(1, 64, 0)] * 4, "4 of 1")],
)
def test_gates_of_another_shape_are_refused(path, layers, shape):
    save(path, random_gates())
    with pytest.raises(OctavoError, match=f"they are of 4 layers of 2 KV heads, and this model has {shape}"):
        assign(Attention.parse("duo", budget=0.5, plan=read_plan(path)), layers)


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "0.5\t0.5\n0.5\n", "0.5 0.5\n", "0.5\tx\n", "0.5\tnan\n", "0.5\tinf\n", "0.5\t\n", "\xff"],
    ids=["empty", "blank", "ragged", "spaces", "word", "nan", "infinite", "missing", "bytes"],
)
def test_other_files_are_refused(path, text):
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(OctavoError, match=r"heads\.tsv cannot be read as gates: it needs a line for each layer"):
        read_plan(path)


@pytest.mark.parametrize(
    "config",
    ["{", "[]", '{"sink_size": 4}', '{"sink_size": -1, "recent_size": 8}', '{"sink_size": 4, "recent_size": "many"}'],
)
def test_a_config_that_says_no_sizes_is_refused(path, config):
    save(path, random_gates())
    path.with_name("config.json").write_text(config)
    with pytest.raises(OctavoError, match=r"config\.json cannot be read: beside gates it needs sink_size"):
        read_plan(path)


def test_another_config_is_not_overwritten(path):
    gates, config = plan_of(LAYERS).gates(LAYERS), path.with_name("config.json")
    for text in ('{"model_type": "llama"}', '{"sink_size": 8, "recent_size": 64}'):
        config.write_text(text)
        with pytest.raises(OctavoError, match=r"is there already, and does not say sink_size 8 and recent_size 32"):
            write_gates(path, gates)
        assert config.read_text() == text
        assert not path.exists()
    same = '{"sink_size": 8, "recent_size": 32, "lr": 0.02}'
    config.write_text(same)
    write_gates(path, gates)
    assert config.read_text() == same


def test_layers_with_different_numbers_of_heads_have_no_gates():
    layers = [CacheLayer(2, 64, 0), CacheLayer(1, 64, 0)]
    with pytest.raises(OctavoError, match="different numbers of KV heads"):
        plan_of(layers).gates(layers)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("gates.json", r"is not a TSV file's name: give one that ends in \.tsv"), ("no/gates.tsv", "There is no folder")],
)
def test_a_name_that_cannot_be_written_is_refused(tmp_path, name, reason):
    with pytest.raises(OctavoError, match=reason):
        write_gates(tmp_path / name, plan_of(LAYERS).gates(LAYERS))


def test_a_plan_of_gates_gives_layers_equal_budgets(path):
    save(path, random_gates())
    for attention in ("plan", "plan+duo+squeezed", "plan:by=importance+duo+squeezed"):
        selected, streamed = assign(Attention.parse(attention, budget=0.5, plan=read_plan(path)), LAYERS)
        assert (selected.method.name, streamed.method.name) == ("squeezed", "streaming")
        assert selected.scale.tolist() == [1.0] * 4
        assert (streamed.method.sinks, streamed.method.recent) == (N_SINKS, N_RECENT)
