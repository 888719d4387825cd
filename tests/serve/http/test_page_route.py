"""The page at `/`, in a real browser, before a stand-in for the server. Nothing may fail in the console of any test."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from helpers.browser import Window, chromium, set_media, set_size
from helpers.page_server import PageServer, cite, serving

from octavo.serve.http import page_route as page_module
from octavo.serve.http.access import Access

TAB, ESCAPE, ENTER = "\ue004", "\ue00c", "\ue007"
#: Text that would run if the page took it for HTML.
HOSTILE = '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>&amp;'
QUOTE = "The auditors objected to the goodwill of the Lyon branch."
REPORT = "A report.\n\n" + "Nothing happened in this quarter. " * 300 + "\n\n" + QUOTE + "\n" + "So it went on. " * 300


@pytest.fixture(scope="module")
def browser():
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def running():
    with serving(PageServer()) as server:
        yield server


@pytest.fixture
def server(running):
    running.reset()
    running.sources = lambda text: [cite(text, QUOTE, 0.31, page="12", heading="Notes > Goodwill")]
    return running


@pytest.fixture
def window(browser, server):
    """The page in a window of 1280 by 800; a test stores documents and opens it."""
    set_size(browser, 1280, 800)
    set_media(browser)
    window = Window(browser, server.url)
    window.problems()
    yield window
    assert window.problems() == []


@pytest.fixture
def report(window, server):
    """A document that is read already, selected."""
    stored = server.store("report.txt", REPORT)
    window.open()
    window.click("#documents .open")
    return stored


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "minutes.txt"
    path.write_text(REPORT)
    return path


# ---- Reading --------------------------------------------------------------------------------------------------------


def test_an_empty_library_says_what_to_do(window):
    window.open()
    assert "Drop a document" in window.text(".lead")
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
    assert server.chats[0]["messages"][0]["content"][1]["text"] == "What happened?"


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


def test_reading_can_be_cancelled(window, server, file):
    server.read_s = 60
    window.open()
    window.send_file(file)
    window.find("#documents progress")
    assert window.find("#documents .small").accessible_name == "Cancel reading minutes.txt"
    window.click("#documents .small")
    window.until(lambda: not server.documents)
    window.find("#library-empty")
    assert "Drop a document" in window.text(".lead")


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
    window.click("#documents .problem button")
    window.sees(".lead", "It is read.")
    assert [one.problem for one in server.documents.values()] == [None]


def test_removal_asks_first_and_names_what_is_lost(window, server, report):
    window.ask("What happened?")
    remove = window.find("#documents .icon-button")
    assert remove.accessible_name == "Remove report.txt"
    remove.click()
    words = window.text("#remove")
    assert "Remove report.txt?" in words
    assert f"the index of {report.tokens:,} tokens" in words
    assert "this conversation of 1 question." in words
    assert "Your own file stays where it is" in words
    window.press(ESCAPE)
    window.until(lambda: not window.find("#documents .icon-button").get_attribute("open"))
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


# ---- Asking ---------------------------------------------------------------------------------------------------------


def test_an_answer_streams_and_ends_with_figures_and_sources(window, server, report):
    server.answer, server.token_s = "They objected to the goodwill of one branch.", 0.05
    window.js(
        "window.said = []; new MutationObserver(() => said.push(document.querySelector('#status').textContent))"
        ".observe(document.querySelector('#status'), {childList: true})"
    )
    window.ask("What did they object to?", wait=False)
    window.sees(".answer .text", "They objected")
    assert "branch" not in window.texts(".answer .text")[0]
    assert window.find("#stop").is_displayed()
    assert not window.texts(".figures span")
    window.sees(".answer .text", server.answer)
    figures = window.text(".figures")
    for words in ("12% of keys and values read", "first token after", "tokens/s", "not computed again"):
        assert words in figures
    assert f"{report.tokens:,} of {report.tokens + 26:,} tokens" in figures
    assert window.text(".source") == f"{QUOTE}\nNotes \u203a Goodwill, page 12\n31% of the attention"
    window.find("#send")
    # A screen reader hears the whole answer once, not each token.
    assert window.js("return said") == [f"Answer: {server.answer} 1 source."]
    [asked] = server.chats
    assert asked["messages"][0]["content"][0] == {"type": "file", "file": {"file_id": report.id}}
    assert asked["stream"]
    assert asked["sources"]
    assert "attention" not in asked


def test_a_second_question_takes_the_conversation_along(window, server, report):
    window.ask("What happened?")
    window.ask("And why?")
    roles = [(one["role"], one["content"]) for one in server.chats[1]["messages"][1:]]
    assert roles == [("assistant", "The answer."), ("user", "And why?")]
    window.click("#new")
    assert not window.all(".turn")
    window.ask("Once more?")
    assert len(server.chats[2]["messages"]) == 1


def test_a_thought_is_folded_and_taken_along(window, server, report):
    server.thought, server.token_s = "They ask of <b>auditors</b>.", 0.3
    window.ask("What happened?", wait=False)
    window.sees(".wait", "Thinking")
    window.sees(".answer .text", server.answer)
    assert window.text(".thought") == "Thought"
    window.click(".thought summary")
    window.sees(".thought p", server.thought)
    window.until(lambda: not window.all("[aria-busy=true]"), "no end")  # a question waits for the answer before it
    server.thought, server.token_s = "", 0
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
    assert "Not from the document" in window.text(".sources")


def test_without_a_document_there_are_no_sources(window, server):
    window.open()
    window.ask("Who are you?")
    assert window.text(".answer .text") == "The answer."
    for hidden in ("sources", "basis"):
        assert not window.find(".answer").find_element("class name", hidden).is_displayed()
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


def test_compare_asks_twice_and_shows_both_with_figures(window, server, report):
    server.token_s = 0.05
    window.click("#compare")
    window.ask("What happened?", wait=False)
    window.sees(".answer:nth-child(2) .wait", "Waits for the other answer")
    window.until(lambda: len(window.all("dl.figures dd")) == 12)
    assert [(asked["attention"], asked["temperature"]) for asked in server.chats] == [("dense", 0), ("auto", 0)]
    dense, auto = (one.rect for one in window.all(".answer"))
    assert dense["y"] == auto["y"]
    assert dense["x"] + dense["width"] < auto["x"]
    shares = [one.text.splitlines()[:3] for one in window.all(".answer .body dl")]
    assert [lines[1] for lines in shares] == ["100%", "12%"]
    assert window.texts(".attention") == ["densereads everything", "autoreads what matters"]
    assert {"Speed", "Writing took", "First token after", "In all"} <= set(window.texts("dt"))
    # The second answer had less to do before its first token, and the page says so.
    assert [one.is_displayed() for one in window.all(".note")] == [True]
    window.click("#new")
    window.ask("What happened?")
    assert [one.is_displayed() for one in window.all(".note")] == [False]


def test_each_document_has_its_conversation_and_a_reload_keeps_them(window, server, report):
    server.store("other.txt", "Another text. " + QUOTE)
    window.ask("What happened?")
    window.open(fresh=False)
    assert window.text(".question") == "What happened?"
    assert window.text(".answer .text") == "The answer."
    window.click("#documents li:first-child .open")
    assert window.text("#title") == "other.txt"
    window.find("#question").send_keys("half a que")
    assert "It is read." in window.text(".conversation:not([hidden]) .lead")
    window.open(fresh=False)
    assert window.text("#title") == "other.txt"
    assert window.find("#question").get_attribute("value") == "half a que"
    window.click("#documents li:last-child .open")
    window.click(".source")
    assert window.text("mark") == QUOTE


def test_an_answer_that_a_reload_cut_off_is_called_stopped(window, server, report):
    server.answer, server.token_s = "word " * 500, 0.02
    window.ask("What happened?", wait=False)
    window.sees(".answer .text", "word word")
    window.open(fresh=False)
    window.sees(".answer .problem", "Stopped.")
    assert "word word" in window.text(".answer .text")


def test_markdown_is_shown_as_paragraphs_lists_code_and_bold(window, server, report):
    server.answer = (
        "## Head\n\nFirst **bold** and `co<b>de`, 2 ** 3 ** 4.\nsame  paragraph\n\n"
        "- one\n  - inner\n- two\n\n3. three\n4. four\n\n```py\nx = 1  # **no**\n\ny\n```\nEnd"
    )
    window.ask("Show all.")
    outline = window.js(
        "const draw = (e) => e.nodeType === 3 ? e.data :"
        "  `<${e.tagName.toLowerCase()}>` + [...e.childNodes].map(draw).join('') + '/';"
        "return [...document.querySelector('.answer .text').childNodes].map(draw)"
    )
    assert outline == [
        "<p><strong>Head//",
        "<p>First <strong>bold/ and <code>co<b>de/, 2 ** 3 ** 4.\nsame  paragraph/",
        "<ul><li>one<ul><li>inner///<li>two//",
        "<ol><li>three/<li>four//",
        "<pre><code>x = 1  # **no**\n\ny//",
        "<p>End/",
    ]
    assert window.js("return document.querySelector('.answer ol').start") == 3


# ---- Sources --------------------------------------------------------------------------------------------------------

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


# ---- Trust ----------------------------------------------------------------------------------------------------------


def test_what_documents_and_models_write_stays_text(window, server):
    window.refused = True
    server.store(HOSTILE, HOSTILE + QUOTE)
    server.answer = f"{HOSTILE}\n\n- {HOSTILE}\n\n```\n{HOSTILE}\n```\n**{HOSTILE}** `{HOSTILE}`"
    server.sources = lambda text: [cite(text, HOSTILE + QUOTE, heading=HOSTILE, page=HOSTILE)]
    window.open()
    window.click("#documents .open")
    window.ask(HOSTILE)
    window.click(".source")
    window.sees("mark", HOSTILE)
    server.fail_stream = server.fail_delete = HOSTILE
    window.ask("Again?")
    window.click("#documents .icon-button")
    window.sees("#remove-title", HOSTILE)
    window.click("#remove [value=remove]")
    window.sees("#documents .problem", HOSTILE)
    for css in (".question", ".answer .text", ".quote", ".place", "#title", "#documents .name", ".answer .problem"):
        assert any(HOSTILE in text for text in window.texts(css)), css
    made = window.js("return [document.images.length, document.scripts.length, typeof window.hacked]")
    assert made == [1, 1, "undefined"]  # the page has a picture of its own, for pages of PDFs


def test_the_policy_holds(window):
    from selenium.common.exceptions import JavascriptException

    window.open()
    with pytest.raises(JavascriptException, match="TrustedHTML"):
        window.js("document.body.innerHTML = '<b>x</b>'")
    watch = "const done = arguments[0]; addEventListener('securitypolicyviolation', (e) => done(e.effectiveDirective));"
    tried = {
        "connect-src": "fetch('http://localhost:1/').catch(() => {})",
        "style-src-elem": "const s = document.createElement('style'); s.append('p {}'); document.body.append(s)",
        "img-src": "new Image().src = 'http://localhost:1/'",
    }
    for directive, script in tried.items():
        assert window.driver.execute_async_script(watch + script) == directive
    reported = window.problems()
    assert reported
    assert all("Content Security Policy" in one or "TrustedHTML" in one or "localhost:1" in one for one in reported)


def test_the_three_files_come_with_their_headers():
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    client = TestClient(Starlette(routes=page_module.routes))
    types = {"/": "text/html", "/page.js": "text/javascript", "/page.css": "text/css"}
    for path, kind in types.items():
        response = client.get(path)
        assert response.status_code == 200
        assert response.headers["content-type"] == f"{kind}; charset=utf-8"
        assert response.headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cache-control"] == "no-cache"
    assert client.get("/page.py").status_code == 404
    assert client.post("/").status_code == 405


def test_the_real_server_has_the_page_and_asks_no_key_for_it():
    from starlette.testclient import TestClient

    from octavo.serve.http.app import application
    from octavo.serve.http.server_pool import Choice, ServerPool, _Loaded

    pool = ServerPool({"none": Choice(Path("none.gguf"), lambda turns: None)})
    pool._loaded["none"] = _Loaded(None)  # no request of this test needs more of the model
    client = TestClient(application(pool, Access("127.0.0.1", 0, "sesame", ["testserver"], (), 1)))
    assert [client.get(path).status_code for path in ("/", "/page.js", "/page.css")] == [200, 200, 200]
    assert client.get("/v1/files").status_code == 401


def test_a_server_with_a_key_is_asked_with_it(window, server):
    window.refused = True
    server.key = "sesame"
    server.store("report.txt", REPORT)
    window.open(ready=False)
    window.find("#key").send_keys("wrong" + ENTER)
    window.sees("#key-error", "The server does not know this key.")
    window.find("#key").send_keys("sesame" + ENTER)
    window.click("#documents .open")
    window.ask("What happened?")
    assert window.text(".answer .text") == "The answer."
    window.open(fresh=False)
    assert window.text(".answer .text") == "The answer."
    assert not window.all("dialog[open]")


# ---- Everyone can use it --------------------------------------------------------------------------------------------


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
        lambda: window.click("#documents .icon-button"),
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
        ("checkbox", "Compare dense with auto"),
        ("button", "Close the text"),
        ("region", "Text of the document"),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_contrast_with_what_is_behind_them(window, server, report, scheme):
    set_media(window.driver, scheme)
    server.store("broken.txt", "x").problem = "The disk is full."
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
    window.click("#documents li:last-child .icon-button")
    assert window.pale_texts() == []
    window.press(ESCAPE)


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
    server.store("a_report_with_a_long_name_and_no_blank_in_it_at_all_" * 2 + ".txt", REPORT)
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
    window.until(lambda: window.js("return document.querySelector('#library').inert"))
    window.ask("What happened?")
    assert not window.is_scrolled_sideways()
    window.js("document.querySelector('.source').scrollIntoView()")
    window.click(".source")
    assert window.text("mark") == QUOTE
    assert window.js("return document.querySelector('#text').getBoundingClientRect().width") == 360
    assert window.js("return document.querySelector('main').inert")
    assert not window.is_scrolled_sideways()
    window.click("#close-text")
    window.click("#compare")
    window.ask("And now?")
    assert not window.is_scrolled_sideways()
