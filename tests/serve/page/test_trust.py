"""What documents, models and other pages may do to the page: nothing."""

from __future__ import annotations

import pytest
from helpers.page_server import QUOTE, REPORT, cite

ENTER = "\ue007"
#: Text that would run if the page took it for HTML.
HOSTILE = '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>&amp;'


def test_what_documents_and_models_write_stays_text(window, server):
    window.refused = True
    server.store(HOSTILE, HOSTILE + QUOTE, HOSTILE.replace("/", "|"))
    server.answer = f"{HOSTILE}\n\n- {HOSTILE}\n\n```\n{HOSTILE}\n```\n**{HOSTILE}** `{HOSTILE}`"
    server.sources = lambda text: [cite(text, HOSTILE + QUOTE, heading=HOSTILE, page=HOSTILE)]
    window.open()
    window.click("#documents .open")
    window.ask(HOSTILE)
    window.click(".source")
    window.sees("mark", HOSTILE)
    server.fail_stream = server.fail_delete = HOSTILE
    window.ask("Again?")
    window.click("#documents li > .icon-button:not(.cancel)")
    window.sees("#remove-title", HOSTILE)
    window.click("#remove [value=remove]")
    window.sees("#documents .problem", HOSTILE)
    assert HOSTILE.replace("/", "|") in window.text("#documents .folders")
    for css in (
        "#history .name",
        ".source .file",
        ".question",
        ".answer .text",
        ".quote",
        ".place",
        "#title",
        "#documents .name",
        ".answer .problem",
    ):
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
