"""Take the pictures of the page that docs/ shows, from a running server: `octavo serve` with an empty library.

PYTHONPATH=tests .venv/bin/python -m helpers.page_pictures http://127.0.0.1:8080/
"""

from __future__ import annotations

import argparse
import io
import itertools
import time
from pathlib import Path
from tempfile import TemporaryDirectory

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


def articles(folder: Path) -> Path:
    """Write two short articles into a folder of this name."""
    lines = (ROOT / "examples" / "encyclopedia.md").read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("# ")]
    target = folder / "articles"
    target.mkdir()
    for start, stop in itertools.islice(itertools.pairwise(starts), 2):
        name = lines[start].removeprefix("# ").strip()
        (target / f"{name}.md").write_text("\n".join(lines[start : min(stop, start + 6)]))
    return target


def is_read(window: Window) -> bool:
    """Return whether all documents are read."""
    return not window.js("return document.querySelector('#documents progress')?.checkVisibility()")


def ask(window: Window) -> None:
    """Ask in a new conversation, and in further ones until an answer has sources: answers are drawn."""
    for _ in range(9):
        window.js("document.querySelector('#new').click()")
        window.ask(QUESTION, seconds=200)
        if window.all(".conversation:not([hidden]) .source"):
            break


def main() -> None:
    """Read documents, ask about one, look at a source, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    arguments = parser.parse_args()
    with chromium() as driver, TemporaryDirectory() as temporary:
        window = Window(driver, arguments.url)
        set_media(driver)
        set_size(driver, 1280, 720)
        window.open()
        if not window.js(f"return document.querySelector('#documents [title=\"{DOCUMENT.name}\"]')"):
            window.send_folder(articles(Path(temporary)))
            window.send_file(DOCUMENT)
        window.until(lambda: window.all(f"#documents [title='{DOCUMENT.name}']:enabled") and is_read(window), "", 900)
        window.js("document.querySelector('#documents [title=\"articles\"]')?.click()")
        window.ask("Who built the first steam engine?", seconds=200)
        window.click(f"#documents [title='{DOCUMENT.name}']")
        ask(window)
        window.click(".conversation:not([hidden]) .source")
        window.until(lambda: window.focused()["tag"] == "MARK")
        window.until(lambda: window.js("return document.querySelector('#text-picture').naturalWidth"), "no page", 60)
        time.sleep(1)
        take(window, arguments.folder / "page-light.png")
        set_media(driver, "dark")
        take(window, arguments.folder / "page-dark.png")
        set_media(driver)
        window.press("\ue00c")
        window.click("#new")
        window.click("#compare")
        window.ask(QUESTION, seconds=200)
        take(window, arguments.folder / "page-compare.png")
        window.click("#compare")
        ask(window)
        set_size(driver, 360, 720, scale=2, mobile=True)
        window.js("document.querySelector('#conversations').scrollTop = 0")
        time.sleep(0.5)  # the library moves out of sight
        take(window, arguments.folder / "page-phone.png")


if __name__ == "__main__":
    main()
