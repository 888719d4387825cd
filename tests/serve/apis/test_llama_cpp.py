"""The endpoints of llama.cpp's server."""

import json

import pytest
from helpers import tiny_models
from helpers.talking_model import ANSWER, GAP_MARKS

PROMPT = "Hello?\n"
HELLO = [{"role": "user", "content": "Hello?"}]
TEXT = "\n".join(f"In year {year} the keeper wrote {year * 7} letters." for year in range(20))


@pytest.mark.parametrize("path", ["/completion", "/completions"])
def test_a_prompt_is_continued(talking, path):
    answer = talking.post(path, prompt=PROMPT, temperature=0, seed=-1)
    assert (answer["content"], answer["stop"], answer["stop_type"], answer["tokens"]) == (ANSWER, True, "eos", [])
    assert (answer["prompt"], answer["model"], answer["index"]) == (PROMPT, "tiny", 0)
    assert (answer["tokens_predicted"], answer["tokens_evaluated"]) == (
        len(ANSWER) + 1,
        answer["timings"]["prompt_n"] + answer["timings"]["cache_n"],
    )
    assert (answer["truncated"], answer["has_new_line"], answer["stopping_word"]) == (False, False, "")
    settings = answer["generation_settings"]
    assert (settings["temperature"], settings["seed"], settings["n_ctx"]) == (0, 0xFFFFFFFF, 2048)
    assert "completion_probabilities" not in answer


def test_a_stream_has_its_own_events(talking):
    events = talking.stream("/completion", prompt=PROMPT)
    assert "".join(event["content"] for event in events) == ANSWER
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    tokens = [token for event in events for token in event["tokens"]]
    assert talking.post("/detokenize", tokens=tokens)["content"] == ANSWER
    assert (events[-1]["stop_type"], events[-1]["generation_settings"]["stream"]) == ("eos", True)
    assert events[-1]["timings"]["predicted_n"] == len(ANSWER) + 1


def test_the_end_says_why(talking):
    limited = talking.post("/completion", prompt=PROMPT, n_predict=3)
    assert (limited["content"], limited["stop_type"], limited["tokens_predicted"]) == (ANSWER[:3], "limit", 3)
    stopped = talking.post("/completion", prompt=PROMPT, stop=[ANSWER[4:6]])
    assert (stopped["content"], stopped["stop_type"], stopped["stopping_word"]) == (ANSWER[:4], "word", ANSWER[4:6])
    nothing = talking.post("/completion", prompt=PROMPT, n_predict=0)
    assert (nothing["content"], nothing["stop_type"], nothing["tokens_predicted"]) == ("", "limit", 0)


def test_an_answer_may_fill_the_context(talking):
    answer = talking.post("/completion", prompt=PROMPT, n_predict=-1, ignore_eos=True, temperature=0)
    assert (answer["truncated"], answer["stop_type"]) == (True, "limit")
    assert answer["tokens_predicted"] + answer["tokens_evaluated"] in (2048, 2049)
    assert answer["content"].startswith(ANSWER)
    biases = answer["generation_settings"]["logit_bias"]
    assert {"token": tiny_models.IM_END, "bias": None} in biases  # minus infinity


def test_prompts_have_many_forms(talking):
    tokens = talking.post("/tokenize", content=PROMPT)["tokens"]
    for prompt in (
        tokens,
        [*tokens[:2], talking.post("/detokenize", tokens=tokens[2:])["content"]],
        {"prompt_string": PROMPT},
    ):
        answer = talking.post("/completion", prompt=prompt)
        assert (answer["content"], answer["tokens_evaluated"]) == (ANSWER, len(tokens))
    assert talking.post("/completion", prompt=[PROMPT])["content"] == ANSWER
    several = talking.post("/completion", prompt=[tokens, PROMPT, {"prompt_string": PROMPT}, [*tokens[:1], "?\n"]])
    assert [(each["content"], each["index"]) for each in several] == [(ANSWER, number) for number in range(4)]
    streamed = talking.stream("/completion", prompt=[PROMPT, PROMPT])
    assert [event["index"] for event in streamed if event["stop"]] == [0, 1]


@pytest.mark.parametrize(
    "prompt", [None, [], {}, {"text": "a"}, [[None]], 7, [10**9], {"prompt_string": "a", "multimodal_data": ["aa"]}]
)
def test_other_prompts_are_refused(talking, prompt):
    status, error = talking.refused("/completion", prompt=prompt)
    assert (status, bool(error["message"])) == (400, True)


def test_several_answers_differ_by_their_seeds(served):
    answers = served.post("/completion", prompt=PROMPT, n_cmpl=3, temperature=2, seed=1, n_predict=8)
    assert [answer["index"] for answer in answers] == [0, 1, 2]
    assert len({answer["content"] for answer in answers}) == 3
    again = served.post("/completion", prompt=PROMPT, temperature=2, seed=2, n_predict=8)
    assert (again["content"], again["generation_settings"]["seed"]) == (answers[1]["content"], 2)


def test_probabilities_and_tokens(talking):
    answer = talking.post("/completion", prompt=PROMPT, n_probs=3, return_tokens=True)
    [first, *_] = told = answer["completion_probabilities"]
    assert [each["id"] for each in told] == answer["tokens"]
    assert (first["token"], first["bytes"], first["top_logprobs"][0]["id"]) == (
        ANSWER[0],
        [ord(ANSWER[0])],
        first["id"],
    )
    assert [len(each["top_logprobs"]) for each in told] == [3] * len(ANSWER)
    assert first["top_logprobs"][0]["logprob"] == first["logprob"] <= 0
    events = talking.stream("/completion", prompt=PROMPT, n_probs=2)
    streamed = [each["id"] for event in events for each in event.get("completion_probabilities", ())]
    assert streamed == answer["tokens"]


@pytest.mark.parametrize(
    "more",
    [{"json_schema": {"enum": ["W"]}}, {"grammar": 'root ::= "\\"" letter "\\""\nletter ::= [W]'}],
    ids=["schema", "grammar"],
)
def test_answers_keep_to_a_form(talking, more):
    assert talking.post("/completion", prompt=PROMPT, **more)["content"] == '"W"'


def test_biases(talking):
    [token] = talking.post("/tokenize", content=ANSWER[0])["tokens"]
    for bias in ([[token, False]], [[ANSWER[0], -100]], {str(token): -100}):
        assert talking.post("/completion", prompt=PROMPT, logit_bias=bias, n_predict=1)["content"] != ANSWER[0]


def test_fields_of_an_answer_may_be_chosen(talking):
    names = ["content", "generation_settings/top_k", "prompt", "nothing", "nothing/else", "content/else"]
    answer = talking.post("/completion", prompt=PROMPT, response_fields=names, top_k=7)
    assert answer == {"content": ANSWER, "generation_settings/top_k": 7, "prompt": PROMPT}
    last = talking.stream("/completion", prompt=PROMPT, response_fields=["stop", "stop_type"])[-1]
    assert last == {"stop": True, "stop_type": "eos"}


def test_a_stream_tells_how_far_its_prompt_is_read(talking):
    events = talking.stream("/completion", prompt="A word that is read here alone: " * 40, return_progress=True)
    told = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert told[-1]["processed"] == told[-1]["total"] == events[-1]["tokens_evaluated"]


def test_what_is_ignored_is_named(talking):
    more = {"id_slot": 0, "cache_prompt": False, "mirostat": 1, "samplers": [], "t_max_predict_ms": 5}
    response = talking.client.post("/completion", json={"prompt": PROMPT, **more})
    assert response.headers["x-octavo-ignored"] == "id_slot, mirostat, samplers, t_max_predict_ms, cache_prompt"
    response = talking.client.post("/completion", json={"prompt": PROMPT, "cache_prompt": True, "n_probs": None})
    assert (response.status_code, "x-octavo-ignored" in response.headers) == (200, False)


def test_a_prompt_over_a_document(talking):
    file = talking.read("keeper.txt", TEXT.encode())
    answer = talking.post("/completion", prompt=PROMPT, document="keeper.txt", sources=True)
    assert (answer["content"], answer["document"]["file_id"]) == (ANSWER, file["id"])
    assert (answer["basis"]["kind"], answer["prompt"], answer["tokens_evaluated"] > 300) == ("document", PROMPT, True)
    assert isinstance(answer["annotations"], list)


def test_a_gap_is_filled(filling):
    gap = {"input_prefix": "a = ", "input_suffix": f" + b{GAP_MARKS[0]}"}
    answer = filling.post("/infill", **gap)
    assert answer["content"] == ANSWER
    assert answer["prompt"] == f"{GAP_MARKS[0]}a = {GAP_MARKS[1]} + b{GAP_MARKS[0]}{GAP_MARKS[2]}"
    [first, *_], vocabulary = filling.post("/tokenize", content=GAP_MARKS[0])["tokens"], tiny_models.N_VOCAB
    assert first == vocabulary
    n_marks = answer["tokens_evaluated"] - sum(
        len(filling.post("/tokenize", content=text, parse_special=False)["tokens"]) for text in gap.values()
    )
    assert n_marks == len(GAP_MARKS)  # users' texts are none
    files = [{"filename": "b.py", "text": "b = 2"}, {"text": "c = 3"}]
    more = filling.post("/infill", **gap, input_extra=files, prompt="0")
    assert more["prompt"].startswith(f"\n\n--- snippet ---\n\nb = 2\n\n--- snippet ---\n\nc = 3{GAP_MARKS[0]}")
    assert more["prompt"].endswith(f"{GAP_MARKS[2]}0")
    for wrong in ({}, {"filename": "a"}, {"filename": 1, "text": "a"}, {"text": 1}):
        assert filling.refused("/infill", **gap, input_extra=[wrong])[0] == 400


def test_a_model_without_marks_fills_no_gap(talking):
    status, error = talking.refused("/infill", input_prefix="a", input_suffix="b")
    assert (status, "was not made to fill a gap" in error["message"]) == (400, True)


def test_properties(talking):
    told = talking.client.get("/props").json()
    assert (told["total_slots"], told["model_path"], told["model_alias"]) == (4, "talking.gguf", "tiny")
    assert (told["chat_template"], told["bos_token"], told["eos_token"]) == (
        tiny_models.CHAT_TEMPLATE,
        "<|endoftext|>",
        "<|im_end|>",
    )
    defaults = told["default_generation_settings"]
    assert (defaults["n_ctx"], defaults["params"]["n_predict"], defaults["params"]["temperature"]) == (2048, 96, 0)


def test_slots_are_requests_that_may_run(talking):
    assert [slot["is_processing"] for slot in talking.client.get("/slots").json()] == [False] * 4
    assert talking.client.get("/slots?fail_on_no_slot=1").status_code == 200
    with talking.client.stream(
        "POST", "/completion", json={"prompt": PROMPT, "ignore_eos": True, "n_predict": 1000, "stream": True}
    ) as response:
        lines = response.iter_lines()
        next(lines)
        slots = talking.client.get("/slots").json()
        assert [(slot["id"], slot["n_ctx"]) for slot in slots] == [(number, 2048) for number in range(4)]
        assert [slot["is_processing"] for slot in slots] == [True, False, False, False]
    talking.wait_until_idle()


def test_the_prompt_of_a_conversation_is_told(talking):
    prompt = talking.post("/apply-template", messages=HELLO)["prompt"]
    assert prompt == "<|im_start|>user\nHello?<|im_end|>\n<|im_start|>assistant\n"
    answer, chat = talking.post("/completion", prompt=prompt), talking.post("/v1/chat/completions", messages=HELLO)
    assert answer["content"] == chat["choices"][0]["message"]["content"]
    assert answer["tokens_evaluated"] == chat["usage"]["prompt_tokens"]


def test_pieces_of_tokens(served):
    told = served.post("/tokenize", content="Hé", with_pieces=True)["tokens"]
    pieces = b"".join(
        each["piece"].encode() if isinstance(each["piece"], str) else bytes(each["piece"]) for each in told
    )
    assert pieces.decode() == "Hé"
    assert [each["id"] for each in told] == served.post("/tokenize", content="Hé")["tokens"]
    assert json.dumps(told).count("[") > 1  # half a character is a list of bytes
