"""README and docs name only what exists, links lead somewhere, and the example of a new method runs."""

from __future__ import annotations

import re

import pytest
from helpers.product import ROOT

README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
#: All pages. Paths begin at the root, or in the page's own folder.
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS, *sorted((ROOT / "docs").glob("*/*.md")), *sorted(ROOT.glob("*/README.md"))]
PAGES += [ROOT / "tests" / "metal_simulator" / "README.md"]

MAX_README_LINES = 140

#: How the name of a file or folder of ours looks, in backticks: it has a slash, or an ending of ours.
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|metal))`")
#: What looks like a path and is none of ours: placeholders, the files of an example, and what make installs.
FOREIGN = re.compile(r"NAME|TASK|MODEL|knorm|^\./|^\.venv/|^~")


def name(path):
    return path.relative_to(ROOT).as_posix()


def without_code(text):
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths_exist(page):
    named = [path for path in PATH.findall(without_code(page.read_text("utf-8"))) if not FOREIGN.search(path)]

    folders = [ROOT, page.parent]
    assert [path for path in named if not any((folder / path).exists() for folder in folders)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text("utf-8"))):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        linked = page.parent / path if path else page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)", linked.read_text("utf-8"), re.M)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}, (
                target
            )


def test_makefile_names_tests_that_exist():
    named = re.findall(r"\btests/\S+", (ROOT / "Makefile").read_text("utf-8"))
    assert [path for path in named if not (ROOT / path.rstrip(")")).exists()] == []


def test_makefile_and_workflows_run_modules_that_exist():
    texts = [path.read_text("utf-8") for path in (ROOT / "Makefile", *(ROOT / ".github" / "workflows").glob("*.yml"))]
    named = re.findall(r"-m octavo\.([\w.]+)", "\n".join(texts))
    assert named
    assert [module for module in named if not (ROOT / f"{module.replace('.', '/')}.py").is_file()] == []


def test_readme_is_short_and_links_every_page():
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= MAX_README_LINES
    assert [name(page) for page in DOCS if f"]({name(page)}" not in text] == []
