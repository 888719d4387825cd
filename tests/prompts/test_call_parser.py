"""Whatever a model writes, its calls are found in time that is linear in the text."""

import json
import signal
from contextlib import contextmanager

import pytest

from octavo.prompts.call_form import ANY, TAUGHT, CallForm, Style
from octavo.prompts.tools import CallFinder, ToolCall

from .test_tools import OF_DAYS, SHOWN

GEMMA = SHOWN["Gemma"][0]
TAGS, IN_TAGS = SHOWN["nested tags"]

#: Forms, and how a call in each begins.
BEGUN = {name: (form, text) for name, (form, text) in SHOWN.items()}
BEGUN |= {
    f"taught: {sign}": (
        form,
        f"{form.start}{form.opening}weather{form.middle}".replace(ANY, "0") + '{"city": "Rome"}' + form.closing,
    )
    for sign, form in TAUGHT.items()
}

#: What models repeat without end.
REPEATED = [
    " ",
    "\n",
    "a",
    "a:",
    "0.",
    "-",
    "'",
    '"',
    "\\'",
    "\\",
    "{",
    "[",
    "(",
    "}",
    "city=",
    "city='x',",
    "1,",
    "<|",
]
REPEATED += [
    '<|"|>',
    '<|"|>a<|"|>,',
    "{a:",
    "<a>",
    "<a><x></a><x></x>",
    "</a>",
    "]<[<a>",
    "]<[<a>]<[<x>]<[</a>]<[<x>]<[</x>",
]


@contextmanager
def bounded(seconds):
    """Fail after some seconds, also within a regular expression. A linear parser takes a thousandth."""

    def late(number, frame):
        raise AssertionError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def found_in(form, *pieces):
    """The text of an answer, and its calls."""
    finder = CallFinder(OF_DAYS, [form])
    found = [each for piece in pieces for each in finder.add(piece)] + finder.end()
    calls = [(each.name, json.loads(each.arguments)) for each in found if isinstance(each, ToolCall)]
    return "".join(each for each in found if isinstance(each, str)), calls


@pytest.mark.parametrize("name", BEGUN)
def test_a_call_that_ends_anywhere_is_read_at_once(name):
    form, text = BEGUN[name]
    many = text.replace("Ro", "Ro" * 2000)
    with bounded(60):
        for stop in range(len(text) + 1):
            found_in(form, text[:stop])
            found_in(form, *text[:stop])
        found_in(form, many)
        found_in(form, many[:-10])


@pytest.mark.parametrize("name", BEGUN)
def test_what_is_repeated_without_end_is_read_at_once(name):
    form, text = BEGUN[name]
    stops = [text.find(literal) + len(literal) for literal in form.literals if literal in text]
    stops += [text.find(word) + len(word) for word in ("weather", "city", "Ro") if word in text]
    with bounded(240):
        for repeated in [*REPEATED, *form.literals, text, *(text[:stop] for stop in set(stops))]:
            for stop in {0, *stops}:
                found_in(form, text[:stop] + repeated * (10_000 // len(repeated)))


def test_a_list_of_strings_that_is_cut_is_no_call():
    for n in (1, 18, 38, 2000):
        cut = "<|tool_call>call:weather{city:[" + ",".join(['<|"|>a<|"|>'] * n)
        with bounded(20):
            assert found_in(GEMMA, cut) == (cut, [])
            assert found_in(GEMMA, cut + "]}<tool_call|>") == ("", [("weather", {"city": ["a"] * n})])


def test_tags_that_overlap_are_read_once_each():
    unit = "]<[<a>]<[<x>]<[</a>]<[<x>]<[</x>"
    with bounded(20):
        found_in(TAGS, IN_TAGS[: IN_TAGS.index("]<[<city>")] + unit * 200 + "]<[</invoke>\n]<[</calls>")


PYTHON = SHOWN["Python"][0]


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("", {}),
        ("city='Rome', days=3,", {"city": "Rome", "days": 3}),
        ("city = \"it's\" , days = -2.5e3", {"city": "it's", "days": -2500.0}),
        ("city='a' 'b'\n'c'", {"city": "abc"}),
        ("city='''a\n\"b\"'''", {"city": 'a\n"b"'}),
        (r"city='C:\q\n', days=0x1F", {"city": "C:\\q\n", "days": 31}),
        ("city=[1, (2, 3), (4), [], {}], days={'a': {1: None}, 'b': true}",
         {"city": [1, [2, 3], 4, [], {}], "days": {"a": {"1": None}, "b": True}}),
    ],
)  # fmt: skip
def test_values_of_python_are_values_of_json(written, arguments):
    for start, end in (("[", "]"), ("", "")):
        text = f"<|tool_call_start|>{start}look-up({written}), weather(city='x'){end}<|tool_call_end|>"
        assert found_in(PYTHON, text) == ("", [("look-up", arguments), ("weather", {"city": "x"})])


@pytest.mark.parametrize(
    "written",
    ["'Rome'", "city=", "*x", "city=1+1", r"city='\x1'", "city='Rome", "city=Rome", "city=b'x'", "city={1}",
     "city=1e999", "city=...", "city=1j",
     "city=f()", "city={[1]: 2}", "city=[1", "city=" + "9" * 5000, "city=" + "[" * 200 + "]" * 200],
)  # fmt: skip
def test_what_json_has_not_is_no_call(written):
    text = f"<|tool_call_start|>[weather({written})]<|tool_call_end|>"
    assert found_in(PYTHON, text) == (text, [])


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_numbers_that_json_has_not_are_no_arguments(number):
    for form in (CallForm(Style.OBJECT, "<tool_call>", "</tool_call>"), SHOWN["a name and JSON"][0]):
        call = f'{{"name": "weather", "arguments": {{"days": {number}}}}}'
        if form.style is Style.NAMED:
            call = f'<call>functions.weather:0<args>{{"days": {number}}}</call>'
        text = f"{form.start}{call}{form.end}"
        assert found_in(form, text) == (text, [])


def test_half_a_character_is_replaced():
    text = '<tool_call>{"name": "weather", "arguments": {"city": "\\ud83d"}}</tool_call>'
    assert found_in(CallForm(Style.OBJECT, "<tool_call>", "</tool_call>"), text) == ("", [("weather", {"city": "?"})])
