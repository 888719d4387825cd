"""Chat templates of real models, from llama-cpp-python's source archive (`make test-templates` brings them here).

Each conversation is what the template gives when it is rendered as a whole, by llama-cpp-python's own formatter.
REFUSED and CHANGED_HEADS name what differs, each with the reason.
"""

import json
import os
from datetime import datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import tiny_models
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

import octavo
from octavo.prompts.chat_template import INSTRUCTION, ChatTemplate, TemplateError
from octavo.prompts.conversation_tokens import ConversationTokens
from octavo.prompts.message_forms import tool_description

FOLDER = os.environ.get("OCTAVO_TEST_TEMPLATES")
SOURCES = {path.stem: path for path in sorted(Path(FOLDER).glob("*.jinja"))} if FOLDER else {}
TOKENS = {"eos_token": "</s>", "bos_token": "<s>"}
pytestmark = pytest.mark.skipif(not FOLDER, reason="`make test-templates` runs it")

DOCUMENT = "Of ships.\n\nThe <b>Aurora</b> sailed in 1901."
SYSTEM = {"role": "system", "content": "Be kind."}
PARAMETERS = {
    "type": "object",
    "properties": {"word": {"type": "string", "description": "What."}},
    "required": ["word"],
}
TOOLS = [{"type": "function", "function": {"name": "look_up", "description": "Look up.", "parameters": PARAMETERS}}]
CALL = {"id": "call00001", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "ship", "n": 3}'}}


def joined(pieces):
    return "".join(piece.text for piece in pieces)


def user(text):
    return {"role": "user", "content": text}


def answer(text, thought="", calls=()):
    """An answer in OpenAI's form."""
    return {
        "role": "assistant",
        "content": text,
        **({"reasoning_content": thought} if thought else {}),
        **({"tool_calls": list(calls)} if calls else {}),
    }


RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "look_up", "content": "A large boat."}
TWO = [user("Who?"), answer("It was she.\n"), user(" Why? ")]
THOUGHTS = [user("Who?"), answer("\n\nShe.", "Who was it?\nShe.\n"), user("Why?"), answer("So.", "Hm."), user("When?")]
CALLS = [user("What?"), answer("", "A word.", [CALL]), RESULT, answer("A boat.", "So it is."), user("Sure?")]
IN_CALLS = [user("Who?"), answer("She."), user("What?"), answer("", "A word.", [CALL]), RESULT]

#: Fields of thoughts by other names than OpenAI's.
OWN_FIELDS = {
    "LFM2.5-8B-A1B": "thinking",
    "openai-gpt-oss-120b": "thinking",
    "upstage-Solar-Open-100B": "reasoning",
}

#: Messages, tools, and further variables of the template.
CASES = {
    "first turn": ([user("Who?")], None, {}),
    "second turn": (TWO, None, {}),
    "third turn with thoughts": (THOUGHTS, None, {}),
    "calls": (CALLS, TOOLS, {}),
    "in the middle of calls": (IN_CALLS, TOOLS, {}),
    "system message": ([SYSTEM, *TWO], None, {}),
    "no_think in the system message": ([{**SYSTEM, "content": "Be kind. /no_think"}, *TWO], None, {}),
    "no_think in the question": ([user("Who? /no_think"), *TWO[1:]], None, {}),
    "thinking on": (THOUGHTS, None, {"enable_thinking": True, "thinking": True}),
    "thinking off": (THOUGHTS, None, {"enable_thinking": False, "thinking": False}),
    "little effort": (THOUGHTS, None, {"reasoning_effort": "low"}),
}

_LISTS = (
    "Its template changes lists, which the sandbox of templates refuses, in llama-cpp-python and transformers, too."
)
_NO_SYSTEM = "Its template has no system messages: octavo puts them before the first question."
_NO_TOOLS = "Its template has neither tools nor their results: octavo describes them in the system message."
_GENERATOR = "Its template writes a generator as JSON, which fails: octavo describes tools in the system message."
#: What the template itself refuses or leaves out.
REFUSED = {
    "Kimi-K2-Instruct": {"calls": _LISTS, "in the middle of calls": _LISTS},
    "Kimi-K2-Thinking": {"calls": _LISTS, "in the middle of calls": _LISTS},
    "google-gemma-2-2b-it": {
        "calls": _NO_TOOLS,
        "in the middle of calls": _NO_TOOLS,
        "system message": _NO_SYSTEM,
        "no_think in the system message": _NO_SYSTEM,
    },
    "llama-cpp-deepseek-r1": {"calls": _GENERATOR, "in the middle of calls": _GENERATOR},
    "llama-cpp-rwkv-world": {"calls": _NO_TOOLS, "in the middle of calls": _NO_TOOLS},
    "microsoft-Phi-3.5-mini-instruct": {"calls": _NO_TOOLS, "in the middle of calls": _NO_TOOLS},
}
_IN_HEAD = "Its template writes the switch before the document: the index keeps the head that it was read with."
#: What stands before the document is another text than when the index was made.
CHANGED_HEADS = {
    "Apertus-8B-Instruct": {"thinking on": _IN_HEAD},
    "HuggingFaceTB-SmolLM3-3B": {"thinking off": _IN_HEAD},
    "Kimi-K3": {"thinking off": _IN_HEAD},
    "google-gemma-4-31B-it": {"thinking on": _IN_HEAD},
    "google-gemma-4-31B-it-interleaved": {"thinking on": _IN_HEAD},
    "ibm-granite-granite-3.3-2B-Instruct": {"thinking on": _IN_HEAD},
    "inclusionai-ling-3.0-flash": {"thinking off": _IN_HEAD},
    "openai-gpt-oss-120b": {"little effort": _IN_HEAD},
    "tencent-Hy3": {"little effort": _IN_HEAD},
}
#: Templates that look for `/no_think` in a system message.
SWITCHED_BY_SYSTEM = {"HuggingFaceTB-SmolLM3-3B", "NVIDIA-Nemotron-Nano-v2"}
_OWN_TURN = "Its template describes functions in a turn of their own: octavo does so in Hermes' form."
_IN_ITS_PLACE = "Its template writes the description in the place of another text: octavo does so in Hermes' form."
_KNOWS_NONE = "Its template does not describe functions: octavo does so in Hermes' form."
OTHERWISE_DESCRIBED = {
    "Apertus-8B-Instruct": _IN_ITS_PLACE,
    "GigaChat3-10B-A1.8B": _OWN_TURN,
    "GigaChat3.1-10B-A1.8B": _OWN_TURN,
    "HuggingFaceTB-SmolLM3-3B": _KNOWS_NONE,
    "Kimi-K2-Instruct": _OWN_TURN,
    "Kimi-K2-Thinking": _OWN_TURN,
    "Kimi-K3": _OWN_TURN,
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": _KNOWS_NONE,
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": _KNOWS_NONE,
    "deepseek-ai-DeepSeek-V3.1": _KNOWS_NONE,
    "google-gemma-2-2b-it": _KNOWS_NONE,
    "ibm-granite-granite-3.3-2B-Instruct": _OWN_TURN,
    "llama-cpp-deepseek-r1": _GENERATOR,
    "llama-cpp-rwkv-world": _KNOWS_NONE,
    "microsoft-Phi-3.5-mini-instruct": _KNOWS_NONE,
    "moonshotai-Kimi-K2": _OWN_TURN,
    "muse-glimmer": _IN_ITS_PLACE,
}
#: Templates that describe functions before the last question.
DESCRIBED_LATER = {"Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Mistral-Nemo-Instruct-2407"}


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A tokenizer with control tokens."""
    path = tiny_models.write_model(tmp_path_factory.mktemp("vocabulary") / "tiny.gguf", "llama")
    llama = octavo.Llama(path, vocab_only=True)
    yield llama
    llama.close()


@pytest.fixture(params=SOURCES)
def name(request, monkeypatch):
    monkeypatch.setattr(Jinja2ChatFormatter, "strftime_now", staticmethod(lambda form: DAY.strftime(form)))
    monkeypatch.setattr("octavo.prompts.chat_template.now", lambda: DAY)
    return request.param


DAY = datetime(2026, 5, 31)


@pytest.fixture
def llama(name, vocabulary):
    """What a prompt needs of a model."""
    return SimpleNamespace(chat_template=template_of(name), tokenize=vocabulary.tokenize)


@cache
def template_of(name):
    return ChatTemplate(SOURCES[name].read_text(), TOKENS)


@cache
def formatter_of(name):
    return Jinja2ChatFormatter(SOURCES[name].read_text(), **TOKENS)


def whole(name, messages, tools, options):
    """Render a conversation by llama-cpp-python's formatter, in the form that most templates expect or in another."""
    formatter = formatter_of(name)
    form = {"datetime": DAY.strftime("%b %d %Y %H:%M:%S"), **options}
    problem = None
    for as_objects in (True, False):
        for no_tools in (None, []):
            adapted = [in_own_form(name, message, as_objects) for message in messages]
            given = no_tools if tools is None else tools
            functions = None if given is None else json.dumps(given, ensure_ascii=False, indent=4) if given else ""
            try:
                return formatter(messages=adapted, tools=given, functions=functions, **form).prompt
            except Exception as failure:
                problem = problem or failure
    raise problem


def in_own_form(name, message, as_objects):
    """A message as the template expects it."""
    message = dict(message)
    if as_objects and "tool_calls" in message:
        message["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
            for call in message["tool_calls"]
        ]
    own = OWN_FIELDS.get(name)
    if own and "reasoning_content" in message:
        message[own] = message.pop("reasoning_content")
    return message


@pytest.mark.parametrize("case", CASES)
def test_a_conversation_is_what_the_whole_template_gives(name, llama, case):
    messages, tools, options = CASES[case]
    prompt = ConversationTokens(llama, False, options=options)
    assert prompt.has_template
    if case in REFUSED.get(name, ()):
        with pytest.raises(TemplateError):
            prompt.pieces(messages, tools)
        return
    pieces = prompt.pieces(messages, tools)
    assert joined(pieces) == whole(name, messages, tools, options)
    written = [piece.text for piece in pieces if not piece.is_template]
    assert all(
        any(text in message["content"].strip() for text in written) for message in messages if message["content"]
    )


@pytest.mark.parametrize("case", CASES)
def test_a_conversation_over_a_document_is_what_the_whole_template_gives(name, llama, case):
    """After the document. The system message stands after it, and the template sees its own words there."""
    messages, _, options = CASES[case]
    system = "".join(message["content"] for message in messages if message["role"] == "system")
    turns = [message for message in messages if message["role"] != "system"]
    prompt = ConversationTokens(llama, True, options=options)
    if REFUSED.get(name, {}).get(case) in (_LISTS, _NO_TOOLS):
        with pytest.raises(TemplateError):
            prompt.pieces(messages)
        return
    first = f"{INSTRUCTION}{DOCUMENT}\n\n" + (f"{system}\n\n" if system else "") + turns[0]["content"]
    told = [{**turns[0], "content": first}, *turns[1:]]
    before, found, after = whole(name, told, None, options).partition(DOCUMENT)
    assert found
    if name in SWITCHED_BY_SYSTEM and "no_think" in system:
        after = whole(name, [{"role": "system", "content": system}, *told], None, options).partition(DOCUMENT)[2]
    assert joined(prompt.pieces(messages)) == after
    same_head = llama.chat_template.parts(True, False).head[0] == before
    assert same_head == (case not in CHANGED_HEADS.get(name, ()))


@pytest.mark.parametrize("case", ["first turn", "second turn", "calls", "in the middle of calls"])
def test_functions_over_a_document_are_described_as_the_template_does(name, llama, case):
    """The description stands after the document; all else there is what the whole template gives with functions."""
    messages, prompt = CASES[case][0], ConversationTokens(llama, True)
    if name in OTHERWISE_DESCRIBED:
        with pytest.raises(TemplateError):
            prompt.pieces(messages, TOOLS)
        return
    description = tool_description(llama.chat_template, TOOLS)
    head = whole(name, [SYSTEM, user(DOCUMENT)], TOOLS, {}).partition(DOCUMENT)[0]
    assert "look_up" in description
    assert all(line in head for line in description.splitlines())
    asked = {**messages[0], "content": f"{INSTRUCTION}{DOCUMENT}\n\n{description}\n\n{messages[0]['content']}"}
    if name in DESCRIBED_LATER and case != "first turn":
        asked = {**asked, "content": f"{INSTRUCTION}{DOCUMENT}\n\n{messages[0]['content']}"}
    after = whole(name, [asked, *messages[1:]], TOOLS, {}).partition(DOCUMENT)[2]
    assert joined(prompt.pieces(messages, TOOLS)) == after


def test_the_archive_is_whole():
    assert len(SOURCES) >= 70
    named = REFUSED.keys() | CHANGED_HEADS.keys() | OTHERWISE_DESCRIBED.keys() | DESCRIBED_LATER | SWITCHED_BY_SYSTEM
    assert named <= SOURCES.keys()
