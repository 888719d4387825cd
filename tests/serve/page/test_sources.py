"""Sources on the page: each lands on its passage."""

from __future__ import annotations

import math
import time

import pytest
from helpers.browser import set_size
from helpers.page_server import QUOTE, REPORT

ESCAPE = "\ue00c"


EMOJI = "👩\u200d🔬🧪\U0001d518\U0001d52b é\n" * 40


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(REPORT, id="plain"),
        pytest.param(EMOJI + QUOTE + EMOJI, id="after emoji"),
        pytest.param("\ufeff" + REPORT, id="byte order mark"),
        pytest.param("x" * 7970 + " " + QUOTE + " y" * 9000, id="across parts"),
        pytest.param(QUOTE, id="the whole text"),
        pytest.param("🧪" * 20000 + QUOTE + "🧪" * 20000, id="no line or blank"),
    ],
)
def test_a_source_lands_on_its_passage(window, server, text):
    server.store("report.txt", text)
    window.open()
    window.click("#documents .open")
    window.ask("What did they object to?")
    window.click(".source")
    window.find("mark")
    assert "".join(window.texts("mark")) == QUOTE
    assert "".join(window.texts(".part")) == text
    assert window.focused()["tag"] == "MARK"
    window.until(lambda: is_in_sight(window, "mark"), "the passage is out of sight")
    assert window.text("#text-place") == "Notes \u203a Goodwill, page 12"
    assert window.find(".source").get_attribute("aria-current") == "true"
    set_size(window.driver, 900, 600)
    window.until(lambda: is_in_sight(window, "mark"), "the passage is out of sight in another window")
    window.press(ESCAPE)
    assert "source" in window.focused()["classes"]
    assert not window.all("#text:not([hidden])")


def is_in_sight(window, css):
    return window.js(
        "const [a, b] = [document.querySelector(arguments[0]), document.querySelector('#text-body')]"
        ".map((e) => e.getBoundingClientRect()); return a.top >= b.top && a.bottom <= b.bottom && a.height > 5",
        css,
    )


def test_a_megabyte_of_text_opens_at_the_passage_at_once(window, server):
    lines = [f"Line {n} of a long novel, in which one person says a thing to another. 🖋" for n in range(14_000)]
    lines[11_000] = QUOTE
    server.store("novel.txt", "\n".join(lines))
    window.open()
    window.click("#documents .open")
    window.ask("What did they object to?")
    window.click(".source")
    window.until(lambda: window.focused()["tag"] == "MARK" and is_in_sight(window, "mark"))
    time.sleep(0.3)
    assert is_in_sight(window, "mark"), "the text moved away"


def test_the_text_can_be_read_without_a_source(window, report):
    window.click("#show-text")
    window.sees("#text-body", QUOTE)
    assert window.focused()["id"] == "text-body"
    window.click("#close-text")
    assert window.focused()["id"] == "show-text"


def test_the_title_has_room_beside_the_text(window, server):
    server.store("annual-report-2024.txt", REPORT)
    window.open()
    window.click("#documents .open")
    window.ask("What did they object to?")
    window.click(".source")
    for width in (1440, 1280, 1180, 1000, 780):
        set_size(window.driver, width, 720)
        room = window.js("const t = document.querySelector('#title'); return [t.scrollWidth, t.clientWidth]")
        assert room[0] <= room[1], width
    assert {name for _, name in window.names()} >= {"Text", "Export", "New conversation"}


def test_a_mark_in_the_answer_opens_the_passage(window, server):
    server.store("report.txt", REPORT)
    server.answer = "\U0001d518 **They** objected. It was `late. Yes`. The end."
    places = [server.answer.index(end) + len(end) for end in ("objected.", "`late.", "end.")]
    server.marks = [{"start_index": 0, "end_index": place} for place in places]
    window.open()
    window.click("#documents .open")
    window.ask("What did they object to?")
    assert window.text(".answer .text") == "\U0001d518 They objected. [1] It was late. Yes. The end. [1]"
    assert window.texts(".answer .text code") == ["late. Yes"], "code has no marks"
    assert len(window.all(".source")) == 1
    assert window.text(".source .file") == "[1] report.txt"
    window.click(".answer .text .mark")
    window.find("#text mark")
    assert "".join(window.texts("#text mark")) == QUOTE
    assert {name for _, name in window.names()} >= {"Source 1"}


def test_marks_are_drawn_while_the_answer_streams(window, server):
    server.store("report.txt", REPORT)
    server.answer, server.most_words = "They objected. The branch was closed.", 2
    server.marks = [{"start_index": 0, "end_index": 14}, {"start_index": 15, "end_index": len(server.answer)}]
    window.open()
    window.click("#documents .open")
    window.ask("What did they object to?", wait=False)
    window.sees(".answer .text", "objected. [1]")
    assert "closed" not in window.text(".answer .text")
    window.click(".answer .text .mark")
    window.sees("#text mark", QUOTE)
    server.most_words = math.inf
    window.sees(".answer .text", "They objected. [1] The branch was closed. [1]")
    window.find("#send")
    assert window.find(".source").get_attribute("aria-current") == "true"
    assert window.text(".answer .text") == "They objected. [1] The branch was closed. [1]"


def test_a_text_cannot_forge_a_mark(window, server):
    server.store("report.txt", REPORT)
    server.answer = "They did.\ue0001\ue001"
    window.open()
    window.click("#documents .open")
    window.ask("What did they object to?")
    assert window.text(".answer .text") == "They did.\ufffd1\ufffd"
    assert not window.all(".answer .mark")
