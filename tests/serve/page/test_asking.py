"""Questions and answers on the page."""

from __future__ import annotations

import math
import re

import pytest
from helpers.browser import set_size
from helpers.page_server import QUOTE, REPORT, cite


def test_an_answer_streams_and_ends_with_figures_and_sources(window, server, report):
    server.answer, server.most_words = "They objected to the goodwill of one branch.", 2
    window.js(
        "window.said = []; new MutationObserver(() => said.push(document.querySelector('#status').textContent))"
        ".observe(document.querySelector('#status'), {childList: true})"
    )
    window.ask("What did they object to?", wait=False)
    window.sees(".answer .text", "They objected")
    assert "branch" not in window.texts(".answer .text")[0]
    assert window.find("#stop").is_displayed()
    assert not window.all(".line")[0].is_displayed()
    server.most_words = math.inf
    window.sees(".answer .text", server.answer)
    window.find("#send")
    [line] = window.shown(".line summary")
    assert re.fullmatch(r"From all of report\.txt[\d.]+ sDetails", line)
    window.click(".line summary")
    figures = window.text(".figures")
    for words in ("Keys and values read\n12%", "First token after", "tokens/s", "Not computed again"):
        assert words in figures
    assert f"{report.tokens:,} of {report.tokens + 26:,} tokens" in figures
    assert window.text(".source") == f"{QUOTE}\nreport.txt\nNotes \u203a Goodwill, page 12\n31% of the attention"
    window.find("#send")
    # A screen reader hears the whole answer once, not each token.
    assert window.js("return said") == [f"Answer: {server.answer} 1 source."]
    [asked] = server.chats
    assert asked["document"] == [report.id]
    assert asked["messages"] == [{"role": "user", "content": "What did they object to?"}]
    assert asked["stream"]
    assert asked["sources"]
    assert {"attention", "temperature", "max_tokens", "reads", "reasoning_effort"}.isdisjoint(asked)


def test_a_second_question_takes_the_conversation_along(window, server, report):
    window.ask("What happened?")
    window.ask("And why?")
    roles = [(one["role"], one["content"]) for one in server.chats[1]["messages"][1:]]
    assert roles == [("assistant", "The answer."), ("user", "And why?")]
    window.click("#new")
    assert not window.all(".conversation:not([hidden]) .turn")
    window.ask("Once more?")
    assert len(server.chats[2]["messages"]) == 1


def test_a_thought_is_folded_and_taken_along(window, server, report):
    server.thought, server.most_words = "They ask of <b>auditors</b>.", 2
    window.ask("What happened?", wait=False)
    window.sees(".wait", "Thinking")
    server.most_words = math.inf
    window.sees(".answer .text", server.answer)
    assert window.text(".thought") == "Thought"
    window.click(".thought summary")
    window.sees(".thought p", server.thought)
    window.until(lambda: not window.all("[aria-busy=true]"), "no end")  # a question waits for the answer before it
    server.thought = ""
    window.ask("And why?")
    thought = server.chats[1]["messages"][1]["reasoning_content"]
    assert thought == "They ask of <b>auditors</b>. "
    assert not window.all(".turn:last-child .thought")[0].is_displayed()


def test_stop_ends_the_answer_here_and_there(window, server, report):
    server.answer, server.token_s = "word " * 500, 0.02
    window.ask("What happened?", wait=False)
    window.sees(".answer .text", "word word")
    window.click("#stop")
    window.sees(".body .problem", "Stopped.")
    window.until(lambda: server.aborted == 1)
    words = window.texts(".answer .text")[0].count("word")
    assert 2 <= words < 200
    server.answer = "Short."
    window.click(".body .problem button")
    window.sees(".answer .text", "Short.")
    assert len(window.all(".turn")) == 1


def test_an_answer_from_elsewhere_is_called_so(window, server, report):
    server.sources = lambda text: []
    window.ask("What is the capital of France?")
    assert "No passage stands out" in window.text(".sources")


def test_without_a_document_there_are_no_sources(window, server):
    window.open()
    window.ask("Who are you?")
    assert window.text(".answer .text") == "The answer."
    assert not window.find(".answer").find_element("class name", "sources").is_displayed()
    assert window.texts(".basis") == [""]
    assert server.chats[0]["messages"] == [{"role": "user", "content": "Who are you?"}]


@pytest.mark.parametrize("when", ["fail_chat", "fail_stream"])
def test_an_error_is_told_beside_the_question_and_can_be_tried_again(window, server, report, when):
    window.refused = True
    setattr(server, when, "The question does not fit: 9,000 tokens of 8,192.")
    server.answer = "One two three."
    window.ask("What happened?")
    window.sees(".answer .problem", "The question does not fit: 9,000 tokens of 8,192.")
    assert window.texts(".answer .text")[0].strip() == ("One two" if when == "fail_stream" else "")
    window.click(".answer .problem button")
    window.sees(".answer .text", "One two three.")
    assert not window.texts(".answer .problem")[0]


def test_notices_say_what_a_user_should_know(window, server, report):
    repeated = "The answer was stopped: the model repeated itself."
    server.finish, server.told = "length", {"cut_by": "loop", "notices": [repeated, "Leeds is not in the text."]}
    window.ask("What happened?")
    window.sees(".answer .notices", f"{repeated} Leeds is not in the text.")
    assert not window.texts(".answer .problem")[0]
    assert repeated in window.text("#status")
    server.told = {}
    window.ask("And then?")
    window.sees(".turn:last-child .problem", "Cut off: the answer has as many tokens as it may.")
    assert not window.all(".turn:last-child .notices")[0].is_displayed()
    server.finish = "stop"
    window.ask("And now?")
    assert not window.texts(".turn:last-child .problem")[0]


def test_compare_asks_twice_and_shows_both_with_figures(window, server, report):
    compare(window)
    assert window.text("#hint") == "Compares dense with auto: see Settings"
    window.ask("What happened?", wait=False)
    window.until(lambda: len(window.all("dl.figures dd")) == 12)
    asked = {(asked["attention"], asked["temperature"]) for asked in server.chats}
    assert asked == {("dense", 0), ("auto", 0)}
    dense, auto = (one.rect for one in window.all(".answer"))
    assert dense["y"] == auto["y"]
    assert dense["x"] + dense["width"] < auto["x"]
    shares = [text.splitlines()[:3] for text in window.shown(".answer .body dl")]
    assert [lines[1] for lines in shares] == ["100%", "12%"]
    assert window.texts(".attention") == ["densereads everything", "autoreads what matters"]
    assert {"Speed", "Writing took", "First token after", "In all"} <= set(window.texts("dt"))
    assert all(one.is_displayed() for one in window.all(".line dl"))


def compare(window):
    window.click("#open-settings")
    window.click("#compare")
    window.click("#settings [value=save]")


def test_an_answer_is_copied_and_given_again(window, server, report):
    window.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    server.answer = "Once **more**."
    window.ask("What happened?")
    window.click("[aria-label='Copy the answer']")
    window.sees("#status", "The answer was copied.")
    server.answer = "Another."
    window.click("[aria-label='Answer again']")
    window.sees(".answer .text", "Another.")
    assert len(window.all(".turn")) == 1
    assert [len(asked["messages"]) for asked in server.chats] == [1, 1]


def test_a_question_is_edited_and_asked_in_its_place(window, server, report):
    for question in ("What happened?", "And why?", "And now?"):
        window.ask(question)
    window.do(lambda: window.all("[aria-label='Edit the question']")[1].click())
    field = window.find("#question")
    assert field.get_attribute("value") == "And why?"
    assert window.text("#hint") == "Enter asks this in its place, Escape leaves it"
    window.press("\ue00c")
    assert field.get_attribute("value") == ""
    assert len(window.all(".turn")) == 3
    window.do(lambda: window.all("[aria-label='Edit the question']")[1].click())
    field.clear()
    window.ask("And where?")
    assert window.texts(".question") == ["What happened?", "And where?"]
    assert [one["content"] for one in server.chats[-1]["messages"]] == ["What happened?", "The answer.", "And where?"]
    window.open(fresh=False)
    assert window.texts(".question") == ["What happened?", "And where?"]


def test_an_answer_that_a_reload_cut_off_is_called_stopped(window, server, report):
    server.answer, server.token_s = "word " * 500, 0.02
    window.ask("What happened?", wait=False)
    window.sees(".answer .text", "word word")
    window.open(fresh=False)
    window.sees(".answer .problem", "Stopped.")
    assert "word word" in window.text(".answer .text")


OUTLINE = (
    "const draw = (e) => e.nodeType === 3 ? e.data :"
    "  `<${e.tagName.toLowerCase()}>` + [...e.childNodes].map(draw).join('') + '/';"
    "return [...document.querySelector('.answer .text').childNodes].map(draw)"
)


def test_markdown_is_shown_as_headings_paragraphs_lists_code_and_bold(window, server, report):
    server.answer = (
        "## Head\n\nFirst **bold** and `co<b>de`, 2 ** 3 ** 4.\nsame  paragraph\n\n"
        "- one\n  - inner\n- two\n\n3. three\n4. four\n\n```py\nx = 1  # **no**\n\ny\n```\nEnd"
    )
    window.ask("Show all.")
    assert window.js(OUTLINE) == [
        "<h5>Head/",
        "<p>First <strong>bold/ and <code>co<b>de/, 2 ** 3 ** 4.\nsame  paragraph/",
        "<ul><li>one<ul><li>inner///<li>two//",
        "<ol><li>three/<li>four//",
        "<pre><code>x = 1  # **no**\n\ny//",
        "<p>End/",
    ]
    assert window.js("return document.querySelector('.answer ol').start") == 3


def test_tables_italics_and_headings_are_drawn(window, server, report):
    server.answer = (
        "# Ships ##\nOf *May* and _June_, *both **loud***; a*b*c, snake_case_name, 2 * 3 * 4.\n"
        "| Ship | Seen |\n|:-----|-----:|\n| *Petrel* | 90 | more\n| a \\| b |\n\n"
        "Not | a table\n\n#hashtag\n###### Last"
    )
    window.ask("Show all.")
    assert window.js(OUTLINE) == [
        "<h4>Ships/",
        "<p>Of <em>May/ and <em>June/, <em>both <strong>loud//; a*b*c, snake_case_name, 2 * 3 * 4./",
        "<table><thead><tr><th>Ship/<th>Seen///<tbody><tr><td><em>Petrel//<td>90//<tr><td>a | b////",
        "<p>Not | a table/",
        "<p>#hashtag/",
        "<h6>Last/",
    ]
    set_size(window.driver, 360, 700)
    assert not window.is_scrolled_sideways()


def test_only_addresses_of_the_web_are_links(window, server, report):
    wrong = ["javascript:alert(1)", "data:text/html,x", "/v1/files", "report.txt", "JaVaScRiPt:x", "//evil"]
    server.answer = "[ship **log**](https://example.org/a?b=<c>) " + " ".join(f"[x]({each})" for each in wrong)
    window.ask("Where?")
    assert window.texts(".answer .text a") == ["ship log"]
    link = window.find(".answer .text a")
    assert [link.get_attribute(name) for name in ("href", "title", "target", "rel")] == [
        *["https://example.org/a?b=%3Cc%3E"] * 2,
        "_blank",
        "noopener noreferrer",
    ]
    assert all(f"[x]({each})" in window.text(".answer .text") for each in wrong)


def test_the_reading_of_a_prompt_is_shown(window, server, report):
    server.progress, server.first_s = [200, 400, 1000], 0.5
    window.ask("What happened?", wait=False)
    window.sees(".answer .progress", "400 of 1,000 tokens")
    bar = window.find(".answer progress")
    assert (bar.get_attribute("value"), bar.accessible_name) == ("400", "Reading the prompt")
    assert window.text(".wait") == "Reading the prompt"
    window.sees(".answer .text", server.answer)
    assert not bar.is_displayed()
    assert server.chats[0]["return_progress"]


def found(stored, number, answer):
    source = {**cite(REPORT, QUOTE), "file_id": stored.id, "filename": stored.filename}
    return {"document": f"report.txt, part {number} of 3", "answer": answer, "read": number < 3, "sources": [source]}


def test_what_each_part_found_is_shown_while_all_are_asked(window, server, report):
    one, other = found(report, 1, "They object to the goodwill."), found(report, 3, "They <b>sign</b>.")
    server.whole = [
        {"total": 3, "processed": 0, "most_seconds": 180, "findings": []},
        {"total": 3, "processed": 1, "findings": [one]},
        {"total": 3, "processed": 3, "findings": [other]},
    ]
    server.first_s, server.token_s = 0.8, 0.3
    server.basis = {"kind": "findings", "passages": None, "share": 1}
    server.told = {"findings": [one, other]}
    window.ask("Summarise the report.", wait=False)
    window.sees(".wait", "Asking every part")
    window.sees(".answer .progress", "0 of 3 answered · up to 3 min in all")
    window.sees(".findings", "report.txt, part 1 of 3: They object to the goodwill.")
    window.sees(".findings", "part 3 of 3 (not read yet: from passages): They <b>sign</b>.")
    window.sees(".answer .text", server.answer)
    window.find("#send")
    assert window.text(".basis") == "From the answers of all of report.txt"
    assert len(window.all(".findings li")) == 2
    window.click(".findings li button")
    window.sees("#text mark", QUOTE)


def test_parts_that_have_answered_are_kept_when_the_work_is_stopped(window, server, report):
    server.whole = [{"total": 3, "processed": 1, "findings": [found(report, 1, "They object to the goodwill.")]}]
    server.first_s = 0.5
    server.whole *= 40
    window.ask("Summarise the report.", wait=False)
    window.sees(".findings", "They object to the goodwill.")
    window.click("#stop")
    window.sees(".answer .problem", "What was found is kept: asked again, the question goes to the rest.")
    window.sees(".findings", "They object to the goodwill.")
    window.until(lambda: server.aborted == 1)


def test_whether_all_parts_are_asked_is_a_setting(window, server, report):
    window.click("#open-settings")
    window.find("#whole option[value='off']").click()
    window.click("#settings button[value='save']")
    window.until(lambda: not window.all("dialog[open]"))
    window.ask("Summarise the report.")
    assert server.chats[0]["whole"] == "off"
