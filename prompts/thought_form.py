"""How models write down their thoughts before they answer: a table of forms, which one a model uses, and for how long.

The model's own chat template shows its form, or the tokens of its vocabulary do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Self

import llama_cpp

from .chat_template import LAST_WORDS, ChatTemplate, PromptModel, TemplateError

#: Notice that a template cannot turn thinking off.
NO_SWITCH = "This model's chat template has no switch for thinking: octavo ends each thought as soon as it begins."

#: Texts of a conversation. The template's text around them shows how it writes thoughts.
_QUESTION, _THOUGHT, _ANSWER = (f"[octavo:{name}]" for name in ("asked", "thought", "answered"))

#: Names under which templates take the thought of an earlier answer.
THOUGHT_NAMES = ("reasoning_content", "thinking", "reasoning")

#: Variables that turn thinking on and off in templates: name, value for on, values for off.
_SWITCHES: Sequence[tuple[str, Any, Sequence[Any]]] = (
    ("enable_thinking", True, (False,)),
    ("thinking", True, (False,)),
    ("thinking_mode", "enabled", ("disabled",)),
    ("thinking_budget", 512, (0,)),
    ("reasoning_effort", "high", ("none", "no_think", "low")),
)

#: Words after a question that turn thinking off in templates.
_WORDS = (" /no_think", " /nothink")

#: Number of last tokens of a prompt that may begin or end a thought.
_TAIL = 32

#: The first of the characters that replace control tokens: surrogates, which no decoded text has.
_FIRST_CHARACTER = 0xDC80


class Stage(Enum):
    """The part of an answer in which a text is."""

    BEFORE = auto()  # at its beginning
    THOUGHT = auto()
    AFTER = auto()  # after a thought, or after a part of the answer
    WRAPPED = auto()  # in an answer that a tag has opened
    ANSWER = auto()


@dataclass(frozen=True)
class ThoughtForm:
    """How a model writes its thoughts.

    Parameters
    ----------
    start, end : str
        Texts before and after a thought.
    opens, closes : sequence of str
        Texts that may come before and after the answer.
    again : str
        Text that may come before `start` and `opens` after a thought or a part of the answer.
    repeats : bool
        Whether a thought may follow a part of the answer.
    sign : str
        Text that only templates of this form have; by default `end`.
    """

    start: str
    end: str
    opens: Sequence[str] = ()
    closes: Sequence[str] = ()
    again: str = ""
    repeats: bool = False
    sign: str = ""

    @property
    def starts(self) -> list[str]:
        """Return the texts that may begin a thought."""
        return list(dict.fromkeys((self.start, self.again + self.start)))

    @property
    def openings(self) -> list[str]:
        """Return the texts that may begin the answer."""
        return list(dict.fromkeys(before + text for before in ("", self.again) for text in self.opens))

    @property
    def closing(self) -> str:
        """Return a text that ends a thought and leads to the answer."""
        if self.opens:
            return f"{self.end}{self.again}{self.opens[0]}"
        return f"\n{self.end}\n\n" if self.end == "</think>" else f"\n{self.end}"

    def stage_after(self, prompt: str) -> Stage:
        """Return where an answer begins after a prompt, or after the end of one."""
        prompt = prompt.rstrip()
        if prompt.endswith(self.start.rstrip()):
            return Stage.THOUGHT
        if prompt.endswith(tuple(self.opens)):
            return Stage.WRAPPED
        ends = [self.start + self.end + self.again, *([] if self.end in self.closes else [self.end])]
        return Stage.AFTER if prompt.endswith(tuple(ends)) else Stage.BEFORE


#: All forms, the general ones last.
FORMS = (
    ThoughtForm(  # gpt-oss
        "<|channel|>analysis<|message|>",
        "<|end|>",
        ("<|channel|>final<|message|>", "<|channel|>commentary<|message|>"),
        ("<|end|>",),
        "<|start|>assistant",
        repeats=True,
        sign="<|channel|>analysis<|message|>",
    ),
    ThoughtForm("<|channel>thought\n", "<channel|>", repeats=True),  # Gemma 4
    ThoughtForm(  # Command A
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        ("<|START_RESPONSE|>",),
        ("<|END_RESPONSE|>",),
        sign="<|START_RESPONSE|>",
    ),
    ThoughtForm("<|START_THINKING|>", "<|END_THINKING|>", ("<|START_TEXT|>",), ("<|END_TEXT|>",)),  # Command A+
    ThoughtForm("[THINK]", "[/THINK]"),  # Mistral
    ThoughtForm("<seed:think>", "</seed:think>"),  # Seed-OSS
    ThoughtForm("<mm:think>", "</mm:think>"),  # MiniMax M3
    ThoughtForm("<think:opensource>", "</think:opensource>"),  # Hunyuan 3
    ThoughtForm("◁think▷", "◁/think▷"),  # Kimi-VL
    ThoughtForm(  # Kimi K3
        "<|open|>think<|sep|>", "<|close|>think<|sep|>", ("<|open|>response<|sep|>",), ("<|close|>response<|sep|>",)
    ),
    ThoughtForm(  # Solar Open
        "<|think|>", "<|end|>", ("<|content|>",), ("<|end|>",), "<|begin|>assistant", sign="<|begin|>assistant<|think|>"
    ),
    ThoughtForm(  # Muse
        "to=self<|message|>", "<|eom|>", ("to=user<|message|>",), (), "<|start|>assistant ", sign="to=self<|message|>"
    ),
    ThoughtForm("<|inner_prefix|>", "<|inner_suffix|>", repeats=True),  # Apertus
    ThoughtForm("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", closes=("[END FINAL RESPONSE]",)),  # Apriel
    ThoughtForm("Here is my thought process:", "Here is my response:"),  # Granite 3.2
    ThoughtForm(  # Granite 3.3
        "<think>", "</think>", ("<response>",), ("</response>",), sign="<think></think> and write your response"
    ),
    ThoughtForm("<thought>", "</thought>"),  # EXAONE Deep
    ThoughtForm("<think>", "</think>"),  # Qwen, DeepSeek, GLM, SmolLM, Nemotron, MiniMax, and most others
)


def form_of(template: ChatTemplate, source: str, is_token: Callable[[str], bool]) -> ThoughtForm | None:
    """Find the form that a template teaches, or else one whose texts are tokens.

    Parameters
    ----------
    source : str
        The template's source.
    is_token : callable
        Returns whether a text is a token of the vocabulary.

    Returns
    -------
    ThoughtForm or None
        None if the model does not think.
    """
    taught = "\n".join([source, *(text for name in THOUGHT_NAMES if (text := _remembered(template, name)))])
    for form in FORMS:
        if (form.sign or form.end) in taught:
            return form
    return next((form for form in FORMS if not form.sign and is_token(form.start) and is_token(form.end)), None)


def closing_of(template: ChatTemplate, form: ThoughtForm) -> str:
    """Return the text that the template writes between a thought and the answer."""
    for name in THOUGHT_NAMES:
        _, found, after = _remembered(template, name).partition(_THOUGHT)
        between, answered, _ = after.partition(_ANSWER)
        if found and answered and form.end in between:
            return between
    return form.closing


def switch_of(template: ChatTemplate, form: ThoughtForm, on: bool) -> Mapping[str, Any] | None:
    """Find the variables that turn thinking on or off in a template.

    Returns
    -------
    mapping of str to values, or None
        The variables; an empty mapping if the template does so by default. None if it has no switch.
    """

    def rendered(options: Mapping[str, Any]) -> str:
        with suppress(TemplateError):
            return template.render([{"role": "user", "content": _QUESTION}], options=options)
        return ""

    default = rendered({})
    if form.stage_after(default) is Stage.THOUGHT if on else _is_closed(form, default):
        return {}
    for name, on_value, off_values in _SWITCHES:
        with_on = rendered({name: on_value})
        for off_value in off_values:
            with_off = rendered({name: off_value})
            if with_on and with_on != with_off and (_is_closed(form, with_off) or with_off == default):
                wanted, value = (with_on, on_value) if on else (with_off, off_value)
                return {} if wanted == default else {name: value}
    for words in _WORDS:
        if not on and _is_closed(form, rendered({LAST_WORDS: words})):
            return {LAST_WORDS: words}
    return None


def _is_closed(form: ThoughtForm, prompt: str) -> bool:
    """Return whether a prompt leaves no room for a thought."""
    return form.stage_after(prompt) in (Stage.AFTER, Stage.WRAPPED)


def _remembered(template: ChatTemplate, name: str) -> str:
    """Render an earlier answer, whose thought has this name; "" if it fails."""
    answered = {"role": "assistant", "content": _ANSWER, name: _THOUGHT}
    with suppress(TemplateError):
        return template.render([{"role": "user", "content": _QUESTION}, answered]).rpartition(_QUESTION)[2]
    return ""


@dataclass(frozen=True)
class Thoughts:
    """How a model thinks, in its own tokens.

    Text that spells a control token is text. So each control token has a character in `form` that no text has.

    Parameters
    ----------
    form : ThoughtForm
        The form, with these characters.
    characters : mapping of int to str
        The character of each control token.
    texts : mapping of int to str
        The text of each of these characters, for `str.translate`.
    closing : sequence of int
        Tokens that end a thought and lead to the answer.
    plain : ThoughtForm
        The form in plain text, as prompts have it.
    template : ChatTemplate
        The model's chat template.
    """

    form: ThoughtForm
    characters: Mapping[int, str]
    texts: Mapping[int, str]
    closing: Sequence[int]
    plain: ThoughtForm
    template: ChatTemplate

    @classmethod
    def of(cls, model: PromptModel) -> Self | None:
        """Find out from its chat template and its vocabulary how a model thinks; None if it does not."""
        template = model.chat_template
        if template is None:
            return None

        def tokens_of(text: str) -> list[int]:
            return list(model.tokenize(text.encode(), add_bos=False, special=True))

        form = form_of(template, template.source, lambda text: len(tokens_of(text)) == 1)
        if form is None:
            return None
        characters: dict[int, str] = {}
        texts: dict[int, str] = {}
        for tag in (*form.starts, form.end, *form.openings, *form.closes):
            for token in tokens_of(tag):
                if llama_cpp.llama_vocab_is_control(model._model.vocab, token) and token not in characters:
                    characters[token] = chr(_FIRST_CHARACTER + len(characters))
                    texts[_FIRST_CHARACTER + len(texts)] = model._model.token_get_text(token)
        by_length = sorted(texts, key=lambda character: -len(texts[character]))

        def encoded(text: str) -> str:
            for character in by_length:
                text = text.replace(texts[character], chr(character))
            return text

        in_characters = replace(
            form,
            start=encoded(form.start),
            end=encoded(form.end),
            opens=tuple(map(encoded, form.opens)),
            closes=tuple(map(encoded, form.closes)),
            again=encoded(form.again),
        )
        return cls(in_characters, characters, texts, tokens_of(closing_of(template, form)), form, template)

    def stage_after(self, model: PromptModel, prompt: Sequence[int]) -> Stage:
        """Return where an answer begins after a prompt's tokens."""
        text = b"".join(model.piece(token, special=True) for token in prompt[-_TAIL:]).decode(errors="replace")
        return self.plain.stage_after(text)

    def begin(self, model: PromptModel, prompt: Sequence[int], budget: int) -> tuple[list[int], Stage]:
        """Return a prompt's tokens, and where an answer begins after them. A thought that may have no tokens ends."""
        tokens, stage = list(prompt), self.stage_after(model, prompt)
        if stage is Stage.THOUGHT and budget == 0:
            tokens += self.closing
            stage = self.stage_after(model, tokens)
        return tokens, stage

    def switch(self, on: bool) -> Mapping[str, Any] | None:
        """Find the template's variables that turn thinking on or off (`switch_of`)."""
        return switch_of(self.template, self.plain, on)


class Thinking:
    """Settings of thinking, for one model.

    Parameters
    ----------
    thoughts : Thoughts, optional
        How the model thinks; None if it does not.
    think : bool, optional
        Whether the model should think; None leaves that to its chat template.
    budget : int, optional
        Largest number of tokens of a thought.

    Attributes
    ----------
    options : mapping
        Variables of the chat template that turn thinking on or off.
    has_no_switch : bool
        Whether thinking should be off, but the template has no switch.
    is_off : bool
        Whether each thought ends as soon as it begins.
    """

    def __init__(self, thoughts: Thoughts | None, think: bool | None, budget: int | None) -> None:
        switch = thoughts.switch(think) if thoughts is not None and think is not None else {}
        self.thoughts = thoughts
        self.options: Mapping[str, Any] = switch or {}
        self.has_no_switch = think is False and switch is None
        self._budget = 0 if self.has_no_switch else budget
        self.is_off = self._budget == 0

    def budget(self, room: int, max_tokens: int | None) -> int:
        """Return how many tokens a thought may have. The answer after it needs room in the context.

        Parameters
        ----------
        room : int
            Number of tokens that still fit the context.
        max_tokens : int, optional
            Largest number of tokens of the answer. The thought leaves room for as many, but for no more than half.
        """
        if self.thoughts is None:
            return 0
        kept = min(room // 2, max_tokens or room)
        most = max(room - kept - len(self.thoughts.closing), 0)
        return most if self._budget is None else min(self._budget, most)
