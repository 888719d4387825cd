"""Split the Metal Shading Language into tokens, which are those of C++14.

A token keeps the white space before it, so that the text of a token list equals the source. It also keeps its file and
line, which follow `#line` and the preprocessor's line markers.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

OPENING = {"(": ")", "[": "]", "{": "}"}

# `>>` is two tokens: it closes two template argument lists more often than it shifts.
TOKEN = re.compile(
    r"""
      (?P<space>     (?: \s | //[^\n]* | /\*.*?\*/ )+ )
    | (?P<string>    "(?: [^"\\\n] | \\. )*" )
    | (?P<character> '(?: [^'\\\n] | \\. )*' )
    | (?P<name>      [A-Za-z_]\w* )
    | (?P<number>    \.?\d (?: [eEpP][+-] | [\w.'] )* )
    | (?P<operator>  <<= | >>= | \.\.\. | ->\* | :: | -> | \+\+ | -- | && | \|\| | << | [-+*/%&|^!=<>]= | . )
    """,
    re.VERBOSE | re.DOTALL,
)
DIRECTIVE = re.compile(r"[ \t]*\#(?:[^\n\\]|\\.)*", re.DOTALL)
LINE_MARKER = re.compile(r'[ \t]*#[ \t]*(?:line[ \t]+)?(\d+)(?:[ \t]+"((?:[^"\\]|\\.)*)")?')


class MSLError(Exception):
    """An error in a shader, found before or during a run. The message names the line in the .metal file."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `kind` is name, number, string, character, operator or directive (a whole `#` line)."""

    kind: str
    text: str
    before: str
    file: str
    line: int

    def __str__(self) -> str:
        return self.text

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


def tokenize(source: str, file: str = "shader.metal") -> list[Token]:
    """Split a source text into tokens. Comments become white space."""
    tokens: list[Token] = []
    position, line, before = 0, 1, ""
    while position < len(source):
        if source.startswith(("#", " ", "\t"), position) and at_line_start(source, position):
            directive = DIRECTIVE.match(source, position)
            if directive:
                tokens.append(Token("directive", directive.group(), before, file, line))
                marker = LINE_MARKER.match(directive.group())
                if marker:
                    line, file = int(marker[1]) - 1, marker[2] if marker[2] is not None else file
                line += directive.group().count("\n")
                position, before = directive.end(), ""
                continue
        match = TOKEN.match(source, position)
        text, kind = match.group(), match.lastgroup
        if kind == "space":
            before += re.sub(r"[^\s]", " ", text) if "/" in text else text
        else:
            tokens.append(Token(kind, text, before, file, line))
            before = ""
        line += text.count("\n")
        position = match.end()
    return tokens


def at_line_start(source: str, position: int) -> bool:
    return position == 0 or source[position - 1] == "\n"


def text_of(tokens: Sequence[Token]) -> str:
    """Return the source text of tokens, with the white space between them."""
    return "".join(token.before + token.text for token in tokens).strip()


def closing(tokens: Sequence[Token], start: int) -> int:
    """Return the index of the bracket that closes the (, [ or { at `start`."""
    wanted: list[str] = []
    for index in range(start, len(tokens)):
        token = tokens[index]
        if token.kind != "operator":
            continue
        if token.text in OPENING:
            wanted.append(OPENING[token.text])
        elif token.text in OPENING.values():
            if token.text != wanted.pop():
                raise MSLError(f"{token.place}: {token.text} closes a bracket that was opened otherwise")
            if not wanted:
                return index
    raise MSLError(f"{tokens[start].place}: {tokens[start].text} is never closed")


def closing_angle(tokens: Sequence[Token], start: int) -> int | None:
    """Return the index of the > that closes the < at `start`, or None if it is a comparison."""
    depth, index = 0, start
    while index < len(tokens):
        text = tokens[index].text
        if text in OPENING and text != "{":
            index = closing(tokens, index)
        elif text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return index
        elif text in (";", "{", "}", ")", "]", "&&", "||"):
            return None
        index += 1
    return None


def split(tokens: Sequence[Token], separator: str = ",") -> list[list[Token]]:
    """Split tokens at separators outside brackets and template argument lists."""
    parts: list[list[Token]] = [[]]
    index = 0
    while index < len(tokens):
        text = tokens[index].text
        end = index
        if text in OPENING:
            end = closing(tokens, index)
        elif text == "<":
            end = closing_angle(tokens, index) or index
        if text == separator:
            parts.append([])
        else:
            parts[-1].extend(tokens[index : end + 1])
        index = end + 1
    return [part for part in parts if part]


def is_attribute(tokens: Sequence[Token], index: int) -> bool:
    """Tell whether an attribute list [[...]] begins at `index`."""
    return (
        index + 1 < len(tokens)
        and tokens[index].text == "["
        and tokens[index + 1].text == "["
        and not tokens[index + 1].before
    )


def without_attributes(tokens: Sequence[Token]) -> tuple[list[Token], dict[str, list[Token]]]:
    """Return the tokens without their [[...]] lists, and the attributes: names mapped to arguments."""
    kept: list[Token] = []
    attributes: dict[str, list[Token]] = {}
    index = 0
    while index < len(tokens):
        if is_attribute(tokens, index):
            end = closing(tokens, index)
            for attribute in split(tokens[index + 2 : end - 1]):
                attributes[attribute[0].text] = attribute[2:-1]
            index = end + 1
        else:
            kept.append(tokens[index])
            index += 1
    return kept, attributes
