"""A model that thinks, in the server: its thoughts come apart in each API, and go back to it."""

import json

import anthropic
import openai
import pytest
from helpers import thinking_model, tiny_models
from helpers.served import serving
from helpers.thinking_model import ANSWER, THOUGHT

from octavo.serve.engine.sampler import TokenSampler

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "Which ship?"}]}
N_THOUGHT = len(THOUGHT) + 2
DOCUMENT = b"The Petrel came to the island in June. Its keeper was called Anna Holm.\n" * 8


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thinking")
    with serving(thinking_model.write_model(folder / "model.gguf"), folder) as served:
        yield served


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    folder = tmp_path_factory.mktemp("endless")
    with serving(thinking_model.write_model(folder / "model.gguf", endless=True), folder) as served:
        yield served


@pytest.fixture(scope="module")
def opening(tmp_path_factory):
    folder = tmp_path_factory.mktemp("opening")
    with serving(thinking_model.write_model(folder / "model.gguf", thinking_model.OPENING), folder) as served:
        yield served


def thought_of(answer):
    message = answer["choices"][0]["message"]
    return message.get("reasoning_content"), message["content"]


def test_a_chat_has_reasoning_content(served):
    answer = served.post(CHAT, **ASKED)
    assert thought_of(answer) == (THOUGHT, ANSWER)
    usage = answer["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == N_THOUGHT
    assert usage["completion_tokens"] == N_THOUGHT + len(ANSWER) + 1


def test_a_streamed_chat_has_reasoning_content(served):
    deltas = [event["choices"][0]["delta"] for event in served.stream(CHAT, **ASKED)]
    thoughts = [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta]
    assert thoughts == list(THOUGHT)
    assert "".join(delta.get("content") or "" for delta in deltas) == ANSWER


def test_a_chat_over_a_document_thinks(served):
    file = served.read("island.txt", DOCUMENT)
    answer = served.post(CHAT, **ASKED, document=file["id"], sources=True)
    assert thought_of(answer) == (THOUGHT, ANSWER)
    off = served.post(CHAT, **ASKED, document=file["id"], reasoning_effort="none")
    assert thought_of(off) == (None, ANSWER)


@pytest.mark.parametrize(
    "off", [{"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}], ids=str
)
def test_a_chat_without_thoughts(served, off):
    answer = served.post(CHAT, **ASKED, **off)
    assert thought_of(answer) == (None, ANSWER)
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


def test_a_thought_that_was_cut_is_told_unless_thinking_is_off(endless, opening):
    cut = endless.post(CHAT, **ASKED, reasoning_budget_tokens=10)
    assert (thought_of(cut)[1], cut["notices"]) == (ANSWER, ["The thought was ended after 11 tokens."])
    assert "notices" not in endless.post(CHAT, **ASKED, reasoning_effort="none")
    assert "notices" not in opening.post(CHAT, **ASKED, reasoning_effort="none")


@pytest.mark.parametrize("name", ["system", "at", "has_document", "llama", "messages", "self"])
def test_a_variable_of_the_template_has_any_name(served, name):
    response = served.client.post(CHAT, json={**ASKED, "chat_template_kwargs": {name: [1]}})
    assert response.status_code in (200, 400), response.text
    file = served.read("island.txt", DOCUMENT)
    over_document = {**ASKED, "document": file["id"], "chat_template_kwargs": {name: [1]}}
    assert served.client.post(CHAT, json=over_document).status_code in (200, 400)


def test_a_template_without_a_switch_ends_thoughts_at_once(opening):
    assert thought_of(opening.post(CHAT, **ASKED)) == (THOUGHT, ANSWER)
    assert thought_of(opening.post(CHAT, **ASKED, reasoning_effort="none")) == (None, ANSWER)


def test_a_budget_ends_a_thought(endless):
    answer = endless.post(CHAT, **ASKED, reasoning_budget_tokens=7)
    assert thought_of(answer) == ((THOUGHT * 2)[:6], ANSWER)
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 7 + 1
    assert endless.refused(CHAT, **ASKED, reasoning_budget_tokens=-5)[0] == 400


def test_a_limit_leaves_half_of_it_to_the_answer(endless):
    """It counts all tokens, as clients expect."""
    answer = endless.post(CHAT, **ASKED, max_tokens=40)
    assert thought_of(answer) == ((THOUGHT * 5)[:19], ANSWER)
    short = endless.post(CHAT, **ASKED, max_tokens=8)
    assert (short["usage"]["completion_tokens"], short["choices"][0]["finish_reason"]) == (8, "length")
    assert thought_of(short) == (THOUGHT[:3], ANSWER[:3])


def test_a_grammar_is_for_the_answer_alone(served):
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["Shi"]}}}
    answer = served.post(CHAT, **ASKED, response_format=form)
    assert thought_of(answer) == (THOUGHT, '"Shi"')
    direct = served.post(CHAT, **ASKED, response_format=form, reasoning_effort="none")
    assert thought_of(direct) == (None, '"Shi"')


WEATHER = {"name": "get_weather", "description": "Tell.", "parameters": {"type": "object", "properties": {}}}
TOOLS = [{"type": "function", "function": WEATHER}]
CALL = '<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>'


@pytest.fixture
def says(served, monkeypatch):
    """Have the model say a text, in its control tokens, and end."""

    def say(text):
        tokens = served.server.engine.llama.tokenize(text.encode(), add_bos=False, special=True)
        said = iter([*tokens, tiny_models.IM_END])
        monkeypatch.setattr(TokenSampler, "draw", lambda *_: (next(said), None))

    return say


def test_a_call_in_a_thought_that_does_not_end_is_a_call(served, says):
    says(f"<think>Hm. {CALL}")
    choice = served.post(CHAT, **ASKED, tools=TOOLS)["choices"][0]
    assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == ("Hm. ", None)
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["get_weather"]
    assert choice["finish_reason"] == "tool_calls"
    says(f"<think>Hm. {CALL}")
    events = list(served.stream(CHAT, **ASKED, tools=TOOLS))
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "Hm. "
    assert [call["function"]["name"] for delta in deltas for call in delta.get("tool_calls") or ()] == ["get_weather"]
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    says(f"<think>Hm. {CALL}</think>")
    message = served.post(MESSAGES, **ASKED, max_tokens=400, tools=[{"name": "get_weather", "input_schema": {}}])
    assert [block["type"] for block in message["content"]] == ["thinking", "tool_use"]


def test_a_call_in_a_thought_before_an_answer_is_a_thought(served, says):
    says(f"<think>Hm. {CALL}</think>It is sunny.")
    answer = served.post(CHAT, **ASKED, tools=TOOLS)
    assert thought_of(answer) == (f"Hm. {CALL}", "It is sunny.")
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_log_probabilities_are_those_of_the_answer(served):
    answer = served.post(CHAT, **ASKED, logprobs=True)
    assert "".join(token["token"] for token in answer["choices"][0]["logprobs"]["content"]) == ANSWER


def test_a_stop_text_ends_the_answer_alone(served):
    answer = served.post(CHAT, **ASKED, stop=["u", ","])
    assert thought_of(answer) == (THOUGHT, ANSWER.partition(",")[0])


def test_completions_are_raw(served):
    prompt = "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n"
    answer = served.post("/v1/completions", model="tiny", prompt=prompt, max_tokens=40)
    assert answer["choices"][0]["text"] == f"<think>{THOUGHT}</think>{ANSWER}"


def test_a_begun_answer_continues(served):
    messages = [*ASKED["messages"], {"role": "assistant", "content": ANSWER[:2]}]
    assert thought_of(served.post(CHAT, model="tiny", messages=messages)) == (None, ANSWER[2:])


def test_earlier_thoughts_are_taken(served):
    """The template keeps them, so the prompt is longer by them."""
    told = [*ASKED["messages"], {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "So?"}]
    thought = "A thought of mine."
    with_it = [told[0], {**told[1], "reasoning_content": thought}, told[2]]
    without, more = (served.post(CHAT, model="tiny", messages=messages)["usage"] for messages in (told, with_it))
    assert more["prompt_tokens"] - without["prompt_tokens"] > len(thought) / 2
    items = [
        {"role": "user", "content": "Which ship?"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": thought}]},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "So?"},
    ]
    assert served.post(RESPONSES, model="tiny", input=items)["usage"]["input_tokens"] == more["prompt_tokens"]
    blocks = [{"type": "thinking", "thinking": thought, "signature": "x"}, {"type": "text", "text": "Yes."}]
    turns = [told[0], {"role": "assistant", "content": blocks}, told[2]]
    assert served.post(MESSAGES, model="tiny", max_tokens=40, messages=turns)["usage"]["input_tokens"] > 0
    counted = served.post(f"{MESSAGES}/count_tokens", model="tiny", messages=turns)
    assert counted["input_tokens"] == more["prompt_tokens"]


def test_a_thought_that_comes_back_holds_no_control_tokens(served):
    question = ASKED["messages"]
    thought = {"role": "assistant", "content": "Yes.", "reasoning_content": "It ends: <|im_end|>"}
    prompt = served.server.engine.llama.prompt(has_document=False)
    tokens = prompt.tokens([*question, thought, *question])
    plain = prompt.tokens([*question, {**thought, "reasoning_content": "It ends."}, *question])
    assert tokens.count(tiny_models.IM_END) == plain.count(tiny_models.IM_END)


def test_a_response_has_a_reasoning_item(served):
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none")
    response = client.responses.create(model="tiny", input="Which ship?")
    thought, message = response.output
    assert (thought.type, thought.content[0].text, thought.status) == ("reasoning", THOUGHT, "completed")
    assert (message.type, response.output_text) == ("message", ANSWER)
    assert response.usage.output_tokens_details.reasoning_tokens == N_THOUGHT
    off = client.responses.create(model="tiny", input="Which ship?", reasoning={"effort": "none"})
    assert [item.type for item in off.output] == ["message"]
    assert off.reasoning.effort == "none"


def test_a_streamed_response_has_a_reasoning_item(served):
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none")
    events = list(client.responses.create(model="tiny", input="Which ship?", stream=True))
    assert "".join(event.delta for event in events if event.type == "response.reasoning_text.delta") == THOUGHT
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == ANSWER
    kinds = [event.type.removeprefix("response.") for event in events if not event.type.endswith(".delta")]
    item = ["output_item.added", "content_part.added", "{}.done", "content_part.done", "output_item.done"]
    of_items = [kind.format(text) for text in ("reasoning_text", "output_text") for kind in item]
    assert kinds == ["created", "in_progress", *of_items, "completed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [item.type for item in events[-1].response.output] == ["reasoning", "message"]


def test_a_message_has_a_thinking_block(served):
    client = anthropic.Anthropic(base_url=served.url, api_key="none")
    asked = {"model": "tiny", "messages": ASKED["messages"]}
    thinking = {"type": "enabled", "budget_tokens": 1024}
    message = client.messages.create(**asked, max_tokens=2000, thinking=thinking)
    thought, text = message.content
    assert (thought.type, thought.thinking, text.text) == ("thinking", THOUGHT, ANSWER)
    assert thought.signature
    off = client.messages.create(**asked, max_tokens=64, thinking={"type": "disabled"})
    assert [block.type for block in off.content] == ["text"]
    again = [*asked["messages"], {"role": "assistant", "content": message.content}, {"role": "user", "content": "So?"}]
    assert client.messages.create(model="tiny", max_tokens=64, messages=again).content[-1].text == ANSWER


def test_a_streamed_message_has_a_thinking_block(served):
    client = anthropic.Anthropic(base_url=served.url, api_key="none")
    with client.messages.stream(model="tiny", messages=ASKED["messages"], max_tokens=64) as stream:
        events = list(stream)
        message = stream.get_final_message()
    assert "".join(event.thinking for event in events if event.type == "thinking") == THOUGHT
    assert (message.content[0].thinking, message.content[1].text) == (THOUGHT, ANSWER)
    assert message.content[0].signature
    starts = [event.content_block.type for event in events if event.type == "content_block_start"]
    assert starts == ["thinking", "text"]


def test_a_budget_of_a_message_ends_its_thought(endless):
    thinking = {"type": "enabled", "budget_tokens": 5}
    message = endless.post(MESSAGES, **ASKED, max_tokens=64, thinking=thinking)
    assert [block.get("thinking", block.get("text")) for block in message["content"]] == [THOUGHT, ANSWER]


def test_events_are_lines_of_json(served):
    with served.client.stream("POST", CHAT, json={**ASKED, "stream": True}) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert all(json.loads(line.removeprefix("data: ")) for line in lines[:-1])
