"""The page behind a path of a proxy: `problems` of a window lists each request that leaves the path."""

from __future__ import annotations

import pytest
from helpers.browser import Window, set_media, set_size
from helpers.page_server import QUOTE, PageServer, cite, serving


@pytest.fixture
def window(browser):
    with serving(PageServer(), prefix="/tools/octavo") as server:
        server.reset()
        server.sources = lambda text: [cite(text, QUOTE, 0.31, page="12")]
        set_size(browser, 1280, 800)
        set_media(browser)
        window = Window(browser, server.url)
        window.open()
        yield window
        assert [each for each in window.leave() if "/favicon.ico" not in each] == []  # a style has no icon


def test_a_document_is_read_asked_and_removed(window, file):
    window.send_file(file)
    window.until(lambda: "tokens" in window.texts("#about")[0], "it is not read")
    window.ask("What did the auditors object to?")
    window.click(".source")
    window.sees("mark", QUOTE)
    addresses = window.js("return performance.getEntriesByType('resource').map(e => new URL(e.name).pathname)")
    assert {"/tools/octavo/v1/files", "/tools/octavo/v1/chat/completions"} <= set(addresses)
