"""Calls in the form that each chat template of llama-cpp-python's source archive shows: written, and found again."""

import json
import os
from functools import cache
from pathlib import Path

import pytest
from helpers import tiny_models

import octavo
from octavo.prompts.call_form import HERMES, TAUGHT, forms_of, shown_form
from octavo.prompts.call_grammar import calls_grammar
from octavo.prompts.chat_template import ChatTemplate, TemplateError
from octavo.prompts.thought_form import form_of
from octavo.prompts.thought_splitter import ThoughtSplitter
from octavo.prompts.tools import AnswerReader, CallFinder, ToolCall
from octavo.serve.engine.grammar import Grammars

FOLDER = os.environ.get("OCTAVO_TEST_TEMPLATES")
SOURCES = {path.stem: path for path in sorted(Path(FOLDER).glob("*.jinja"))} if FOLDER else {}
pytestmark = pytest.mark.skipif(not FOLDER, reason="`make test-templates` runs it")

TYPES = {"text": "string", "n": "integer", "x": "number", "yes": "boolean", "list": "array", "object": "object"}
PROPERTIES = {name: {"type": kind, "description": "What."} for name, kind in TYPES.items()}
PROPERTIES["list"]["items"] = {"type": "string"}
PROPERTIES["object"] |= {"properties": {"in": {"type": "string"}}, "additionalProperties": True}
PROPERTIES["digits"] = {"type": "string", "description": "Digits."}
PARAMETERS = {"type": "object", "properties": PROPERTIES, "required": ["text"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "Do.", "parameters": PARAMETERS}}
    for name in ("look_up", "send-mail")
]
ARGUMENTS = {
    "text": 'He said "hi",\n  <b>x</b> & \\ {y}: [z] é',
    "n": 3,
    "x": -1.5,
    "yes": True,
    "list": [1, "two", {"a": False, "b": None}],
    "object": {"in": {"deep": 'v "q"'}, "empty": []},
    "digits": "42",
}
#: Calls of one answer.
CASES = {
    "one": [("look_up", ARGUMENTS)],
    "two": [("look_up", {"text": "a", "n": 1}), ("send-mail", {"text": "</b>"})],
    "no arguments": [("look_up", {})],
}

_NOT_SHOWN = "Its template leaves calls out, or refuses them: octavo writes earlier ones as text."
_ONE = "Its template allows, or writes, one call in an answer."
#: Which calls a template does not write.
UNWRITTEN = {
    "HuggingFaceTB-SmolLM3-3B": _NOT_SHOWN,
    "Kimi-K2-Instruct": _NOT_SHOWN,
    "Kimi-K2-Thinking": _NOT_SHOWN,
    "LFM2-8B-A1B": _NOT_SHOWN,
    "LFM2.5-Instruct": _NOT_SHOWN,
    "NVIDIA-Nemotron-Nano-v2": "Its template writes calls only before their results.",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": _NOT_SHOWN,
    "google-gemma-2-2b-it": _NOT_SHOWN,
    "ibm-granite-granite-3.3-2B-Instruct": _NOT_SHOWN,
    "llama-cpp-deepseek-r1": _NOT_SHOWN,
    "llama-cpp-rwkv-world": _NOT_SHOWN,
    "microsoft-Phi-3.5-mini-instruct": _NOT_SHOWN,
    "GigaChat3-10B-A1.8B": _ONE,
    "GigaChat3.1-10B-A1.8B": _ONE,
    "meta-llama-Llama-3.1-8B-Instruct": _ONE,
    "meta-llama-Llama-3.2-3B-Instruct": _ONE,
    "meta-llama-Llama-3.3-70B-Instruct": _ONE,
    "openai-gpt-oss-120b": _ONE,
}
#: Arguments that a form can tell: this one has no nulls and no empty lists, and strings where the schema says so.
TELLABLE = {"MiniMax-M3": {**ARGUMENTS, "list": ["1", "two"], "object": {"in": "<b>", "more": {"a": [1, False, "x"]}}}}
#: What stands before a call and is text for octavo.
TEXT_BEFORE = {
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "<|START_THINKING|><|END_THINKING|>",  # a thought
    "muse-glimmer": "look_up<|eom|><|start|>assistant to=send-mail",  # it names the function twice
}
#: What models write whose templates only teach calls, and the sign of the form.
WRITTEN = {
    "ibm-granite-granite-3.3-2B-Instruct": '<|tool_call|>[{"name": "look_up", "arguments": {"text": "a"}}]',
    "LFM2-8B-A1B": "<|tool_call_start|>[look_up(text='a')]<|tool_call_end|>",
    "LFM2.5-Instruct": '<|tool_call_start|>[look_up(text="a")]<|tool_call_end|>',
    "NVIDIA-Nemotron-Nano-v2": '<TOOLCALL>[{"name": "look_up", "arguments": {"text": "a"}}]</TOOLCALL>',
    "Kimi-K2-Instruct": "<|tool_calls_section_begin|><|tool_call_begin|>functions.look_up:0<|tool_call_argument_begin|>"
    '{"text": "a"}<|tool_call_end|><|tool_calls_section_end|>',
    "openai-gpt-oss-120b": "<|channel|>commentary to=functions.look_up <|constrain|>json<|message|>"
    '{"text": "a"}<|call|>',
    "meta-llama-Llama-3.1-8B-Instruct": '<|python_tag|>{"name": "look_up", "parameters": {"text": "a"}}',
    "HuggingFaceTB-SmolLM3-3B": '<tool_call>\n{"name": "look_up", "arguments": {"text": "a"}}\n</tool_call>',
}


@cache
def template_of(name):
    return ChatTemplate(SOURCES[name].read_text(), {"eos_token": "</s>", "bos_token": "<s>"})


def call(number, name, arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call0000{number}", "type": "function", "function": function}


def written(template, calls):
    """What a template writes for calls: what differs from an answer in words."""
    asked = {"role": "user", "content": "?"}
    tool_calls = [call(number, *each) for number, each in enumerate(calls)]
    plain = template.render([asked, {"role": "assistant", "content": "CONTENT"}], TOOLS)
    text = template.render([asked, {"role": "assistant", "content": "", "tool_calls": tool_calls}], TOOLS)
    before, _, after = plain.partition("CONTENT")
    start = len(os.path.commonprefix([text, before]))  # noqa: RUF071
    opened = text.rfind("<", 0, start)
    start = opened if opened > text.rfind(">", 0, start) else start
    while not after or not text.endswith(after):
        after = after[1:] if not after[1:].count("<") else after[1 + after[1:].index("<") :]
        if not after:
            return text[start:]
    return text[start : len(text) - len(after)]


def found_in(pieces, forms, forced=False):
    finder = CallFinder(TOOLS, forms, forced)
    found = [each for piece in pieces for each in finder.add(piece)] + finder.end()
    calls = [(each.name, json.loads(each.arguments)) for each in found if isinstance(each, ToolCall)]
    return calls, "".join(each for each in found if isinstance(each, str)).strip()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SOURCES)
def test_a_call_is_found_in_what_the_template_writes(name, case):
    template, calls = template_of(name), CASES[case]
    if case == "one" and name in TELLABLE:
        calls = [("look_up", TELLABLE[name])]
    try:
        text = written(template, calls)
        is_written = all(each in text for each, _ in calls)
    except TemplateError:
        is_written = False
    assert is_written == (name not in UNWRITTEN or (UNWRITTEN[name] == _ONE and case != "two"))
    if not is_written:
        return
    forms = forms_of(template)
    for pieces in ([text], list(text), [f"{text}\n"]):
        found, rest = found_in(pieces, forms)
        assert found == calls
        assert rest == "" or rest in TEXT_BEFORE[name]


@pytest.mark.parametrize("name", SOURCES)
def test_a_call_is_found_in_a_thought_that_does_not_end(name):
    template, calls = template_of(name), CASES["one"]
    thoughts = form_of(template, template.source, lambda text: False)
    try:
        text = WRITTEN.get(name) or written(template, calls)
    except TemplateError:
        pytest.skip("The template refuses calls.")
    if thoughts is None or (UNWRITTEN.get(name) == _NOT_SHOWN and name not in WRITTEN):
        pytest.skip("The model does not think, or its template shows no calls.")
    splitter, reader = ThoughtSplitter(thoughts), AnswerReader(TOOLS, forms_of(template), False, ())
    parts = [part for piece in f"{thoughts.start}Hm.\n\n{text}" for part in splitter.add(piece)] + splitter.rest()
    found = [each for part in parts for each in reader.add(part.text, part.is_thought)] + reader.end()
    assert [each.name for each in found if isinstance(each, ToolCall)] == ["look_up"]
    assert "".join(part.text for part in found if not isinstance(part, ToolCall)).startswith("Hm.")


@pytest.mark.parametrize("name", WRITTEN)
def test_a_call_is_found_in_what_the_template_teaches(name):
    text = WRITTEN[name]
    for said in (text, f"Well. {text}") if not text.startswith("{") else (text,):
        for pieces in ([said], list(said)):
            assert found_in(pieces, forms_of(template_of(name))) == (
                [("look_up", {"text": "a"})],
                said.removesuffix(text).strip(),
            )


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tiny_models.write_model(tmp_path_factory.mktemp("vocabulary") / "tiny.gguf", "llama")
    llama = octavo.Llama(path, vocab_only=True)
    yield llama
    llama.close()


@pytest.mark.parametrize("name", SOURCES)
def test_a_grammar_of_the_form_is_one(name, vocabulary):
    grammars = Grammars(vocabulary)
    grammars.made(calls_grammar(TOOLS, None, forms_of(template_of(name))[0], grammars.pattern), "tools")
    grammars.close()


def test_what_is_said_of_templates_is_true():
    assert UNWRITTEN.keys() | TELLABLE.keys() | TEXT_BEFORE.keys() | WRITTEN.keys() <= SOURCES.keys()
    assert shown_form(template_of("Qwen-Qwen3-0.6B")) == HERMES
    assert TAUGHT["<TOOLCALL>"] in forms_of(template_of("NVIDIA-Nemotron-Nano-v2"))
    for name in SOURCES:
        template = template_of(name)
        assert (shown_form(template) is None) == (UNWRITTEN.get(name, _ONE) != _ONE)
        # Of this template only what has tools fails, and not what has calls.
        assert template.shows_calls == (UNWRITTEN.get(name) != _NOT_SHOWN or name == "llama-cpp-deepseek-r1")
