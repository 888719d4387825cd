"""Models that think answer at once in evaluations."""

import json

import pytest
from helpers import thinking_model
from helpers.evaluation_runs import evaluate
from helpers.thinking_model import ANSWER

import octavo
from octavo.prompts.direct_prompt import DirectPrompt

#: Without a switch: the prompt begins the thought, or the model does.
NO_SWITCH = thinking_model.OPENING.replace("<think>{% endif %}", "{% endif %}")
TEMPLATES = {"switch": thinking_model.TEMPLATE, "begun": thinking_model.OPENING, "no switch": NO_SWITCH}


@pytest.fixture(params=TEMPLATES)
def llama(request, tmp_path):
    llama = octavo.Llama(thinking_model.write_model(tmp_path / "tiny.gguf", TEMPLATES[request.param]), n_ctx=2048)
    yield llama
    llama.close()


def test_scores_judge_answers(llama, tmp_path):
    questions = [{"question": "Which ship?", "answers": [ANSWER]}]
    data = tmp_path / "data.json"
    data.write_text(json.dumps([{"document": "The ship came at noon. " * 20, "questions": questions}]))
    notices = []
    [row] = evaluate(llama, tmp_path, "fixed-context", notice=notices.append, data=data, n_samples=1)["results"]
    assert row["score"] == 1
    assert notices == [
        "This model thinks before it answers. Here it answers at once: scores judge answers, not thoughts."
    ]


@pytest.mark.parametrize("has_document", [True, False])
def test_a_prompt_ends_after_a_thought(llama, has_document):
    prompt = DirectPrompt(llama, has_document)
    for tokens in (prompt.first_question("Which ship?"), prompt.tail()):
        assert llama.detokenize(tokens, special=True).decode().endswith("<|im_start|>assistant\n<think></think>")


def test_what_asks_no_question_says_nothing_of_thoughts(llama, tmp_path):
    notices = []
    evaluate(llama, tmp_path, "agreement", notice=notices.append, n_samples=1)
    assert notices == []


def test_a_model_without_thoughts_is_asked_as_ever(tiny_model):
    llama = octavo.Llama(tiny_model, vocab_only=True)
    assert DirectPrompt(llama).first_question("Who?") == llama.prompt().first_question("Who?")
    assert DirectPrompt(llama).tail() == llama.prompt().tail()
    llama.close()
