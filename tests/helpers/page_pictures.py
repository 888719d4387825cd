"""Take the pictures of the page that docs/ shows, from a running server: `octavo serve` with an empty library.

PYTHONPATH=tests .venv/bin/python -m helpers.page_pictures http://127.0.0.1:8080/
"""

from __future__ import annotations

import argparse
import io
import time
from pathlib import Path

from PIL import Image

from .browser import Window, chromium, set_media, set_size
from .product import ROOT

DOCUMENT = ROOT / "examples" / "encyclopedia.pdf"
QUESTION = "What is the name of the latest epoch?"


def take(window: Window, path: Path) -> None:
    """Save what is in the window. Few colours are in it, and 256 keep the file small."""
    picture = Image.open(io.BytesIO(window.driver.get_screenshot_as_png())).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Read a document, ask about it, look at a source, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    arguments = parser.parse_args()
    with chromium() as driver:
        window = Window(driver, arguments.url)
        set_media(driver)
        set_size(driver, 1280, 720)
        window.open()
        if not window.all("#documents .open"):
            window.send_file(DOCUMENT)
        window.click("#documents .open:enabled")
        window.until(lambda: window.find("#send").is_enabled(), "it is not read", 600)
        for _ in range(9):  # answers are drawn, and some come from memory
            if window.all("#new"):
                window.js("document.querySelector('#new').click()")
            window.ask(QUESTION, seconds=120)
            if window.all(".source"):
                break
        window.click(".source")
        window.until(lambda: window.focused()["tag"] == "MARK")
        take(window, arguments.folder / "page-light.png")
        set_media(driver, "dark")
        take(window, arguments.folder / "page-dark.png")
        set_media(driver)
        window.press("\ue00c")
        window.click("#new")
        window.click("#compare")
        window.ask(QUESTION, seconds=120)
        take(window, arguments.folder / "page-compare.png")
        set_size(driver, 360, 720, scale=2, mobile=True)
        window.js("document.querySelector('#conversations').scrollTop = 0")
        time.sleep(0.5)  # the library moves out of sight
        take(window, arguments.folder / "page-phone.png")


if __name__ == "__main__":
    main()
