"""Conversations that the browser keeps."""

from __future__ import annotations

import json
import math
import time

import pytest
from helpers.page_server import QUOTE, REPORT

HERE = ".conversation:not([hidden]) "


def rows(window):
    return window.shown("#history .name")


def open_row(window, title):
    window.do(lambda: next(one for one in window.all("#history .open") if title in one.text).click())


def change(window, title, button=None):
    window.click(f"#history [aria-label='Rename, export or delete {title}']")
    if button:
        window.click(f"#talk [data-close={button}]")


@pytest.fixture
def two(window, server, report):
    """Two conversations: about a report, and about no document."""
    window.ask("What happened?")
    window.click("#new")
    window.click("#without")
    server.answer = "I am a model."
    window.ask("Who are you?")
    return report


def test_conversations_are_listed_and_continued(window, server, two):
    window.until(lambda: rows(window) == ["Who are you?", "What happened?"])
    assert window.text("#history [aria-current]").startswith("Who are you?")
    open_row(window, "What happened?")
    assert window.text("#title") == "report.txt"
    assert window.text(f"{HERE}.answer .text") == "The answer."
    window.click(f"{HERE}.source")
    assert window.text("mark") == QUOTE
    window.ask("And why?")
    assert [one["content"] for one in server.chats[-1]["messages"]] == ["What happened?", "The answer.", "And why?"]
    assert server.chats[-1]["document"] == [two.id]
    window.until(lambda: rows(window) == ["What happened?", "Who are you?"])  # the last that was changed


def test_a_reload_and_another_day_keep_them(window, server, two):
    window.find("#question").send_keys("half a que")
    window.open(fresh=False)
    assert window.text(f"{HERE}.question") == "Who are you?"
    assert window.find("#question").get_attribute("value") == "half a que"
    window.js("sessionStorage.clear()")  # as if the tab had been closed
    window.js("addEventListener('pagehide', () => sessionStorage.clear())")
    window.open(fresh=False)
    assert window.all(f"{HERE}.turn") == []
    window.until(lambda: rows(window) == ["Who are you?", "What happened?"])
    open_row(window, "What happened?")
    window.sees(f"{HERE}.question", "What happened?")
    assert window.text(f"{HERE}.basis") == "From all of report.txt"


def test_an_answer_goes_on_while_another_conversation_is_read(window, server, two):
    server.answer, server.most_words = "word " * 40, 3
    window.ask("A long one?", wait=False)
    window.sees(f"{HERE}.answer .text", "word word")
    open_row(window, "What happened?")
    assert window.find("#send").is_displayed()
    assert "Answering" in window.text("#history li:first-child")
    server.most_words = math.inf
    window.until(lambda: "Answering" not in window.text("#history li:first-child"))
    open_row(window, "Who are you?")
    assert window.texts(f"{HERE}.answer .text")[1].count("word") == 40


def test_a_conversation_is_renamed(window, two):
    change(window, "What happened?")
    name = window.find("#talk-name")
    assert name.get_attribute("value") == "What happened?"
    assert "1 question, begun " in window.text("#talk-about")
    name.clear()
    name.send_keys("Audit <b>2024</b>\n")
    window.until(lambda: "Audit <b>2024</b>" in rows(window))
    window.open(fresh=False)
    window.until(lambda: "Audit <b>2024</b>" in rows(window))
    open_row(window, "Audit")
    window.ask("And why?")
    assert "Audit <b>2024</b>" in rows(window)


def test_a_conversation_is_deleted(window, server, two):
    change(window, "Who are you?", "delete")
    window.until(lambda: rows(window) == ["What happened?"])
    assert window.all(f"{HERE}.turn") == []
    window.open(fresh=False)
    window.until(lambda: rows(window) == ["What happened?"])
    change(window, "What happened?", "delete")
    window.sees("#history-empty", "None yet.")
    assert list(server.documents) == [two.id]


def test_cancel_changes_nothing(window, two):
    for leave in ("\ue00c", None):
        change(window, "What happened?")
        window.find("#talk-name").send_keys(" More")
        window.press(leave) if leave else window.click("#talk [data-close='']")
        assert rows(window) == ["Who are you?", "What happened?"]


def downloads(window, tmp_path, title, kind):
    window.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    change(window, title, kind)
    [path] = window.until(lambda: [one for one in tmp_path.iterdir() if one.suffix in (".md", ".json")])
    return path


def test_a_conversation_is_exported_as_markdown(window, two, tmp_path):
    path = downloads(window, tmp_path, "What happened?", "markdown")
    assert path.name == "What happened.md"
    place = "report.txt, Notes \u203a Goodwill, page 12"
    assert path.read_text() == f"# What happened?\n\n## What happened?\n\nThe answer.\n\n1. {place}: “{QUOTE}”\n"


def test_marks_are_exported_as_foot_notes_and_as_annotations(window, server, report, tmp_path):
    server.marks = [{"start_index": 0, "end_index": 11}]
    window.ask("Why?")
    window.ask("And who?")
    text = downloads(window, tmp_path, "Why?", "markdown").read_text()
    note = f"report.txt, Notes \u203a Goodwill, page 12: \u201c{QUOTE}\u201d"
    turns = [
        f"## {question}\n\nThe answer.[^{n}]\n\n[^{n}]: {note}\n" for n, question in enumerate(("Why?", "And who?"), 1)
    ]
    assert text == "\n".join(["# Why?\n", *turns])
    for path in tmp_path.iterdir():
        path.unlink()
    told = json.loads(downloads(window, tmp_path, "Why?", "json").read_text())
    [annotation] = told["messages"][1]["annotations"]
    assert (annotation["start_index"], annotation["end_index"]) == (0, 11)
    assert told["messages"][1]["content"] == "The answer."


def test_a_conversation_is_exported_as_json(window, two, tmp_path):
    told = json.loads(downloads(window, tmp_path, "What happened?", "json").read_text())
    question, answer = told["messages"]
    assert question == {"role": "user", "content": "What happened?"}
    assert (answer["role"], answer["content"]) == ("assistant", "The answer.")
    assert answer["document"] == [{"file_id": two.id, "filename": "report.txt"}]
    assert answer["annotations"][0]["quote"] == QUOTE
    assert told["created"] <= told["updated"]


def test_tabs_know_of_each_other(window, server, two):
    first = window.driver.current_window_handle
    window.driver.switch_to.new_window("tab")
    try:
        window.driver.get(window.url)
        window.until(lambda: rows(window) == ["Who are you?", "What happened?"])
        open_row(window, "What happened?")
        window.sees(f"{HERE}.answer .text", "The answer.")
        window.ask("And why?")
        window.click("#new")
        window.ask("Another?")
    finally:
        window.driver.close()
        window.driver.switch_to.window(first)
    window.until(lambda: rows(window) == ["Another?", "What happened?", "Who are you?"])
    open_row(window, "What happened?")
    window.until(lambda: window.texts(f"{HERE}.question") == ["What happened?", "And why?"])


def test_a_browser_that_keeps_nothing_says_so(window, server):
    server.store("report.txt", REPORT)
    window.open()
    window.js("IDBObjectStore.prototype.put = () => { throw new DOMException('full', 'QuotaExceededError') }")
    window.ask("What happened?")
    window.sees("#history-error", "This browser keeps no more conversations: export this one, or delete others.")
    assert window.text(".answer .text") == "The answer."
    assert rows(window) == ["What happened?"]


def test_a_title_is_one_line(window, server):
    window.open()
    window.find("#question").send_keys("First line")
    window.press("\ue007", shift=True)
    window.press("second" + " long" * 60, "\ue007")
    window.sees("#history .name", "First line second long")
    assert window.find("#history .open").rect["height"] < 90
    time.sleep(0.1)
    assert not window.is_scrolled_sideways()
