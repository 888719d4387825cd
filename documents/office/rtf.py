"""Extract RTF: headings, paragraphs, lists, tables and notes; and the HTML that mail of Outlook keeps in RTF.

striprtf, and what else there is in Python, gives the text alone: no headings and no rows, and hidden text as text.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, replace
from html import escape

from ..document import Document
from ..html.html import parse, to_markdown
from ..markdown import document_of
from ..markdown_table import MOST_REPEATED

#: Control words and their numbers, characters by their code, other controls, braces, text.
_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,9})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)

#: Groups that are not text of the document. Those that are optional (`\*`) are not, either, but for some.
_SILENT = {"fonttbl", "colortbl", "stylesheet", "info", "pict", "fldinst", "header", "headerl", "headerr", "headerf"}
_SILENT |= {"footer", "footerl", "footerr", "footerf", "listtable", "revtbl", "sp", "shprslt", "nonshppict", "objdata"}
_SILENT |= {"nonesttables", "ftnsep", "ftnsepc", "aftnsep", "aftnsepc", "mmathPr", "bkmkstart", "bkmkend", "xe", "tc"}
_SHOWN = {"shpinst", "htmltag", "pntext"}

#: Groups of which we keep track.
_KINDS = {"fonttbl": "fonts", "footnote": "note", "listtext": "label", "pntext": "label", "htmltag": "html"}

#: Controls that are characters, and that end a paragraph.
_SIGNS = {"tab": " ", "emdash": "—", "endash": "–", "emspace": " ", "enspace": " ", "bullet": "•", "lquote": "‘"}  # noqa: RUF001
_SIGNS |= {"rquote": "’", "ldblquote": "“", "rdblquote": "”", "~": " ", "_": "-", "{": "{", "}": "}", "\\": "\\"}  # noqa: RUF001
_SIGNS |= {"nestcell": " ", "nestrow": ", "}
_ENDS = {"par", "sect", "page", "\n", "\r"}

#: Encodings of Windows' sets of characters, and of systems.
_SETS = {77: "mac_roman", 128: "cp932", 129: "cp949", 134: "gbk", 136: "big5", 161: "cp1253", 162: "cp1254"}
_SETS |= {163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250"}
_SYSTEMS = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}

#: Signs of items of lists without numbers.
_BULLETS = set("·•o▪-*§Ø–●○■\uf0b7\uf0a7\uf0d8")  # noqa: RUF001

#: A style that has a level in the outline.
_OUTLINED = re.compile(rb"\{\\s(\d+)\b[^{};]*?\\outlinelevel(\d)\b")


def extract_rtf(content: bytes, name: str) -> Document:
    """Extract RTF."""
    return document_of(*to_markdown(parse(html_of_rtf(content), name), is_site=False))


def html_of_rtf(content: bytes) -> str:
    """Return RTF as HTML, or the HTML that it was made of."""
    parser = _Parser(content)
    parser.parse()
    return parser.html().encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")


@dataclass(frozen=True)
class _Group:
    """What holds within braces."""

    kind: str = ""
    is_silent: bool = False
    is_hidden: bool = False
    encoding: str = ""
    n_fallback: int = 1  # characters after one in Unicode, for old readers


class _Parser:
    """The blocks of a file so far, and what is open at a place of it."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._is_html = b"\\fromhtml" in content[:4096]
        self._encoding, self._fonts, self._font = "cp1252", dict[int, str](), 0
        self._levels = {int(style[1]): int(style[2]) for style in _OUTLINED.finditer(content)}
        self._level: int | None = None
        self._groups, self._is_optional = [_Group()], False
        self._blocks, self._text, self._label = list[str](), list[str](), ""
        self._bytes, self._n_skipped = b"", 0
        self._is_in_table = False
        self._rows, self._cells, self._cell = list[list[str]](), list[str](), list[str]()
        self._merged, self._merges = list[str](), ""

    def html(self) -> str:
        if self._is_html:
            return "".join(self._text)
        self._end_paragraph()
        self._end_table()
        return "".join(self._blocks).replace("</ul><ul>", "")

    def parse(self) -> None:
        """Parse the file up to its end, or up to bytes that are not RTF."""
        position = 0
        while token := _TOKEN.match(self._content, position):
            position = token.end()
            word, number, code, sign, brace, text = token.groups()
            if text is not None or code is not None:
                raw = text if code is None else bytes([int(code, 16)])
                self._bytes += raw[self._n_skipped :]
                self._n_skipped = max(self._n_skipped - len(raw), 0)
                continue
            self._flush()
            if brace is not None:
                self._n_skipped = 0
            if brace == b"{":
                self._groups.append(self._groups[-1])
            elif brace == b"}":
                self._end_group()
            elif sign == b"*":
                self._is_optional = True
            elif sign is not None:
                self._control(sign.decode("latin-1"), None)
            elif word == b"bin":
                position += max(int(number or 0), 0)
            elif word is not None:
                self._control(word.decode(), None if number is None else int(number))
        self._flush()

    def _flush(self) -> None:
        """Write the bytes that wait, as more than one may make a character."""
        if self._bytes:
            self._write(self._bytes.decode(self._groups[-1].encoding or self._encoding, errors="replace"))
            self._bytes = b""

    def _write(self, text: str) -> None:
        group = self._groups[-1]
        if group.is_silent or group.is_hidden:
            return
        if group.kind == "label":
            self._label += text
        else:
            self._text.append(text if group.kind == "html" else escape(text))

    def _end_group(self) -> None:
        if len(self._groups) > 1:
            ended = self._groups.pop()
            if ended.kind == "note" and self._groups[-1].kind != "note":
                self._text[-1:] = [self._text[-1].rstrip() if self._text else ""]
                self._write(")")

    def _change(self, **changes: object) -> None:
        self._groups[-1] = replace(self._groups[-1], **changes)  # type: ignore[arg-type]

    def _control(self, word: str, number: int | None) -> None:
        group = self._groups[-1]
        if word in _SILENT or (self._is_optional and word not in _SHOWN):
            self._change(is_silent=True)
        if word in _KINDS:
            self._change(kind=_KINDS[word])
            self._write(" (" if word == "footnote" else "")
        self._is_optional = False
        if word == "u" and number is not None:
            self._write(chr(number % 0x10000))
            self._n_skipped = group.n_fallback
        elif word == "uc":
            self._change(n_fallback=number or 0)
        elif word in ("v", "htmlrtf"):
            self._change(is_hidden=number != 0)
        elif word in ("f", "fcharset", "ansicpg", "plain") or word in _SYSTEMS:
            self._set_encoding(word, number)
        elif word in _SIGNS:
            self._write(_SIGNS[word])
        elif word in _ENDS and group.kind == "note":
            self._write(" ")
        elif word == "line" or (word in _ENDS and self._is_html):
            self._text += [] if group.is_silent or group.is_hidden else ["\n" if self._is_html else "<br>"]
        elif not group.is_silent:
            self._layout(word, number)

    def _set_encoding(self, word: str, number: int | None) -> None:
        if word in _SYSTEMS:
            self._encoding = _SYSTEMS[word]
        elif word == "ansicpg":
            with_number = f"cp{number}"
            self._encoding = with_number if _is_encoding(with_number) else "utf-8" if number == 65001 else "cp1252"
        elif word == "fcharset":
            self._fonts[self._font] = _SETS.get(number or 0, "")
        elif word == "plain":
            self._change(encoding="", is_hidden=False)
        elif self._groups[-1].kind == "fonts":
            self._font = number or 0
        else:
            self._change(encoding=self._fonts.get(number or 0, ""))

    def _layout(self, word: str, number: int | None) -> None:
        """Do what a control says about paragraphs and tables."""
        if word in _ENDS:
            self._end_paragraph()
        elif word == "pard":
            self._level, self._is_in_table = None, False
        elif word in ("s", "outlinelevel"):
            self._level = self._levels.get(number or 0) if word == "s" else number
        elif word == "intbl":
            self._is_in_table = True
        elif word == "trowd":
            self._merged, self._merges = [], ""
        elif word in ("clmrg", "clvmrg"):
            self._merges = word
        elif word == "cellx":
            self._merged.append(self._merges)
            self._merges = ""
        elif word == "cell":
            self._is_in_table = True
            self._end_paragraph()
            self._cells.append("".join(self._cell))
            self._cell = []
        elif word == "row":
            self._end_row()

    def _end_paragraph(self) -> None:
        text, label = "".join(self._text).strip(), self._label.strip()
        self._text, self._label = [], ""
        if self._level is not None and self._level < 6 and text and not self._is_in_table:
            block = f"<h{self._level + 1}>{escape(label)} {text}</h{self._level + 1}>"
        elif label in _BULLETS:
            block = f"<ul><li>{text}</li></ul>"
        else:
            block = f"<p>{escape(label)} {text}</p>" if text or label else ""
        if self._is_in_table:
            self._cell.append(block)
        elif block:
            self._end_table()
            self._blocks.append(block)

    def _end_row(self) -> None:
        """End a row of a table; cells that are merged with the one before or above repeat it."""
        above = self._rows[-1] if self._rows else []
        for number, (cell, merged) in enumerate(zip(self._cells, self._merged, strict=False)):
            of = self._cells[:number] if merged == "clmrg" else above[number : number + 1] if merged else [cell]
            self._cells[number] = of[-1] if of and len(of[-1]) <= MOST_REPEATED else "" if merged else cell
        self._rows.append(self._cells)
        self._cells = []

    def _end_table(self) -> None:
        rows = ("".join(f"<td>{cell}</td>" for cell in row) for row in [*self._rows, self._cells] if row)
        if lines := "".join(f"<tr>{row}</tr>" for row in rows):
            self._blocks.append(f"<table>{lines}</table>")
        self._rows, self._cells = [], []


def _is_encoding(name: str) -> bool:
    try:
        codecs.lookup(name)
    except LookupError:
        return False
    return True
