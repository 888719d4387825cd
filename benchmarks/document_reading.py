"""Compare what is read of documents with what is right, and with what other programs read of them.

    python benchmarks/document_reading.py FOLDER [--programs octavo,pypdf,...] [--each]

FOLDER holds documents, and beside each, as Markdown, what is right: NAME.pdf and NAME.pdf.md, or NAME.md. Programs
that are not installed are left out, with a word. The figures are means over the files, from 0 to 1, the best:

words     F1 of the words, wherever they stand
order     share of the words that stand in the same order (difflib's ratio)
cells     F1 of the cells of tables; of files that have tables
headings  F1 of the headings; of files that have headings
s         seconds a file
"""

from __future__ import annotations

import argparse
import difflib
import html
import importlib
import re
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from octavo.cli.render import markdown_table
from octavo.documents.extract import extract_document


def _pypdf(path: Path) -> str:
    reader = importlib.import_module("pypdf").PdfReader(path)
    return "\n\n".join(page.extract_text() for page in reader.pages)


def _pdfminer(path: Path) -> str:
    return str(importlib.import_module("pdfminer.high_level").extract_text(path))


def _pymupdf(path: Path) -> str:
    return "\n\n".join(page.get_text() for page in importlib.import_module("pymupdf").open(path))


def _pymupdf4llm(path: Path) -> str:
    return str(importlib.import_module("pymupdf4llm").to_markdown(str(path)))


def _markitdown(path: Path) -> str:
    return str(importlib.import_module("markitdown").MarkItDown().convert(str(path)).text_content)


PROGRAMS: dict[str, Callable[[Path], str]] = {
    "octavo": lambda path: extract_document(path).text,
    "pypdf": _pypdf,
    "pdfminer": _pdfminer,
    "pymupdf": _pymupdf,
    "pymupdf4llm": _pymupdf4llm,
    "markitdown": _markitdown,
}

#: A target of a link, such as `(a_(b) "title")`.
_TARGET = r"""\((?:[^()\s]|\([^()\s]*\))*(?:\s+"[^"]*")?\)"""

#: What of Markdown is not text: comments, descriptions of pictures (which the truth may leave out), targets of links,
#: rules of tables, escapes, tags, emphasis.
_MARKS = [
    (re.compile(r"<!--.*?-->", re.DOTALL), " "),
    (re.compile(rf"!\[[^][]*\](?:{_TARGET})?"), " "),
    (re.compile(rf"(?<=\]){_TARGET}"), ""),
    (re.compile(r"^\|?[\s:|-]*-{3,}[\s:|-]*$", re.MULTILINE), " "),
    (re.compile(r"\\(?=[^\w\s]|_)"), ""),
    (re.compile(r"</?[a-z]+>|(?<!\w)_+|_+(?!\w)"), ""),
]

#: A formula, the commands in one, and those that are words.
_FORMULA, _COMMAND = re.compile(r"\$\$?([^$\n]+)\$?\$"), re.compile(r"\\([a-zA-Z]+|[^a-zA-Z])")
_WORDS = {"arccos", "arcsin", "arctan", "cos", "cosh", "cot", "det", "exp", "gcd", "inf", "ker", "lim", "ln", "log"}
_WORDS |= {"max", "min", "sin", "sinh", "sup", "tan", "tanh"}


def main() -> None:
    """Read the command line, and print a table for each direction of writing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--each", action="store_true", help="Show each file, too.")
    arguments = parser.parse_args()
    scores: dict[str, dict[str, list[list[float]]]] = {}
    for path, truth in pairs(arguments.folder):
        right = plain(truth.read_text())
        direction = "right to left" if is_right_to_left(right) else "left to right"
        for program in arguments.programs.split(","):
            began = time.perf_counter()
            try:
                text = plain(PROGRAMS[program](path))
            except ImportError as error:
                print(f"{program} is not installed: {error}", file=sys.stderr)
                continue
            except Exception as error:  # Of another program, on a file that it does not read.
                print(f"{program}, {path.name}: {error}", file=sys.stderr)
                text = ""
            row = [*compare(text, right), time.perf_counter() - began]
            scores.setdefault(direction, {}).setdefault(program, []).append(row)
            if arguments.each:
                print(path.name, program, *(f"{value:.3f}" for value in row))
    for direction, of_programs in sorted(scores.items()):
        print(f"\n{max(map(len, of_programs.values()))} files, {direction}:\n")
        rows = [[program, *map(mean, zip(*rows, strict=True))] for program, rows in of_programs.items()]
        print(markdown_table(["", "words", "order", "cells", "headings", "s"], rows))


def mean(values: tuple[float, ...]) -> str:
    """Return the mean of the values that are numbers; "-" if there are none."""
    numbers = [value for value in values if value == value]
    return f"{sum(numbers) / len(numbers):.3f}" if numbers else "-"


def pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Return the documents of a folder, each with its truth."""
    files = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    truths = [(Path(f"{path}.md"), path.with_suffix(".md")) for path in files]
    both = [(path, next(filter(files.__contains__, names), None)) for path, names in zip(files, truths, strict=True)]
    return [(path, truth) for path, truth in both if truth not in (None, path)]


def plain(text: str) -> str:
    """Return a text whose letters have one form each, without marks of Markdown.

    In formulas each sign is a word, as blanks there mean nothing, and only those commands stay that name letters or
    functions.
    """
    text = _FORMULA.sub(lambda formula: " ".join(_COMMAND.sub(_letter, formula[1]).replace(" ", "")), text)
    for mark, other in _MARKS:
        text = mark.sub(other, text)
    return unicodedata.normalize("NFKC", html.unescape(text))


def _letter(command: re.Match[str]) -> str:
    """Return the letter or the name that a command of TeX writes; nothing for another command."""
    if command[1] in _WORDS:
        return command[1]
    case = "CAPITAL" if command[1][0].isupper() else "SMALL"
    try:
        return unicodedata.lookup(f"GREEK {case} LETTER {command[1].upper()}")
    except KeyError:
        return ""


def is_right_to_left(text: str) -> bool:
    """Return whether most letters are written from right to left."""
    directions = Counter(unicodedata.bidirectional(letter) for letter in text)
    return directions["R"] + directions["AL"] > directions["L"]


def compare(text: str, right: str) -> list[float]:
    """Return the figures for a text: words, order, cells and headings. NaN: the right text has none."""
    words, right_words = re.findall(r"\w+", text), re.findall(r"\w+", right)
    matcher = difflib.SequenceMatcher(None, words, right_words, autojunk=False)
    return [
        f1(Counter(words), Counter(right_words)),
        matcher.ratio() if words and right_words else 0.0,
        f1(cells(text), cells(right)),
        f1(headings(text), headings(right)),
    ]


def cells(text: str) -> Counter[str]:
    """Return the cells of a text's tables, by their letters and digits."""
    rows = [line.strip().strip("|").split("|") for line in text.splitlines() if line.strip().startswith("|")]
    return Counter(filter(None, (re.sub(r"\W+", "", cell) for row in rows for cell in row)))


def headings(text: str) -> Counter[str]:
    """Return a text's headings, by their letters and digits."""
    lines = (re.sub(r"\W+", "", line).lower() for line in text.splitlines() if line.startswith("#"))
    return Counter(filter(None, lines))


def f1(found: Counter[str], right: Counter[str]) -> float:
    """Return the F1 of what was found; NaN if there is nothing to find."""
    if not right:
        return np.nan
    return 2 * (found & right).total() / (found.total() + right.total())


if __name__ == "__main__":
    main()
