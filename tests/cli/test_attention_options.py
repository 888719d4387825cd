"""`--attention`, `--plan` and `--retrieval-heads` on the command line, and `octavo chat` without a document."""

import json

import pytest
from helpers.command_line import cut, fails, octavo

from octavo.runtime.llama import Llama
from octavo.runtime.store.model_library import Library
from octavo.runtime.store.plan import PLAN_VERSION

ATTENTIONS = [
    "dense",
    "streaming",
    "h2o",
    "quest",
    "sparq",
    "squeezed",
    "squeezed2",
    "sketch",
    "duo",
    "plan",
    "plan+duo+quest",
]


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "island.txt"
    path.write_text(
        "The keeper of the island lighthouse wrote down each ship that passed. One was called Petrel.\n" * 20
    )
    return path


@pytest.fixture(scope="module")
def on_tiny(tiny_model, tmp_path_factory):
    """Options for a model that has indexes and a plan."""
    folder = tmp_path_factory.mktemp("indexes")
    write_plan(Library.of(tiny_model, folder))
    return ["-m", str(tiny_model), "--index-dir", str(folder), "-t", "2"]


def write_plan(library, path=None, **changes):
    """Write a plan by which the second head of each layer streams."""
    layers = Llama(library.model_path, n_threads=2).context.cache.layers
    heads = [[i, head] for head in (1, 0) for i in range(len(layers))]
    content = {
        "format_version": PLAN_VERSION,
        "model": {"name": "tiny", "sha256": library.model_hash},
        "attention": "duo+squeezed",
        "retrieval_heads": 0.5,
        "layers": {"budget_scale": {"h2o": [1.5, 1.0, 0.5]}, "group": [0, 1, 2]},
        "heads": {"n_sinks": 4, "n_recent": 64, "elimination": heads},
    }
    (path or library.plan_path).write_text(json.dumps(content | changes))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_ask_takes_every_attention(document, on_tiny, attention):
    result = octavo(
        "ask", document, "Which?", *on_tiny, "--attention", attention, "--budget", 0.4, "-n", 3, "-o", "json"
    )
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["attention"] == attention
    assert answer["budget"] == (1.0 if attention in ("dense", "duo") else 0.4)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_chat_needs_no_document(on_tiny, attention):
    result = octavo("chat", *on_tiny, "--attention", attention, "-n", 3, stdin="Which?\nWhere?\n/stats\n/clear\n")
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) >= 2
    told = result.stderr.replace(cut(3), "").splitlines()
    stats = [line for line in told if not line.startswith("Note: ")]  # of a budget below what the method always reads
    assert ", 0 of them the document" in stats[0]
    assert stats[2].startswith(f"attention  {attention}")
    assert stats[-1] == "Cleared."


def test_chat_without_a_document_says_nothing_of_one(on_tiny, tiny_model):
    """The prompt is the template's, and holds the question only."""
    from octavo.ask.session import Session
    from octavo.settings import Sampling

    llama = Llama(tiny_model, n_threads=2)
    session = Session(llama, Sampling(max_tokens=1, temperature=0))
    answer = session.ask("Which?")
    text = llama.detokenize(llama.input_ids[: answer.timing.prompt_tokens].tolist(), special=True).decode()
    assert text == "<|im_start|>user\nWhich?<|im_end|>\n<|im_start|>assistant\n"


def test_bench_takes_every_attention(on_tiny):
    names = ",".join(ATTENTIONS[1:7])
    options = ["--attention", names, "--depths", "600", "-n", "2", "--budget", "0.4", "--fill", "random", "-o", "json"]
    result = octavo("bench", "-m", on_tiny[1], "-t", "2", *options)
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["results"]
    assert [row["attention"] for row in rows] == ATTENTIONS[1:7]
    assert {row["budget"] for row in rows} == {0.4}


def test_bench_takes_a_plan(on_tiny, tmp_path):
    plan = tmp_path / "own.json"
    write_plan(Library.of(on_tiny[1], on_tiny[3]), plan)
    options = ["--attention", "dense,duo,plan+h2o", "--depths", "600", "-n", "2", "--budget", "0.4", "--plan", plan]
    result = octavo("bench", "-m", on_tiny[1], "-t", "2", *options, "-o", "json")
    assert result.exit_code == 0, result.stderr
    dense, duo, h2o = json.loads(result.stdout)["results"]
    assert duo["bytes_read_per_token"] < dense["bytes_read_per_token"]
    assert h2o["kv_bytes"] < dense["kv_bytes"]


def test_what_does_not_compose_is_wrong_use(document, on_tiny):
    for command in (["ask", document, "Why?", *on_tiny], ["chat", *on_tiny], ["bench", *on_tiny[:2]]):
        fails(octavo(*command, "--attention", "duo+h2o"), 2, "duo and h2o do not compose")


def test_shares_are_shares(document, on_tiny):
    fails(octavo("ask", document, "Why?", *on_tiny, "--retrieval-heads", "2"), 2, "2.0 is not in the range 0<=x<=1.")


def test_a_plan_that_is_missing_is_asked_for(document, on_tiny, tmp_path):
    elsewhere = [*on_tiny[:2], "--index-dir", tmp_path]
    fails(octavo("ask", document, "Why?", *elsewhere, "--attention", "duo"), 1, "`octavo profile` measures the model")


def test_the_plan_of_another_model_is_refused(document, on_tiny, tmp_path):
    plan = tmp_path / "other.json"
    write_plan(Library.of(on_tiny[1], on_tiny[3]), plan, model={"name": "other", "sha256": "0" * 64})
    options = ["--attention", "duo", "--plan", plan]
    fails(octavo("ask", document, "Why?", *on_tiny, *options), 1, "was measured on another model")


def test_gates_are_a_plan(document, on_tiny, tmp_path):
    gates = tmp_path / "full_attention_heads.tsv"
    gates.write_text("1\t0\n" * 3)
    gates.with_name("config.json").write_text('{"sink_size": 4, "recent_size": 64}')
    library, answers, n_indexes = Library.of(on_tiny[1], on_tiny[3]), [], []
    for plan in ([], ["--plan", gates]):  # by the plan, too, the second heads stream
        options = ["--attention", "duo", *plan, "--temp", 0, "-n", 8, "-o", "json"]
        result = octavo("ask", document, "Why?", *on_tiny, *options)
        assert result.exit_code == 0, result.stderr
        answers.append(json.loads(result.stdout)["answer"])
        n_indexes.append(len(library.indexes()))
    assert answers[0] == answers[1]
    assert n_indexes[0] == n_indexes[1]  # an index for duo depends on the heads, not on where the plan is from


def test_gates_of_another_shape_are_refused(document, on_tiny, tmp_path):
    gates = tmp_path / "gates.tsv"
    gates.write_text("1\t0\n" * 4)
    message = "The gates belong to another model: they are of 4 layers of 2 KV heads, and this model has 3 of 2."
    fails(octavo("ask", document, "Why?", *on_tiny, "--attention", "duo", "--plan", gates), 1, message)


def test_a_quality_is_covered_in_place_of_a_budget(document, on_tiny):
    options = ["--attention", "sketch", "--quality", "0.9", "-o", "json", "-n", "4", "--temp", "0"]
    answer = json.loads(octavo("ask", document, "Which ship?", *on_tiny, *options).stdout)
    assert answer["attention"] == "sketch:quality=0.9"
    assert answer["read"]["covered"] >= 0.9


def test_a_quality_that_nothing_can_cover_is_wrong_use(document, on_tiny):
    asked = ["ask", document, "Which ship?", *on_tiny, "--quality", "0.9", "--attention"]
    fails(octavo(*asked, "quest"), 1, "'quest' covers no share of the attention")
    fails(octavo(*asked, "sketch", "--budget", "0.5"), 2, "give one of them")
