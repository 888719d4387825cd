"""Find the headings of texts in other mark-up than Markdown: reStructuredText, AsciiDoc, Org, and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

#: The first character of a heading's line, its level, and its words.
Heading = tuple[int, int, str]

#: A line of one sign, which is under a heading, and perhaps above it, too.
_RULE = re.compile(r"([!-/:-@\[-`{-~])\1+$")

#: Headings of AsciiDoc, what begins and ends its blocks, and the signs under headings in two lines, by their levels.
_ADOC, _ADOC_BLOCK = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)"), re.compile(r"([-.=*_+/])\1{3,}$|\|={3,}$|```|--$")
_ADOC_RULES = "=-~^+"

#: Headings of Org without their states and tags, its title, and what begins and ends its blocks.
_ORG = re.compile(
    r"(\*+)[ \t]+(?:(?:TODO|DONE|NEXT|WAITING|CANCELLED)\b[ \t]*)?(?:\[#\w\][ \t]*)?(.*?)(?:[ \t]+:[\w@#%:]+:)?$"
)
_ORG_TITLE, _ORG_BLOCK = (
    re.compile(r"#\+title:[ \t]*(\S.*)", re.IGNORECASE),
    re.compile(r"#\+(begin|end)_", re.IGNORECASE),
)

#: Commands of LaTeX that are headings, by rising level, parts without any, and marks in the words of a heading.
_TEX_LEVELS = ("title", "part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph")
_TEX = re.compile(rf"\\({'|'.join(_TEX_LEVELS)}|frametitle)\*?\s*(?:\[[^\]]*\])?\s*\{{")
_TEX_SILENT = re.compile(
    r"(?<!\\)%[^\n]*|\\begin\{(verbatim\*?|lstlisting|minted|comment)\}.*?(?:\\end\{\1\}|\Z)", re.DOTALL
)
_TEX_WORDS = (
    (r"\\(?:label|footnote|thanks)\{[^{}]*\}", ""),
    (r"\\\\|~", " "),
    (r"\\[A-Za-z]+\*?\s*", ""),
    (r"\\(.)", r"\1"),
    (r"[{}$]", ""),
)


def _rst(text: str) -> Iterator[Heading]:
    lines, offset = text.splitlines(keepends=True), 0
    levels: list[tuple[str, bool]] = []
    for number, line in enumerate(lines):
        title, under = line.strip(), lines[number + 1].rstrip() if number + 1 < len(lines) else ""
        rule = _RULE.match(under)
        above = lines[number - 1].rstrip() if number else ""
        is_over = above == under
        is_long = len(under) >= (len(title) if above and not is_over else min(len(title), 4))
        if rule and title and is_long and not _RULE.match(title) and (is_over or not line[0].isspace()):
            kind = (rule[1], is_over)
            levels += [] if kind in levels else [kind]
            yield offset - len(lines[number - 1]) * is_over, levels.index(kind) + 1, _plain(title)
        offset += len(line)


def _adoc(text: str) -> Iterator[Heading]:
    offset, block, before, n_before = 0, "", "", 0
    for line in text.splitlines(keepends=True):
        bare = line.rstrip()
        is_rule = not block and bare[:1] in _ADOC_RULES and _RULE.match(bare) and abs(len(bare) - len(before)) <= 2
        if is_rule and before[:1].isalnum():
            yield offset - n_before, _ADOC_RULES.index(bare[0]) + 1, _plain(before)
        elif edge := _ADOC_BLOCK.match(bare):
            block = "" if block == edge[0] else block or edge[0]
        elif not block and (heading := _ADOC.match(bare)):
            yield offset, len(heading[1]), _plain(heading[2])
        before, n_before = bare, len(line)
        offset += len(line)


def _org(text: str) -> Iterator[Heading]:
    offset, is_block = 0, False
    for line in text.splitlines(keepends=True):
        if edge := _ORG_BLOCK.match(line.strip()):
            is_block = edge[1].lower() == "begin"
        elif title := _ORG_TITLE.match(line.rstrip()):
            yield offset, 0, _plain(title[1])
        elif not is_block and (heading := _ORG.match(line.rstrip())) and heading[2]:
            yield offset, len(heading[1]), _plain(heading[2])
        offset += len(line)


def _tex(text: str) -> Iterator[Heading]:
    shown = _TEX_SILENT.sub(lambda silent: re.sub(r"[^\n]", " ", silent[0]), text)  # the places stay
    for command in _TEX.finditer(shown):
        depth, end = 1, command.end()
        while depth and end < len(shown) and end - command.end() < 1000:
            depth += {"{": 1, "}": -1}.get(shown[end], 0) if shown[end - 1] != "\\" else 0
            end += 1
        title = shown[command.end() : end - 1]
        for pattern, written in _TEX_WORDS:
            title = re.sub(pattern, written, title)
        if words := " ".join(title.split()):
            level = _TEX_LEVELS.index(command[1]) if command[1] in _TEX_LEVELS else len(_TEX_LEVELS)
            yield shown.rfind("\n", 0, command.start()) + 1, level, words


def _plain(title: str) -> str:
    """Return a heading without marks of code and emphasis around words."""
    return re.sub(r"(?<!\w)(``|`|\*\*|\*|=|~)(\S(?:.*?\S)?)\1(?!\w)", r"\2", title.strip())


#: What finds the headings of a text, by the ending of its file's name.
HEADINGS: dict[str, Callable[[str], Iterator[Heading]]] = {
    **dict.fromkeys((".rst", ".rest"), _rst),
    **dict.fromkeys((".adoc", ".asciidoc", ".asc"), _adoc),
    ".org": _org,
    **dict.fromkeys((".tex", ".latex", ".ltx"), _tex),
}
