"""Documents on the page: sent, read, refused and removed."""

from __future__ import annotations

import re
import time

from helpers.page_server import QUOTE, REPORT

ESCAPE, ENTER = "\ue00c", "\ue007"


def test_an_empty_library_says_what_to_do(window):
    window.open()
    assert "Drop documents" in window.text(".lead")
    assert "None yet" in window.text("#library-empty")
    assert "SmolLM2-135M-Instruct" in window.text("#model")


def test_a_dropped_document_is_read(window, server, file):
    server.read_s = 1.2
    window.open()
    drag = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver"):
        window.cdp("Input.dispatchDragEvent", type=kind, x=700, y=300, data=drag)
    window.find("#dropping")
    window.cdp("Input.dispatchDragEvent", type="drop", x=700, y=300, data=drag)
    window.sees(".lead", "tokens ·")
    assert not window.all(".dropping")
    done = [int(window.js("return document.querySelector('.lead progress').value"))]
    assert "left" in window.text("#documents .progress")
    assert "Being read: " in window.text("#about")
    window.until(lambda: int(window.js("return document.querySelector('.lead progress')?.value ?? 1e9")) > done[0])
    window.sees("#about", "tokens")
    assert window.text("#documents .open") == f"minutes.txt\n{len(REPORT) // 4:,} tokens · 92 MB"
    window.sees("#status", "minutes.txt is read")
    assert [stored.text for stored in server.documents.values()] == [REPORT]


def test_a_question_waits_for_a_document_that_is_on_its_way(window, server, file):
    server.send_s = 0.5
    window.open()
    window.send_file(file)
    window.ask("What happened?", wait=False)
    window.sees("#status", "You can ask once it is sent")
    window.sees("#about", "tokens")
    assert server.chats == []
    window.press(ENTER)
    window.until(lambda: server.chats)
    assert server.chats[0]["messages"][0]["content"] == "What happened?"
    assert server.chats[0]["document"] == [stored.id for stored in server.documents.values()]


def test_a_document_is_asked_while_it_is_being_read(window, server, file):
    server.read_s = 8
    window.open()
    window.send_file(file)
    window.sees(".lead", "You can ask already")
    window.ask("What did they object to?")
    assert window.find("#documents progress").is_displayed()
    before = window.text(".basis")
    assert before.startswith("From 9 passages, 3% of minutes.txt; the rest is being read: ")
    window.until(lambda: window.text(".basis") not in ("", before), "no progress")
    assert window.text(".source").startswith(QUOTE)
    window.click("#show-text")
    window.sees("#text-body", "A report.")
    window.sees("#about", "tokens")
    assert window.text(".basis") == "From 9 passages, 3% of minutes.txt; now all of it is read: ask again"
    window.ask("And what else?")
    assert window.texts(".basis")[1] == "From all of minutes.txt"
    window.open(fresh=False)
    assert window.texts(".basis")[1] == "From all of minutes.txt"


def test_the_part_that_is_being_read_is_named(window, server, file):
    server.read_s, server.task = 60, "Reading part 2 of 3"
    window.open()
    window.send_file(file)
    window.ask("What happened?")
    assert re.fullmatch(r"Being read: <?\d+% of part 2 of 3", window.text("#about"))
    assert window.text(".basis").endswith("% of part 2 of 3")


def test_a_part_is_called_so(window, server, report):
    server.basis = {"kind": "part", "passages": None, "share": 0.331}
    window.ask("What happened?")
    assert window.text(".basis") == "From a part, 33% of report.txt"
    server.basis = {"kind": "part", "passages": 4, "share": 0.4}
    window.ask("And then?")
    assert window.texts(".basis")[1] == "From the part that was read and 4 passages, 40% of report.txt"


def test_reading_can_be_cancelled(window, server, file):
    server.read_s = 60
    window.open()
    window.send_file(file)
    window.find("#documents progress")
    assert window.find("#documents .cancel").accessible_name == "Cancel reading minutes.txt"
    window.click("#documents .cancel")
    window.until(lambda: not server.documents)
    window.find("#library-empty")
    assert "Drop documents" in window.text(".lead")


def test_a_list_that_was_asked_for_before_changes_nothing(window, server, file):
    server.read_s = 60
    server.store("slow.txt", REPORT).began = time.monotonic()
    server.list_s = 0.4
    window.open()
    window.find("#documents progress")
    window.js(
        "window.titles = []; new MutationObserver(() => titles.push(document.querySelector('#title').textContent))"
        ".observe(document.querySelector('#title'), {childList: true})"
    )
    time.sleep(0.6)  # now a list is on its way
    window.send_file(file)
    window.sees("#title", "minutes.txt")
    time.sleep(0.8)
    assert window.js("return titles") == ["minutes.txt"]
    assert len(window.all("#documents li")) == 2


def test_a_refused_document_shows_the_servers_sentence_and_can_be_sent_again(window, server, file):
    window.refused = True
    server.fail_upload = "minutes.txt has no text that octavo can read."
    window.open()
    window.send_file(file)
    assert "has no text that octavo can read." in window.text("#documents .problem")
    window.click("#documents .problem button")
    window.until(lambda: len(server.documents) == 1)
    window.sees(".lead", "It is read.")
    assert len(window.all("#documents li")) == 1


def test_a_document_that_could_not_be_read_says_why(window, server, file):
    server.fail_read = "The disk is full."
    window.open()
    window.send_file(file)
    window.sees("#documents .problem", "The disk is full.")
    assert "could not be read" in window.text(".lead")
    assert not window.all("#chips li")  # it is not chosen
    window.click("#documents .problem button")
    window.sees(".lead", "It is read.")
    assert [one.problem for one in server.documents.values()] == [None]


def test_a_document_tells_what_was_left_out_of_it(window, server):
    stored = server.store("stock.xlsx", REPORT)
    stored.notices = ["stock.xlsx has 2 hidden rows: octavo leaves them out."]
    window.open()
    window.sees("#documents .problem.soft", stored.notices[0])
    assert not window.all("#documents .problem button")


def test_removal_asks_first_and_names_what_is_lost(window, server, report):
    window.ask("What happened?")
    remove = window.find("#documents .icon-button")
    assert remove.accessible_name == "Remove report.txt"
    remove.click()
    words = window.text("#remove")
    assert "Remove report.txt?" in words
    assert f"the index of {report.tokens:,} tokens" in words
    assert "Your own file stays where it is" in words
    window.press(ESCAPE)
    window.until(lambda: not window.all("dialog[open]"))
    assert server.documents
    remove.click()
    window.click("#remove [value=keep]")
    assert server.documents
    remove.click()
    window.click("#remove [value=remove]")
    window.until(lambda: not server.documents)
    window.find("#library-empty")
    assert window.focused()["id"] == "add"


def test_a_failed_removal_stays_and_says_why(window, server, report):
    window.refused = True
    server.fail_delete = "report.txt is being asked about."
    window.click("#documents .icon-button")
    window.click("#remove [value=remove]")
    window.sees("#documents .problem", "report.txt is being asked about.")
    window.click("#documents .problem button")
    window.until(lambda: not server.documents)


def test_a_library_that_does_not_come_can_be_asked_for_again(window, server):
    window.refused = True
    server.store("report.txt", REPORT)
    server.fail_list = "The library is on a disk that does not answer."
    window.open()
    window.sees("#library-error", "on a disk that does not answer.")
    window.click("#library-error button")
    window.find("#documents .open")
    assert not window.find("#library").find_element("id", "library-error").is_displayed()
