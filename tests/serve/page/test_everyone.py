"""Everyone can use the page: by keyboard, screen reader, in the dark, and on a phone."""

from __future__ import annotations

import time

import pytest
from helpers.browser import set_media, set_size
from helpers.page_server import QUOTE, REPORT

TAB, ESCAPE, ENTER = "\ue004", "\ue00c", "\ue007"


def test_the_keyboard_alone_gets_from_upload_to_source(window, file):
    window.open()
    window.tab_to(lambda focused: focused["text"] == "Skip to the question", most=1)
    window.tab_to(lambda focused: focused["id"] == "add")
    window.cdp("Page.setInterceptFileChooserDialog", enabled=True)
    window.press(ENTER)
    events = []
    window.until(lambda: events.extend(window.driver.get_log("performance")) or "Page.fileChooserOpened" in str(events))
    window.cdp("Page.setInterceptFileChooserDialog", enabled=False)
    root = window.cdp("DOM.getDocument")["root"]["nodeId"]
    node = window.cdp("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    window.cdp("DOM.setFileInputFiles", nodeId=node, files=[str(file)])
    window.sees(".lead", "It is read.")
    window.tab_to(lambda focused: focused["id"] == "question")
    window.press("What")
    window.press(ENTER, shift=True)
    window.press("happened?", ENTER)
    window.sees(".answer .text", "The answer.")
    assert window.texts(".question") == ["What\nhappened?"]
    window.find("#send")
    assert QUOTE in window.tab_to(lambda focused: "source" in focused["classes"], back=True)["text"]
    window.press(ENTER)
    window.until(lambda: window.focused()["tag"] == "MARK")
    window.tab_to(lambda focused: focused["label"] == "Close the text", back=True)
    window.press(ENTER)
    assert "source" in window.focused()["classes"]


def test_focus_is_visible(window, report):
    window.ask("What happened?")
    window.js("document.activeElement.blur()")
    unseen = []
    for _ in range(14):
        window.press(TAB)
        style = window.js("const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth]")
        if window.focused()["tag"] != "BODY" and (style[0] == "none" or style[1] == "0px"):
            unseen.append(window.focused())
    assert unseen == []


def test_every_control_has_a_name(window, server, report):
    server.read_s = 60
    server.store("slow.txt", "A text.").began = time.monotonic()
    named = {"button", "textbox", "checkbox", "link", "list", "dialog", "alertdialog", "progressbar", "heading"}
    regions = {"main", "complementary", "region", "form"}
    for step in (
        lambda: window.open(fresh=False),
        lambda: window.ask("What happened?"),
        lambda: window.click(".source"),
        lambda: window.click("#documents .icon-button:not(.cancel)"),
    ):
        step()
        names = window.names()
        assert [(role, name) for role, name in names if role in named - {"list"} and not name] == []
        roles = {role for role, _ in names}
        assert {"button", "heading"} <= roles
    window.press(ESCAPE)
    names = window.names()
    assert {role for role, _ in names} >= {"main", "complementary", "status"}
    assert [role for role, name in names if role in regions and not name] == []
    assert set(names) >= {
        ("button", "Remove report.txt"),
        ("button", "Cancel reading slow.txt"),
        ("progressbar", "Reading slow.txt"),
        ("textbox", "Your question about report.txt"),
        ("list", "Asked"),
        ("button", "Do not ask report.txt"),
        ("button", "Copy the answer"),
        ("button", "Answer again"),
        ("button", "Edit the question"),
        ("button", "Close the text"),
        ("region", "Text of the document"),
    }


def test_every_control_of_the_library_and_of_dialogs_has_a_name(window, server):
    server.models = {"Small": ["completion", "thinking"], "Large": ["completion"]}
    for number in range(12):
        server.store(f"{number}.pdf", REPORT, "~/papers")
    window.open()
    window.click("#documents .open")
    window.ask("What happened?")
    named = {"button", "textbox", "checkbox", "searchbox", "combobox", "spinbutton", "list", "dialog", "heading"}
    names = set(window.names())
    for opened in ("#open-settings", "#history .icon-button"):
        window.click(opened)
        names |= set(window.names())
        window.press(ESCAPE)
        window.until(lambda: not window.all("dialog[open]"))
    assert [(role, name) for role, name in names if role in named and not name] == []
    assert names >= {
        ("checkbox", "Ask 11.pdf, too"),
        ("button", "Ask all documents in ~/papers"),
        ("checkbox", "Compare dense with auto"),
        ("button", "Export"),
        ("searchbox", "Find a document"),
        ("button", "Add a folder"),
        ("list", "Conversations"),
        ("button", "Rename, export or delete What happened?"),
        ("dialog", "Settings"),
        ("combobox", "Model"),
        ("combobox", "With several documents, answer from"),
        ("combobox", "Thinking before an answer"),
        ("spinbutton", "Temperature"),
        ("spinbutton", "Longest answer, tokens"),
        ("textbox", "System prompt"),
        ("dialog", "Conversation"),
        ("textbox", "Name"),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_contrast_with_what_is_behind_them(window, server, report, scheme):
    set_media(window.driver, scheme)
    server.store("broken.txt", "x").problem = "The disk is full."
    server.store("a.pdf", REPORT, "~/papers")
    server.answer = "An answer with `code` in it."
    window.open(fresh=False)
    window.sees("#documents .problem", "The disk is full.")
    window.ask("What happened?")
    window.click(".source")
    window.find("mark")
    paper = window.js("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    time.sleep(0.2)
    assert window.pale_texts() == []
    window.click("#documents .folders button")
    for opened in (
        "#documents li:has(.folders:not([hidden])) > .icon-button:not(.cancel)",
        "#history .icon-button",
        "#open-settings",
    ):
        window.click(opened)
        assert window.pale_texts() == []
        window.press(ESCAPE)
        window.until(lambda: not window.all("dialog[open]"))


def test_reduced_motion_stands_still(window, server, report):
    set_media(window.driver, motion="reduce")
    server.first_s = 0.5
    window.ask("What happened?", wait=False)
    window.find(".wait")
    style = "return getComputedStyle(document.querySelector('.wait'), '::after').animationName"
    assert window.js(style) == "none"
    set_media(window.driver)
    assert window.js(style) == "breathe"
    window.sees(".answer .text", "The answer.")


def test_a_phone_shows_everything_without_scrolling_sideways(window, server, file):
    long_name = "a_report_with_a_long_name_and_no_blank_in_it_at_all_" * 2
    server.store(f"{long_name}.txt", REPORT)
    server.store(f"{long_name}.pdf", REPORT, f"~/{long_name}/{long_name}")
    server.answer = "word " * 60 + "x" * 80 + "\n\n```\n" + "y" * 200 + "\n```"
    set_size(window.driver, 360, 740, mobile=True)
    window.open()
    assert not window.is_scrolled_sideways()
    assert window.js("return document.querySelector('#library').inert")
    window.click("#open-library")
    window.until(lambda: window.js("return document.querySelector('#library').getBoundingClientRect().left") == 0)
    assert window.focused()["id"] == "close-library"
    assert not window.is_scrolled_sideways()
    window.press(ESCAPE)
    assert window.focused()["id"] == "open-library"
    window.click("#open-library")
    window.until(lambda: window.js("return document.querySelector('#library').getBoundingClientRect().left") == 0)
    window.click("#documents .open")
    window.do(lambda: window.all("#documents [type=checkbox]")[1].click())
    assert not window.js("return document.querySelector('#library').inert")  # it stays open for several choices
    window.click("#done")
    window.until(lambda: window.js("return document.querySelector('#library').inert"))
    assert len(window.all("#chips li")) == 2
    window.ask("What happened?")
    assert not window.is_scrolled_sideways()
    window.js("document.querySelector('li:last-child > .source').scrollIntoView()")  # the other one is of a PDF
    window.click("li:last-child > .source")
    assert window.text("mark") == QUOTE
    assert window.js("return document.querySelector('#text').getBoundingClientRect().width") == 360
    assert window.js("return document.querySelector('main').inert")
    assert not window.is_scrolled_sideways()
    window.click("#close-text")
    window.click("#open-library")
    window.click("#open-settings")
    window.click("#compare")
    window.click("#settings [value=save]")
    window.click("#close-library")
    window.ask("And now?")
    assert not window.is_scrolled_sideways()
    window.click("#open-library")
    window.until(lambda: window.js("return document.querySelector('#library').getBoundingClientRect().left") == 0)
    for opened in ("#history .icon-button", "#open-settings"):
        window.click(opened)
        dialog = window.find("dialog[open]").rect
        assert dialog["x"] >= 0
        assert dialog["x"] + dialog["width"] <= 360
        assert not window.is_scrolled_sideways()
        window.press(ESCAPE)
        window.until(lambda: not window.all("dialog[open]"))
