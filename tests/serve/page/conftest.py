"""The page in a real browser, before a stand-in for the server. Nothing may fail in the console of any test."""

from __future__ import annotations

import pytest
from helpers.browser import Window, chromium, set_media, set_size
from helpers.page_server import QUOTE, REPORT, PageServer, cite, serving


@pytest.fixture(scope="package")
def browser():
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="package")
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
    yield window
    assert window.leave() == []


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
