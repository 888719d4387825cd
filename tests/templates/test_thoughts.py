"""How models think, by chat templates of real models (`make test-templates` brings them here)."""

import os
from pathlib import Path

import pytest

from octavo.prompts.chat_template import LAST_WORDS, ChatTemplate, TemplateError
from octavo.prompts.thought_form import Stage, closing_of, form_of, switch_of
from octavo.prompts.thought_splitter import ThoughtSplitter

FOLDER = os.environ.get("OCTAVO_TEST_TEMPLATES")
SOURCES = {path.stem: path for path in sorted(Path(FOLDER).glob("*.jinja"))} if FOLDER else {}
pytestmark = pytest.mark.skipif(not FOLDER, reason="`make test-templates` runs it")

ASKED, THOUGHT, ANSWER = {"role": "user", "content": "How many?"}, "Two and two.\nIt adds up.", "It is 4."
OFF = {"enable_thinking": False}

#: Templates of models that think: the text that begins a thought, and the switch that turns it off: {} where that is
#: the default, None where there is none.
THINKS = {
    "Apertus-8B-Instruct": ("<|inner_prefix|>", {}),
    "Apriel-1.6-15b-Thinker-fixed": ("Here are my reasoning steps:", None),
    "Bielik-11B-v3.0-Instruct": ("<think>", {}),
    "ByteDance-Seed-OSS": ("<seed:think>", {"thinking_budget": 0}),
    "Cohere2MoE": ("<|START_THINKING|>", {"reasoning_effort": "none"}),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("<|START_THINKING|>", {}),
    "GLM-4.6": ("<think>", OFF),
    "GLM-4.7-Flash": ("<think>", OFF),
    "HuggingFaceTB-SmolLM3-3B": ("<think>", OFF),
    "Kimi-K2-Thinking": ("<think>", None),
    "Kimi-K3": ("<|open|>think<|sep|>", {"thinking": False}),
    "LFM2.5-8B-A1B": ("<think>", None),
    "LFM2.5-Instruct": ("<think>", None),
    "MiniMax-M2": ("<think>", None),
    "MiniMax-M3": ("<mm:think>", {"thinking_mode": "disabled"}),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("<think>", OFF),
    "NVIDIA-Nemotron-Nano-v2": ("<think>", {LAST_WORDS: " /no_think"}),
    "Qwen-QwQ-32B": ("<think>", {}),
    "Qwen-Qwen3-0.6B": ("<think>", OFF),
    "Qwen3.5-4B": ("<think>", OFF),
    "Reka-Edge": ("<think>", {}),
    "Spark2.5": ("<think>", OFF),
    "StepFun3.5-Flash": ("<think>", None),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ("<think>", None),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("<think>", {}),
    "deepseek-ai-DeepSeek-V3.1": ("<think>", {}),
    "deepseek-ai-DeepSeek-V3.2": ("<think>", {}),
    "deepseek-ai-DeepSeek-V4": ("<think>", {}),
    "deepseek-ai-DeepSeek-V4-Flash-0731": ("<think>", {}),
    "google-gemma-4-31B-it": ("<|channel>thought\n", {}),
    "google-gemma-4-31B-it-interleaved": ("<|channel>thought\n", {}),
    "ibm-granite-granite-3.3-2B-Instruct": ("<think>", {}),
    "inclusionai-ling-3.0-flash": ("<think>", OFF),
    "llama-cpp-deepseek-r1": ("<think>", None),
    "llama-cpp-rwkv-world": ("<think>", OFF),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("[THINK]", None),
    "muse-glimmer": ("to=self<|message|>", None),
    "openai-gpt-oss-120b": ("<|channel|>analysis<|message|>", None),
    "openbmb-MiniCPM5-1B": ("<think>", OFF),
    "poolside-Laguna-S-2.1": ("<think>", OFF),
    "poolside-Laguna-XS-2.1": ("<think>", {}),
    "poolside-Laguna-XS.2": ("<think>", {}),
    "tencent-Hy3": ("<think:opensource>", {}),
    "unsloth-Apriel-1.5": ("Here are my reasoning steps:", None),
    "upstage-Solar-Open-100B": ("<|think|>", {"reasoning_effort": "low"}),
}


def template_of(name):
    return ChatTemplate(SOURCES[name].read_text("utf-8"), {"eos_token": "</s>", "bos_token": "<s>"})


def form(name):
    return form_of(template_of(name), SOURCES[name].read_text("utf-8"), lambda text: False)


@pytest.mark.parametrize("name", SOURCES)
def test_the_form_is_found(name):
    found = form(name)
    assert (found and found.start) == THINKS.get(name, (None, None))[0]


@pytest.mark.parametrize("name", THINKS)
def test_the_switch_is_found(name):
    template, off = template_of(name), THINKS[name][1]
    assert switch_of(template, form(name), on=False) == off
    if off:
        assert form(name).stage_after(template.render([ASKED], options=off)) in (Stage.AFTER, Stage.WRAPPED)
    if off is not None:
        on = switch_of(template, form(name), on=True)
        assert form(name).stage_after(template.render([ASKED], options=on)) in (Stage.BEFORE, Stage.THOUGHT)


@pytest.mark.parametrize("name", THINKS)
def test_a_thought_that_ends_leads_to_the_answer(name):
    found, closing = form(name), closing_of(template_of(name), form(name))
    splitter = ThoughtSplitter(found, Stage.THOUGHT)
    parts = [*splitter.add(THOUGHT + closing + ANSWER), *splitter.rest()]
    assert [(part.text, part.is_thought) for part in parts] == [(THOUGHT, True), (ANSWER, False)]


@pytest.mark.parametrize("name", THINKS)
def test_an_answer_comes_apart_as_the_template_writes_it(name):
    """Templates that write the thought of the last answer."""
    template, found = template_of(name), form(name)
    try:
        told = template.render([ASKED, {"role": "assistant", "content": ANSWER, "reasoning_content": THOUGHT}])
    except TemplateError:
        pytest.skip("The template does not end with an answer.")
    begin = told.rfind(found.start.rstrip(), 0, max(told.find(THOUGHT), 0))
    if begin < 0:
        pytest.skip("The template leaves out thoughts, or what begins them.")
    splitter = ThoughtSplitter(found)
    parts = [*splitter.add(told[begin : told.index(ANSWER) + len(ANSWER)]), *splitter.rest()]
    assert [(part.text, part.is_thought) for part in parts] == [(THOUGHT, True), (ANSWER, False)]
