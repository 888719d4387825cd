"""The form in which a model writes calls of functions, found by rendering a call with its chat template.

A template that gets earlier calls writes them as the model does: rendered with a known name, known keys and known
values, it shows the texts around each. A few templates only teach a form in words: TAUGHT has those.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from enum import Enum, auto
from typing import Any

from .chat_template import ChatTemplate, PromptModel, TemplateError

#: An empty thought that a template writes before a call.
_THOUGHTS = re.compile(r"^\s*(<\|START_THINKING\|>)?(<\|END_THINKING\|>|</think>)\s*")

#: The place of an id or a number in a form that differs from call to call.
ANY = "\0"

#: The place of the text before each tag in a form.
_TAG_MARK = "<\1>"

_NAMES, _IDS, _KEYS = ("octavo_first", "octavo_second"), ("octavoid1", "octavoid2"), ("octavo_key_a", "octavo_key_b")
_SCHEMA = {"type": "object", "properties": {"octavo": {"type": "string", "description": "What."}}, "required": []}
_VALUES, _CONTENT, _NUMBER = ("octavo value one", "octavo value two"), "octavo content", 987654


class Style(Enum):
    """How name and arguments of a call are written."""

    OBJECT = auto()  # both in a JSON object, or in a list of such
    NAMED = auto()  # the name, and then a JSON object of arguments
    KEYED = auto()  # the name, and then each argument between texts of its own
    NESTED = auto()  # the name, and then each argument in tags named after it, with tags inside for lists and objects
    PYTHON = auto()  # as calls of Python
    GEMMA = auto()  # the name, and then an object in Gemma 4's notation


@dataclass(frozen=True)
class CallForm:
    """How a model writes calls.

    Parameters
    ----------
    start, end : str
        Texts before the first call and after the last one.
    opening, middle, closing : str
        Texts before a call's name, between name and arguments, and after the call; of OBJECT, none.
    name_key, arguments_key : str
        Keys in an OBJECT. Without them the name itself is the key of the arguments.
    lists : bool
        Whether OBJECTs are in a list.
    begun : bool
        Whether the prompt ends with `opening`, so that an answer may begin with a name.
    key_opening, value_opening, other_opening, value_closing : str
        Texts before a key, between a key and a string, between a key and another value, and after a value, of KEYED.
        Of NESTED, `value_closing` goes before the key of a closing tag, and `value_opening` after the key of any tag.
    """

    style: Style
    start: str = ""
    end: str = ""
    opening: str = ""
    middle: str = ""
    closing: str = ""
    name_key: str = "name"
    arguments_key: str = "arguments"
    lists: bool = False
    begun: bool = False
    key_opening: str = ""
    value_opening: str = ""
    other_opening: str = ""
    value_closing: str = ""

    @property
    def triggers(self) -> list[str]:
        """Return the texts that begin calls; none if the answer itself is a call."""
        return [text for text in (self.start.strip(), self.opening.strip().partition(ANY)[0]) if len(text) > 1]

    @property
    def literals(self) -> list[str]:
        """Return all texts of the form."""
        texts = [self.start, self.end, self.opening, self.middle, self.closing]
        texts += [self.key_opening, self.value_opening, self.other_opening, self.value_closing]
        return [part for text in texts for part in text.split(ANY) if part]

    def with_text(self, old: str, new: str) -> CallForm:
        """Return the form with a text in the place of another one."""
        texts = {field.name: getattr(self, field.name) for field in fields(self) if field.type == "str"}
        return replace(self, **{name: text.replace(old, new) for name, text in texts.items()})


#: The form of Hermes, in which octavo describes functions to models whose templates do not.
HERMES = CallForm(Style.OBJECT, "<tool_call>", "</tool_call>")

#: Forms that a template teaches in words, or that a model writes in another way than its template: each with a text of
#: the template by which it is known.
TAUGHT = {
    "functions.": CallForm(Style.NAMED, "<|channel|>commentary", "", " to=functions.", f"{ANY}<|message|>", "<|call|>"),
    "<|python_tag|>": CallForm(Style.OBJECT, "<|python_tag|>", arguments_key="parameters"),
    "<|tool_call|>": CallForm(Style.OBJECT, "<|tool_call|>", lists=True),
    "<|tool_list_start|>": CallForm(Style.PYTHON, "<|tool_call_start|>", "<|tool_call_end|>"),
    "List of tools: [": CallForm(Style.PYTHON, "<|tool_call_start|>", "<|tool_call_end|>"),
    "<TOOLCALL>": CallForm(Style.OBJECT, "<TOOLCALL>", "</TOOLCALL>", lists=True),
    "<|tool_calls_section_begin|>": CallForm(
        Style.NAMED,
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>functions.",
        f":{ANY}<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    ),
    "[TOOL_CALLS]": CallForm(Style.OBJECT, "[TOOL_CALLS]", lists=True),
    "<tool_call>": HERMES,
}


def forms_of(template: ChatTemplate | None) -> list[CallForm]:
    """Return the forms in which a model may write calls, the one that its template writes first."""
    own = None if template is None else shown_form(template)
    source = "" if template is None else template.source
    taught = [form for sign, form in TAUGHT.items() if sign in source]
    return list(dict.fromkeys([*([own] if own else []), *taught, HERMES]))


def shown_form(template: ChatTemplate) -> CallForm | None:
    """Return the form in which a template writes earlier calls; None if it leaves them out, or none is known."""
    tools = [{"type": "function", "function": {"name": "octavo_tool", "description": "Do.", "parameters": _SCHEMA}}]

    def render(calls: Sequence[Mapping[str, Any]], content: str = "") -> str:
        answer = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
        return template.render([{"role": "user", "content": "?"}, answer], tools)

    values = dict(zip(_KEYS, _VALUES, strict=True))
    try:
        plain, one = render([], _CONTENT), render([_call(0, values)])
        number = render([_call(0, {_KEYS[0]: _NUMBER})])
    except TemplateError:
        return None
    two = ""
    with suppress(TemplateError):  # several templates allow one call at a time
        two = render([_call(0, values), _call(1, values)])
    before_content, _, after_content = plain.partition(_CONTENT)
    start = _token_start(one, len(common_prefix(one, before_content)))
    if not all(mark in one[start:] for mark in (_NAMES[0], *_KEYS, *_VALUES)):
        return None
    texts = one[start:], two[start:], number[start:], after_content
    mark = re.search(rf"{_VALUES[0]}(.*?)</{_KEYS[0]}>", one)
    if mark is None or not mark[1]:
        return _form(*texts)
    form = _form(*(text.replace(mark[1], _TAG_MARK) for text in texts))
    return form and form.with_text(_TAG_MARK, mark[1])


def control_texts(model: PromptModel, forms: Sequence[CallForm]) -> dict[int, str]:
    """Return the texts of the control tokens in forms."""
    texts = {}
    for literal in {literal for form in forms for literal in form.literals}:
        for token in model.tokenize(literal.encode(), add_bos=False, special=True):
            if not model.piece(token):
                texts[token] = model.piece(token, special=True).decode(errors="replace")
    return texts


def _call(number: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": _NAMES[number], "arguments": json.dumps(arguments)}
    return {"id": _IDS[number], "type": "function", "function": function}


def _form(one: str, two: str, number: str, after: str) -> CallForm | None:
    """Return the form of one call, of two calls, and of one with a number, each with the text after it."""
    one, two = (re.sub("|".join(_IDS), ANY, text) for text in (one, two))
    first_key = one.index(_KEYS[0])
    name = one.rindex(_NAMES[0], 0, first_key)
    before, between = one[:name], one[name + len(_NAMES[0]) : first_key]
    before = _THOUGHTS.sub("", before.rpartition(_NAMES[0])[2])
    last_value = one.rindex(_VALUES[1]) + len(_VALUES[1])
    tail = _without_suffix(one[last_value:], after)
    if before.endswith('"') and "{" in before:
        return _object_form(before, between, tail)
    if between == "(":
        return CallForm(Style.PYTHON, before.strip().rstrip("["), tail.partition(")")[2].strip().lstrip("]"))
    second = two.rfind(_NAMES[1])
    gap, again = "", between
    if second >= 0 and _KEYS[0] in two[second:]:
        gap = two[two.index(_VALUES[1]) + len(_VALUES[1]) : second]
        again = two[second + len(_NAMES[1]) :].partition(_KEYS[0])[0]
    between = _with_any(between, again)
    is_json = re.search(rf'{{\s*"{_KEYS[0]}":\s*"{_VALUES[0]}",\s*"{_KEYS[1]}":\s*"{_VALUES[1]}"\s*}}', one)
    if is_json or f"{{{_KEYS[0]}:" in one:
        style = Style.NAMED if is_json else Style.GEMMA
        middle, inside = between.rpartition("{")[0], tail.index("}") + 1
        opening, closing = _repeated(before, gap.partition("}")[2], tail[inside:])
        end = tail[inside + len(closing) :].strip()
        if not before and gap:
            return CallForm(style, opening=gap.partition("}")[2], middle=middle, begun=True)
        return CallForm(style, before[: len(before) - len(opening)].strip(), end, opening, middle, closing)
    after_value = one[one.index(_VALUES[0]) + len(_VALUES[0]) : one.index(_KEYS[1])]
    before_tag, is_tag, _ = after_value.partition(f"</{_KEYS[0]}>")
    if is_tag:
        return _nested_form(before_tag, before, between, gap, tail)
    return _keyed_form(one, number, before, between, after_value, gap, tail)


def _object_form(before: str, between: str, tail: str) -> CallForm:
    start = before.rpartition("{")[0].rstrip()
    lists = start.endswith("[")
    start = start.removesuffix("[").rstrip()
    name_key = re.search(r'"(\w+)":\s*"$', before)
    arguments_key = re.search(r'"(\w+)":\s*\{\s*"$', between)
    end = re.sub(r'^["\s\w:,}\]\0]*', "", tail)
    if name_key is None or arguments_key is None:
        return CallForm(Style.OBJECT, start, end.strip(), name_key="", arguments_key="", lists=lists)
    keys = name_key[1], arguments_key[1]
    return CallForm(Style.OBJECT, start, end.strip(), name_key=keys[0], arguments_key=keys[1], lists=lists)


def _nested_form(before_tag: str, before: str, between: str, gap: str, tail: str) -> CallForm:
    key_opening, last_tag = f"{before_tag}<", f"{before_tag}</{_KEYS[1]}>"
    rest = tail.removeprefix(last_tag)
    opening, closing = _repeated(before, gap.removeprefix(last_tag), rest)
    return CallForm(
        Style.NESTED,
        before[: len(before) - len(opening)].strip(),
        rest[len(closing) :].strip(),
        opening,
        between.removesuffix(key_opening),
        closing,
        key_opening=key_opening,
        value_opening=">",
        other_opening=">",
        value_closing=f"{before_tag}</",
    )


def _keyed_form(one: str, number: str, before: str, between: str, inside: str, gap: str, tail: str) -> CallForm | None:
    key_opening = _common_suffix(between, inside)
    key_opening = key_opening[_first_border(key_opening) :]
    value_closing, middle = (
        inside[: len(inside) - len(key_opening)],
        between[: len(between) - len(key_opening)],
    )
    value_opening = one.partition(_KEYS[0])[2].partition(_VALUES[0])[0]
    other_opening = number.partition(_KEYS[0])[2].partition(str(_NUMBER))[0]
    if not (key_opening.strip() and value_closing.strip()) or not value_opening.strip():
        return None
    common = common_prefix(tail, value_closing)
    value_closing = common if common.strip() else value_closing  # a line break may separate arguments only
    rest = tail.removeprefix(value_closing)
    opening, closing = _repeated(before, gap.removeprefix(value_closing), rest)
    return CallForm(
        Style.KEYED,
        before[: len(before) - len(opening)].strip(),
        rest[len(closing) :].strip(),
        opening,
        middle,
        closing,
        key_opening=key_opening,
        value_opening=value_opening,
        other_opening=other_opening,
        value_closing=value_closing,
    )


def _repeated(before: str, gap: str, rest: str) -> tuple[str, str]:
    """Return the texts before and after each call, from the texts before, between and after two calls."""
    if not gap:
        return before.lstrip(), rest.rstrip()
    opening = _common_suffix(before, gap)
    opening = opening[_first_border(opening) :]
    between = gap[: len(gap) - len(opening)]
    closing = common_prefix(between, rest)
    if closing == between:
        return opening, closing
    return opening, closing[: len(closing) - _first_border(closing[::-1], ">]}`\n")]


def _token_start(text: str, at: int) -> int:
    """Return a place in a text, or before it the beginning of the token of angle brackets that it is in."""
    opened = text.rfind("<", 0, at)
    return opened if opened > text.rfind(">", 0, at) else at


def _first_border(text: str, borders: str = "<[{]") -> int:
    """Return the place of the first character that may begin a token of a form; 0 if there is none."""
    return next((place for place, character in enumerate(text) if character in borders), 0)


def _with_any(text: str, other: str) -> str:
    """Return a text with ANY in place of the numbers in which another one differs."""
    if text == other:
        return text
    return re.sub(r"\d+", ANY, text) if re.sub(r"\d+", ANY, text) == re.sub(r"\d+", ANY, other) else text


def _common_suffix(one: str, other: str) -> str:
    return common_prefix(one[::-1], other[::-1])[::-1]


def common_prefix(one: str, other: str) -> str:
    """Return the text with which both texts begin."""
    n = next(
        (n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )
    return one[:n]


def _without_suffix(text: str, after: str) -> str:
    """Return a text without the end that it shares with another one, cut where a token may begin."""
    common = _common_suffix(text, after)
    if common in (text, after):
        return text[: len(text) - len(common)]
    return text[: len(text) - len(common[_first_border(common, "<[\n") :])]
