"""OpenAI's completions, on a server that listens."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import tiny_models

import octavo

PROMPT = "The keeper of the island wrote every evening."


@pytest.fixture(scope="module")
def alone(tiny_model):
    """The model without a server."""
    llama = octavo.Llama(tiny_model, attention="auto", n_ctx=2048, n_threads=2)
    yield llama
    llama.close()


def text_of(answer):
    return answer["choices"][0]["text"]


def test_an_answer_is_that_of_the_model_alone(served_real, real_model):
    alone = octavo.Llama(real_model, attention="auto", n_ctx=2048, n_threads=2)
    expected = alone.create_completion(PROMPT, max_tokens=24, temperature=0)
    alone.close()
    answer = served_real.post("/v1/completions", prompt=PROMPT, max_tokens=24, temperature=0)
    assert text_of(answer) == text_of(expected)
    assert answer["choices"][0]["finish_reason"] == expected["choices"][0]["finish_reason"]
    assert {name: answer["usage"][name] for name in expected["usage"]} == expected["usage"]


def test_tokens_are_a_prompt_as_well_as_text(served, alone):
    tokens = alone.tokenize(PROMPT.encode())
    both = served.post("/v1/completions", prompt=[tokens, tokens[:3]], max_tokens=8)
    assert text_of(both) == text_of(served.post("/v1/completions", prompt=PROMPT, max_tokens=8))
    assert [choice["index"] for choice in both["choices"]] == [0, 1]


def test_a_stream_is_the_answer_in_pieces(served):
    body = {"prompt": PROMPT, "max_tokens": 20, "logprobs": 2}
    whole = served.post("/v1/completions", **body)
    chunks = served.stream("/v1/completions", **body, stream_options={"include_usage": True})
    told = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert "".join(each["text"] for each in told) == text_of(whole)
    assert [each["finish_reason"] for each in told][-1] == "length"
    assert chunks[-1]["usage"]["completion_tokens"] == 20
    tokens = [token for each in told if each["logprobs"] for token in each["logprobs"]["tokens"]]
    assert tokens == whole["choices"][0]["logprobs"]["tokens"]


def test_log_probabilities_of_a_prompt_are_those_of_its_logits(served, tiny_model):
    answer = served.post("/v1/completions", prompt=PROMPT, max_tokens=1, echo=True, logprobs=3)
    llama = octavo.Llama(tiny_model, n_ctx=512, n_threads=2, logits_all=True)
    tokens = llama.tokenize(PROMPT.encode())
    llama.eval(tokens)
    logits = llama.scores[: len(tokens)].astype(np.float64)
    llama.close()
    expected = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
    expected -= logits.max(1, keepdims=True)
    known = answer["choices"][0]["logprobs"]
    assert known["token_logprobs"][0] is None
    found = known["token_logprobs"][1 : len(tokens)]
    np.testing.assert_allclose(found, [row[token] for row, token in zip(expected, tokens[1:], strict=False)], atol=2e-2)
    best = [max(top.values()) for top in known["top_logprobs"][1 : len(tokens)]]
    np.testing.assert_allclose(best, expected[:-1].max(axis=1), atol=2e-2)
    assert text_of(answer).startswith(PROMPT)
    assert len(known["tokens"]) == len(tokens) + 1


def test_an_echo_needs_no_answer(served):
    answer = served.post("/v1/completions", prompt=PROMPT, max_tokens=0, echo=True, logprobs=0)
    assert text_of(answer) == PROMPT
    assert answer["usage"]["completion_tokens"] == 0


def test_the_end_of_an_answer_has_a_log_probability_beside_an_echo(served):
    """lm-eval asks for one token, and takes the last log probability for that token's."""
    body = {"prompt": [5, 6, 7], "max_tokens": 1, "logit_bias": {str(tiny_models.IM_END): 100}, "logprobs": 1}
    answer = served.post("/v1/completions", **body, echo=True)["choices"][0]
    assert (answer["finish_reason"], len(answer["logprobs"]["tokens"])) == ("stop", 4)
    assert served.post("/v1/completions", **body)["choices"][0]["logprobs"]["tokens"] == []


def test_a_long_prompt_has_log_probabilities_in_all_its_batches(served):
    answer = served.post("/v1/completions", prompt=[7] * 600, max_tokens=0, echo=True, logprobs=1)
    known = answer["choices"][0]["logprobs"]["token_logprobs"]
    assert len(known) == 600
    assert all(value < 0 for value in known[1:])


def test_stop_texts_end_an_answer_and_are_no_part_of_it(served):
    text = text_of(served.post("/v1/completions", prompt=PROMPT, max_tokens=40))
    stop = text[10:13]
    answer = served.post("/v1/completions", prompt=PROMPT, max_tokens=40, stop=["never to be seen", stop])
    assert text_of(answer) == text[: text.index(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_seeds_make_answers_repeatable_and_different(served):
    def drawn(**more):
        return text_of(served.post("/v1/completions", prompt=PROMPT, max_tokens=16, temperature=1.5, **more))

    assert drawn(seed=5) == drawn(seed=5)
    assert drawn(seed=5) != drawn(seed=6)
    assert drawn(seed=-1) == drawn(seed=-1)
    many = served.post("/v1/completions", prompt=PROMPT, max_tokens=16, temperature=1.5, seed=5, n=3)
    assert len({choice["text"] for choice in many["choices"]}) == 3


def test_logit_bias_forbids_and_forces_tokens(served, alone):
    token = alone.tokenize(b"z", add_bos=False)[0]
    answer = served.post("/v1/completions", prompt=PROMPT, max_tokens=4, logit_bias={str(token): 100})
    assert text_of(answer) == "zzzz"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, None),
        ({"prompt": [10**9]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": "x", "temperature": "hot"}, "temperature"),
        ({"prompt": "x", "temperature": -1}, "temperature"),
        ({"prompt": "x", "max_tokens": -5}, "max_tokens"),
        ({"prompt": "x", "n": 1000}, "n"),
        ({"prompt": "x", "logprobs": -1}, "logprobs"),
        ({"prompt": "x", "logit_bias": {"99999999": 1}}, "logit_bias"),
        ({"prompt": "x", "top_p": 7}, "top_p"),
        ({"prompt": "x", "attention": "nonsense"}, "attention"),
    ],
)
def test_what_cannot_be_is_refused_with_the_field(served, body, field):
    if body.get("prompt") == "":
        body = {"prompt": [[]]}
    status, error = served.refused("/v1/completions", **body)
    assert status == 400
    assert error["param"] == field or (field and field in error["param"])
    assert error["message"].endswith((".", "?"))


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff\xfe", b'{"prompt": NaN}', b"[" * 100_000])
def test_garbage_is_refused(served, body):
    response = served.client.post("/v1/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_a_prompt_that_is_too_long_is_refused_with_the_figures(served):
    status, error = served.refused("/v1/completions", prompt=[5] * 5000)
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert "5000 tokens" in error["message"]
    assert "2048 tokens" in error["message"]


def test_answers_end_where_the_context_does(served):
    answer = served.post("/v1/completions", prompt=[5] * 2040, max_tokens=100, logit_bias={"2": -100})
    assert answer["usage"]["total_tokens"] == 2048
    assert answer["choices"][0]["finish_reason"] == "length"


def test_many_at_once_answer_as_one_after_another(served_real):
    """Also where they go on from what others read: up to the rounding of batches of other sizes."""
    prompts = [f"{PROMPT} Letter {number}: " + "word " * (7 * number) for number in range(8)]

    def ask(prompt):
        answer = served_real.post("/v1/completions", prompt=prompt, max_tokens=1, logprobs=10)
        return sorted(answer["choices"][0]["logprobs"]["top_logprobs"][0].values())[-5:]

    expected = [ask(prompt) for prompt in prompts]
    with ThreadPoolExecutor(8) as pool:
        again = list(pool.map(ask, prompts))
        others = list(pool.map(ask, [f"{prompt}More. " for prompt in prompts]))
    np.testing.assert_allclose(again, expected, atol=0.2)
    np.testing.assert_allclose(others, [ask(f"{prompt}More. ") for prompt in prompts], atol=0.2)
    assert np.ptp([values[-1] for values in expected]) > 0.5
