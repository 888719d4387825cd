"""Commands on a hybrid model: they say what its recurrent states take, and read excerpts as text."""

import json

import pytest
from helpers import tiny_models, zoo
from helpers.command_line import SENTENCES, SHORT_ANSWER, octavo


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("hybrid") / "hybrid.gguf"
    return zoo.write_model(path, "qwen35", chat_template=tiny_models.CHAT_TEMPLATE, context_length=8192)


@pytest.fixture
def on_hybrid(model, tmp_path):
    return ["-m", str(model), "--index-dir", str(tmp_path / "indexes"), "-t", "2"]


@pytest.mark.parametrize(("options", "n_states"), [([], 2), (["--state-every", 1500], 3), (["--state-every", 0], 1)])
def test_an_index_says_what_its_states_take(on_hybrid, tmp_path, options, n_states):
    document = tmp_path / "long.txt"
    document.write_text(SENTENCES * 60)
    result = octavo("index", document, *options, *on_hybrid)
    assert result.exit_code == 0
    said = [line for line in result.stderr.splitlines() if line.startswith("Index")]
    assert all("1 MiB of it recurrent states" in line for line in said)
    assert len(said) == 2
    [row] = json.loads(octavo("list", "-o", "json", *on_hybrid[:4]).stdout)
    folder = tmp_path / "indexes" / "hybrid.octavo"
    states = list(folder.glob("*/state-*.safetensors"))
    assert len(states) == n_states
    assert row["bytes"] >= sum(file.stat().st_size for file in folder.glob("*/*.safetensors"))
    assert row["document"] == "long.txt"


def test_a_question_and_one_after_a_change_of_the_document(on_hybrid, document):
    first = octavo("ask", document, "What?", *SHORT_ANSWER, *on_hybrid)
    again = octavo("ask", document, "What?", *SHORT_ANSWER, *on_hybrid)
    assert first.exit_code == again.exit_code == 0
    assert first.stdout == again.stdout
    assert "Reading" in first.stderr
    assert "Reading" not in again.stderr


def test_excerpts_are_read_as_text_and_that_is_said(on_hybrid, tmp_path):
    folder = tmp_path / "documents"
    folder.mkdir()
    for name in ("one.txt", "two.txt"):
        (folder / name).write_text(f"This is {name}. " + SENTENCES * 3)
    octavo("index", folder, *on_hybrid)
    arguments = ["ask", folder, "What is in two?", "--read", "excerpts", *SHORT_ANSWER, *on_hybrid]
    result = octavo(*arguments)
    assert result.exit_code == 0
    assert "This model keeps a recurrent state, so it reads excerpts as text, anew for each question." in result.stderr
    assert octavo(*arguments).stdout == result.stdout


def test_inspect_describes_the_state(model):
    described = json.loads(octavo("inspect", model, "-o", "json").stdout)
    assert described["octavo_attention"]
    assert (described["layers"], described["attention_layers"]) == (2, 1)
    assert described["state_bytes"] > 100_000
    assert any(line.startswith("state bytes         13") for line in octavo("inspect", model).stdout.splitlines())


def test_bench_compares_with_llama_cpp(model):
    arguments = ["bench", "-m", model, "-t", 2, "--attention", "dense,squeezed,llama.cpp", "-n", 3, "-o", "json"]
    for fill in ("prefill", "copy", "random"):
        result = octavo(*arguments, "--depths", "200,400", "--fill", fill)
        assert result.exit_code == 0, result.output
        measured = json.loads(result.stdout)["results"]
        assert {row["depth"] for row in measured} == {200, 400}
        assert all(row["kl_divergence"] < 0.001 for row in measured if row["attention"].startswith("llama.cpp"))
