"""Debian's Chromium, driven by Selenium, and what a test asks of it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser with a fresh profile; skip where there is none, unless OCTAVO_REQUIRE_BROWSER is set."""
    browser, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and chromedriver):
        missing = "Chromium and its driver are not installed (Debian: chromium, chromium-driver)"
        (pytest.fail if os.environ.get("OCTAVO_REQUIRE_BROWSER") else pytest.skip)(missing)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for switch in (*SWITCHES, f"--user-data-dir={profile}"):
            options.add_argument(switch)
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
        try:
            driver.get("about:blank")  # the first tab loads pages of the browser's own
            yield driver
        finally:
            driver.quit()


def set_size(driver: Any, width: int, height: int, scale: float = 1, mobile: bool = False) -> None:
    """Set the size of the page's window, which headless windows cannot have below 500 pixels."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def set_media(driver: Any, scheme: str = "light", motion: str = "no-preference") -> None:
    """Prefer light or dark, and motion or none."""
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": motion},
    ]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


class Window:
    """The page in a browser's window: what a test does in it and sees of it.

    Parameters
    ----------
    driver : webdriver
        The browser.
    url : str
        Where the page is.
    """

    def __init__(self, driver: Any, url: str) -> None:
        self.driver, self.url = driver, url
        #: Whether the browser may report refused requests: by default nothing may go wrong.
        self.refused = False
        self.leave()

    def leave(self) -> list[str]:
        """Close the page, which would go on asking for documents of its test, and return its `problems`."""
        reported = self.problems()
        self.driver.get("about:blank")
        return reported

    def open(self, fresh: bool = True, ready: bool = True) -> None:
        """Load the page, up to where the server has told its model; a fresh one remembers nothing."""
        if fresh:
            self.driver.get(self.url + "page/base.css")  # same storage, and no script that writes it again
            self.driver.execute_script("sessionStorage.clear(); localStorage.clear()")
            self.driver.execute_async_script(FORGET)
        self.driver.get(self.url)
        self.until(lambda: not ready or self.js("return document.querySelector('#model').textContent !== ''"))

    def js(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page."""
        return self.driver.execute_script(script, *arguments)

    def cdp(self, command: str, **arguments: Any) -> Any:
        """Run a command of Chromium's DevTools protocol."""
        return self.driver.execute_cdp_cmd(command, arguments)

    def find(self, css: str) -> Any:
        """Return the first element that is in sight, waiting for it."""
        return self.until(lambda: next((one for one in self.all(css) if one.is_displayed()), None), css)

    def all(self, css: str) -> list[Any]:
        """Return all elements, in sight or not."""
        found: list[Any] = self.driver.find_elements("css selector", css)
        return found

    def texts(self, css: str) -> list[str]:
        """Return the texts of all elements."""
        texts: list[str] = self.js("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", css)
        return texts

    def shown(self, css: str) -> list[str]:
        """Return the texts of all elements as one sees them, of one moment."""
        shown: list[str] = self.js("return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)", css)
        return [text.strip() for text in shown]

    def text(self, css: str) -> str:
        """Return the text of an element as one sees it, waiting for it."""
        [seen] = self.until(lambda: [one.text for one in self.all(css) if one.is_displayed()][:1], css)
        return str(seen)

    def click(self, css: str) -> None:
        """Click an element, waiting for it."""
        self.do(lambda: self.find(css).click())

    def do(self, action: Any) -> None:
        """Do what finds an element and acts on it; where the page replaced the element in between, do it again."""
        self.until(lambda: [action()])

    def until(self, condition: Any, what: str = "", seconds: float = 30) -> Any:
        """Wait for a condition and return its value; an element that is replaced meanwhile is looked up again."""
        from selenium.common.exceptions import StaleElementReferenceException

        end = time.monotonic() + seconds
        while True:
            try:
                if value := condition():
                    return value
            except StaleElementReferenceException:
                pass
            assert time.monotonic() < end, what or "it never happened"
            time.sleep(0.02)

    def sees(self, css: str, text: str) -> None:
        """Wait until an element holds a text."""
        self.until(lambda: any(text in one for one in self.texts(css)), f"{text!r} is not in {css}: {self.texts(css)}")

    def press(self, *keys: str, shift: bool = False) -> None:
        """Press keys where the focus is."""
        from selenium.webdriver import ActionChains, Keys

        chain = ActionChains(self.driver, duration=0)
        if shift:
            chain.key_down(Keys.SHIFT).send_keys(*keys).key_up(Keys.SHIFT)
        else:
            chain.send_keys(*keys)
        chain.perform()

    def focused(self) -> dict[str, Any]:
        """Return what has the focus: its tag, id, classes and name."""
        found: dict[str, Any] = self.js(
            "const e = document.activeElement;"
            "return {tag: e.tagName, id: e.id, classes: [...e.classList], text: e.textContent.trim(),"
            " label: e.getAttribute('aria-label')}"
        )
        return found

    def tab_to(self, condition: Any, back: bool = False, most: int = 40) -> dict[str, Any]:
        """Press Tab, or Shift and Tab, until what has the focus fulfils a condition."""
        for _ in range(most):
            self.press("\ue004", shift=back)
            if condition(focused := self.focused()):
                return focused
        raise AssertionError("the keyboard does not get there")

    def send_file(self, path: Path) -> None:
        """Choose a file to be read."""
        self.js("document.querySelector('#file').hidden = false")
        self.find("#file").send_keys(str(path))
        self.js("document.querySelector('#file').hidden = true")

    def send_folder(self, path: Path) -> None:
        """Choose a folder to be read."""
        self.js("document.querySelector('#folder').hidden = false")
        self.find("#folder").send_keys(str(path))
        self.js("document.querySelector('#folder').hidden = true")

    def ask(self, question: str, wait: bool = True, seconds: float = 5) -> None:
        """Ask a question, and wait for the answer."""
        self.find("#question").send_keys(question + "\n")
        if wait:
            self.until(lambda: not self.js("return document.querySelector('[aria-busy=true]')"), "no answer", seconds)
            self.find("#send")

    def names(self) -> list[tuple[str, str]]:
        """Return role and name of each node of the accessibility tree that is not hidden."""
        nodes = self.cdp("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]

    def pale_texts(self) -> list[str]:
        """Return the texts in sight whose contrast with what is behind them is under 4.5, with their contrast."""
        found: list[str] = self.js(PALE_TEXTS)
        return found

    def is_scrolled_sideways(self) -> bool:
        """Tell whether anything is wider than the window."""
        wide: bool = self.js(
            "return document.documentElement.scrollWidth > innerWidth || "
            "[...document.querySelectorAll('main *, #library *, #text *')].some(e => e.checkVisibility() && "
            "!e.closest('.hidden, .skip, pre, svg, .quiet span') && "
            "!(e.closest('#library') && document.querySelector('#library').inert) && "
            "(e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1))"
        )
        return wide

    def problems(self) -> list[str]:
        """Return what the console reported since it was last asked, and requests that left the origin."""
        reported = [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] in ("SEVERE", "WARNING")
            and not (self.refused and entry["source"] == "network")
            and "/favicon.ico" not in entry["message"]  # asked for by `open`, as a style names no icon
        ]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if not url.startswith((self.url, f"blob:{self.url}", "data:image/svg+xml", "about:")):
                    reported.append(f"a request to {url}")
        return reported


#: Delete the conversations that the browser keeps.
FORGET = """
const request = indexedDB.deleteDatabase('octavo');
request.onsuccess = request.onerror = request.onblocked = () => arguments[0]();
"""

PALE_TEXTS = """
const rgb = (color) => color.match(/[\\d.]+/g).map(Number);
const light = (color) => rgb(color).slice(0, 3).map((part) => part / 255)
  .map((part) => part <= .03928 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4)
  .reduce((sum, part, at) => sum + part * [.2126, .7152, .0722][at], 0);
const behind = (element) => {
  for (; element; element = element.parentElement) {
    const color = getComputedStyle(element).backgroundColor;
    if ((rgb(color)[3] ?? 1) > 0) return color;
  }
  return 'rgb(255, 255, 255)';
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const found = [];
for (let node; (node = walker.nextNode());) {
  const element = node.parentElement;
  if (!node.data.trim() || !element.checkVisibility({visibilityProperty: true})) continue;
  const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
  const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (contrast < 4.5) found.push(node.data.trim().slice(0, 40) + ' ' + contrast.toFixed(2));
}
return found;
"""
