"""Extract RTF: headings, paragraphs, lists, tables, notes, formulas; and the HTML that mail of Outlook keeps in RTF.

striprtf, and what else there is in Python, gives the text alone: no headings and no rows, and hidden text as text.
"""

from __future__ import annotations

import codecs
import re
from html import escape
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from ..document import Document
from ..html.html import parse, to_markdown
from ..left_out import LeftOut
from ..markdown import document_of
from .docx_styles import CODE_FONT
from .equation_fields import equation
from .letterheads import PAGE, SEPARATOR, with_letterheads, without_page_numbers
from .rtf_formula import add_text, begin_element, begin_formula, written_formula
from .rtf_table import Row, table_html

#: Control words and their numbers, characters by their code, other controls, braces, text.
_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)

#: Groups that are not text of the document. Those that are optional (`\*`) are not, either, but for some.
_SILENT = {"fonttbl", "colortbl", "stylesheet", "info", "pict", "fldinst", "listtable", "revtbl", "sp", "shprslt"}
_SILENT |= {"nonesttables", "ftnsep", "ftnsepc", "aftnsep", "aftnsepc", "mmathPr", "bkmkstart", "bkmkend", "xe", "tc"}
_SILENT |= {"nonshppict", "objdata", "mmathPict"}
_SHOWN = {"shpinst", "shppict", "htmltag", "pntext", "footnote", "moMath", "moMathPara", "formfield", "ffl"}

#: Heads and feet of pages; the last of each are of the first page alone.
_HEADS = ["header", "headerl", "headerr", "headerf"]
_FEET = ["footer", "footerl", "footerr", "footerf"]

#: Groups of which we keep track.
_KINDS = {"fonttbl": "fonts", "footnote": "note", "listtext": "label", "pntext": "label", "htmltag": "html"}
_KINDS |= (
    {"moMath": "formula", "formfield": "form", "ffl": "choice"}
    | dict.fromkeys(_HEADS, "head")
    | dict.fromkeys(_FEET, "foot")
)

#: Groups that are left out, and as what.
_COUNTED = {"pict": "picture", "object": "embedded object", "annotation": "remark"}

#: Controls for text above and below the line, those that strike it out, and those that take it out, and as what.
_SCRIPTS = {"super": "sup", "sub": "sub", "nosupersub": "", "up": "sup", "dn": "sub"}
_STRIKING = ("strike", "striked")
_TAKING_OUT = {"v": "hidden passage", "htmlrtf": "", "deleted": "deleted passage", "mvf": "deleted passage"}

#: Names of fields that are numbers of pages, and bytes of the instruction of a field within which they are.
_PAGE_FIELDS = re.compile(rb"\b(?:PAGE|NUMPAGES|SECTIONPAGES)\b")
_INSTRUCTION = 400
_CODE = re.compile(r"\\u(-?\d+) ?\??|\\([\\{}])|\\[a-z]+-?\d* ?|[{}\r\n]|([^\\])")

#: What a shape says before its text if it is hidden.
_HIDDEN_SHAPE = re.compile(rb"\{\\sn fHidden\}\s*\{\\sv 1\}")

#: The number of a field of a form that was not filled in.
_UNDEFINED = 25

#: Controls that are characters, and that end a paragraph.
_SIGNS = {"tab": " ", "emdash": "—", "endash": "–", "emspace": " ", "enspace": " ", "bullet": "•", "lquote": "‘"}  # noqa: RUF001
_SIGNS |= {"rquote": "’", "ldblquote": "“", "rdblquote": "”", "~": " ", "_": "-", "{": "{", "}": "}", "\\": "\\"}  # noqa: RUF001
_SIGNS |= {"nestcell": " ", "nestrow": ", "}
_ENDS = {"par", "sect", "page", "column", "\n", "\r"}

#: Encodings of Windows' sets of characters, and of systems.
_SETS = {77: "mac_roman", 128: "cp932", 129: "cp949", 134: "gbk", 136: "big5", 161: "cp1253", 162: "cp1254"}
_SETS |= {163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250"}
_SYSTEMS = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}

#: Signs of items of lists without numbers.
_BULLETS = set("·•o▪-*§Ø–●○■\uf0b7\uf0a7\uf0d8")  # noqa: RUF001

#: Most levels of a list, as in Word.
_MOST_LEVELS = 9

#: A style that has a level in the outline, by itself, by the one that it is based on, or by its name.
_OUTLINED = re.compile(rb"\{\\s(\d+)\b[^{};]*?\\outlinelevel(\d)\b")
_BASED = re.compile(rb"\{\\s(\d+)\b[^{};]*?\\sbasedon(\d+)\b(?![^{};]*\\outlinelevel9)")
_NAMED = re.compile(rb"\{\\s(\d+)\b[^{};]*? (?:[Hh]eading (\d)|[Tt]itle);")


def extract_rtf(content: bytes, name: str) -> Document:
    """Extract RTF."""
    left_out = LeftOut()
    parser = _Parser(content, left_out)
    head, body, foot = (_well_formed(part) for part in (parser.html("head"), parser.html(), parser.html("foot")))
    whole = f"{head}<p>{SEPARATOR}</p>{body}<p>{SEPARATOR}</p>{foot}"
    text, _ = to_markdown(parse(whole, name), is_site=False)
    return document_of(with_letterheads(text), notices=left_out.notices(name))


def html_of_rtf(content: bytes, left_out: LeftOut) -> str:
    """Return RTF as HTML, or the HTML that it was made of."""
    return _well_formed(_Parser(content, left_out).html())


def _well_formed(text: str) -> str:
    """Join the halves of characters, which RTF writes apart."""
    return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")


class _Group(NamedTuple):
    """The state within braces, with the level of the paragraph as a heading, and the row of a table that it is in."""

    kind: str = ""
    is_silent: bool = False
    taken_out: str = ""  # the control that takes text out
    encoding: str = ""
    n_fallback: int = 1  # characters after one in Unicode, for old readers
    script: str = ""
    is_struck: bool = False
    is_code: bool = False
    level: int | None = None
    depth: int = 0  # of a list
    row: int = -1
    formula: Element | None = None


class _Flow:
    """Blocks of text, one after another, and the open paragraph and table at their end."""

    def __init__(self) -> None:
        self.blocks, self.text, self.label = list[str](), list[str](), ""
        self.rows, self.row, self.cell = list[Row](), Row(), list[str]()
        self.n_code, self.n_chars = 0, 0  # characters of the open paragraph: those of code, and all

    def end_table(self) -> None:
        if self.cell:
            self.row.cells.append("".join(self.cell))
        if self.rows or self.row.cells:
            self.blocks.append(table_html([*self.rows, self.row]))
        self.rows, self.row, self.cell = [], Row(), []


class _Parser:
    """The text of a file so far, and what is open at a place of it."""

    def __init__(self, content: bytes, left_out: LeftOut) -> None:
        self._content, self._left_out, self._position = content, left_out, 0
        self._is_html = b"\\fromhtml" in content[:4096]
        self._has_first_page = re.search(rb"\\titlepg(?!0)", content) is not None
        self._encoding, self._fonts, self._font = "cp1252", dict[int, str](), 0
        self._code_fonts: set[int] = set()
        self._levels = {int(style[1]): int(style[2] or 1) - 1 for style in _NAMED.finditer(content)}
        self._levels |= {int(style[1]): int(style[2]) for style in _OUTLINED.finditer(content)}
        for style in _BASED.finditer(content):  # a style comes after the one that it is based on, as a rule
            if int(style[2]) in self._levels:
                self._levels.setdefault(int(style[1]), self._levels[int(style[2])])
        self._groups, self._is_optional = [_Group()], False
        self._flows = {name: _Flow() for name in ("", "head", "foot")}
        self._flow = self._flows[""]
        self._n_code, self._n_chars = 0, 0
        self._bytes, self._n_skipped = b"", 0
        self._taking_out, self._note_start, self._n_rows, self._merges = "", 0, 0, ""
        self._has_result, self._choices, self._form = False, list[str](), dict[str, int]()
        self._parse()
        if not self._is_html:
            self._end_paragraph()

    def html(self, flow: str = "") -> str:
        """Return the text, or that of heads or feet."""
        found = self._flows[flow]
        if self._is_html:
            return "".join(found.text)
        found.end_table()
        written = "".join(found.blocks).replace("</ul><ul>", "")
        if 2 * self._n_code > self._n_chars:  # it is typewritten
            return written.replace("<pre>", "<p>").replace("</pre>", "</p>")
        return written.replace("</pre><pre>", "\n")

    def _parse(self) -> None:
        """Parse the file up to its end, or up to bytes that are not RTF."""
        begins = False  # a group, where alone a control can be optional
        while token := _TOKEN.match(self._content, self._position):
            self._position = token.end()
            word, number, code, sign, brace, text = token.groups()
            follows_brace, begins = begins, brace == b"{" or (begins and not token[0].strip())
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
                self._is_optional = follows_brace
            elif sign is not None:
                self._control(sign.decode("latin-1"), None)
            elif word == b"bin":
                self._position += max(int(number or 0), 0)
            elif word is not None:
                self._control(word.decode(), None if number is None else int(number))
        self._flush()

    def _flush(self) -> None:
        """Write the bytes that wait, as more than one may make a character."""
        if self._bytes:
            self._write(self._bytes.decode(self._groups[-1].encoding or self._encoding, errors="replace"))
            self._bytes = b""

    def _write(self, text: str) -> None:
        group, flow = self._groups[-1], self._flow
        if group.kind == "choice":
            self._choices[-1] += text
        if group.kind == "fonts" and CODE_FONT.search(text):
            self._code_fonts.add(self._font)
        if group.is_silent:
            return
        if group.taken_out:
            kind = _TAKING_OUT[group.taken_out]
            if text.strip() and kind and self._taking_out != kind:
                self._left_out[kind] += 1
                self._taking_out = kind
            return
        if group.kind == "label":
            flow.label += text
            return
        if group.formula is not None:
            add_text(group.formula, text)
            return
        if text.strip():
            self._taking_out = ""
            flow.n_chars += len(text)
            flow.n_code += len(text) if group.is_code else 0
        text = text if group.kind == "html" else escape(text)
        text = f"<{group.script}>{text}</{group.script}>" if group.script else text
        flow.text.append(f"<s>{text}</s>" if group.is_struck and not self._is_html else text)

    def _end_group(self) -> None:
        if len(self._groups) == 1:
            return
        ended, around = self._groups[-1], self._groups[-2]
        if ended.kind in ("head", "foot") and around.kind != ended.kind:
            self._end_paragraph()
            self._flow = self._flows[""]
        if len(self._groups) == 2 and ended.level is not None:
            self._end_paragraph()
        self._groups.pop()
        if ended.kind == around.kind:
            return
        if ended.kind == "note":
            note = "".join(self._flow.text[self._note_start :]).strip()
            self._flow.text[self._note_start :] = [f" ({note})"] if note else []
        elif ended.formula is not None:
            self._flow.text.append(escape(written_formula(ended.formula)))
        elif ended.kind == "form":
            self._end_form()

    def _end_form(self) -> None:
        """Write which choice is made in a field of a form, or whether it is ticked."""
        kind, chosen = self._form.get("fftype", 0), self._form.get("ffres", _UNDEFINED)
        chosen = self._form.get("ffdefres", 0) if chosen == _UNDEFINED else chosen
        if kind == 1:
            self._flow.text.append("[x]" if chosen else "[ ]")
        elif kind == 2 and chosen < len(self._choices):
            self._flow.text.append(escape(self._choices[chosen].strip()))
        self._has_result = kind != 0

    def _change(self, **changes: Any) -> None:
        self._groups[-1] = self._groups[-1]._replace(**changes)

    def _control(self, word: str, number: int | None) -> None:
        group = self._groups[-1]
        if word in _COUNTED and not group.is_silent:
            self._left_out[_COUNTED[word]] += 1
        if word in _SILENT or (self._is_optional and word not in _SHOWN):
            self._change(is_silent=True)
        if word in _KINDS and not (group.is_silent and _KINDS[word] in ("head", "foot", "note")):
            self._begin_kind(word)
        if word == "shpinst" and self._is_hidden_shape() and not group.is_silent:
            self._left_out["hidden shape"] += 1
            self._change(is_silent=True)
        self._is_optional = False
        if word == "u" and number is not None:
            self._write(chr(number % 0x10000))
            self._n_skipped = group.n_fallback
        elif word == "uc":
            self._change(n_fallback=number or 0)
        elif word in _TAKING_OUT:
            self._change(taken_out=word if number != 0 else "")
        elif word in _SCRIPTS:
            self._change(script=_SCRIPTS[word] if number != 0 else "")
        elif word in _STRIKING:
            self._change(is_struck=number != 0)
        elif word in ("f", "fcharset", "ansicpg", "plain") or word in _SYSTEMS:
            self._set_encoding(word, number)
        elif word in _SIGNS:
            self._write("\t" if word == "tab" and group.kind in ("head", "foot") else _SIGNS[word])
        elif word in _ENDS and group.kind == "note":
            self._write(" ")
        elif word == "line" or (word in _ENDS and self._is_html):
            self._flow.text += [] if group.is_silent or group.taken_out else ["\n" if self._is_html else "<br>"]
        elif group.kind == "form":
            self._form[word] = number or 0
        elif word in ("fldinst", "fldrslt", "chpgn"):
            self._field(word)
        elif group.formula is not None:
            self._change(formula=begin_element(group.formula, word, number))
        elif not group.is_silent:
            self._layout(word, number)

    def _begin_kind(self, word: str) -> None:
        kind = _KINDS[word]
        self._change(kind=kind)
        if kind in ("head", "foot"):
            is_of_first = word in (_HEADS[-1], _FEET[-1])
            self._flow = self._flows[kind]
            self._change(
                level=None, row=-1, script="", is_struck=False, is_silent=is_of_first and not self._has_first_page
            )
        elif kind == "note":
            self._change(script="", is_struck=False, level=None)
            self._note_start = len(self._flow.text)
            self._flow.text[-1:] = [self._flow.text[-1].rstrip()] if self._flow.text else []
        elif kind == "formula":
            self._change(formula=begin_formula())
        elif kind == "form":
            self._choices, self._form = [], {}
        elif kind == "choice":
            self._choices.append("")

    def _is_hidden_shape(self) -> bool:
        """Return whether the shape that begins here is hidden, and has text."""
        end = self._content.find(b"\\shptxt", self._position)
        following = self._content.find(b"\\shpinst", self._position, max(end, 0))
        return following < 0 and _HIDDEN_SHAPE.search(self._content, self._position, max(end, 0)) is not None

    def _field(self, word: str) -> None:
        """Write the mark of a page's number in heads and feet, and a formula. Others have their text in the file."""
        is_page = word == "chpgn"
        if word == "fldinst":
            instruction = self._content[self._position : self._position + _INSTRUCTION].partition(b"fldrslt")[0]
            is_page = self._has_result = _PAGE_FIELDS.search(instruction) is not None
            if (formula := equation(_code_of(instruction.decode("latin-1")))) is not None:
                self._flow.text.append(escape(formula))
                self._has_result = True
        elif word == "fldrslt" and self._has_result:
            self._change(is_silent=True)
        if is_page and self._flow is not self._flows[""]:
            self._flow.text.append(PAGE)

    def _set_encoding(self, word: str, number: int | None) -> None:
        if word in _SYSTEMS:
            self._encoding = _SYSTEMS[word]
        elif word == "ansicpg":
            with_number = f"cp{number}"
            self._encoding = with_number if _is_encoding(with_number) else "utf-8" if number == 65001 else "cp1252"
        elif word == "fcharset":
            self._fonts[self._font] = _SETS.get(number or 0, "")
        elif word == "plain":
            self._change(encoding="", taken_out="", script="", is_struck=False, is_code=False)
        elif self._groups[-1].kind == "fonts":
            self._font = number or 0
        else:
            self._change(encoding=self._fonts.get(number or 0, ""), is_code=(number or 0) in self._code_fonts)

    def _layout(self, word: str, number: int | None) -> None:
        """Do what a control says about paragraphs and tables."""
        row = self._flow.row
        if word in _ENDS:
            self._end_paragraph()
        elif word == "pard":
            if (self._groups[-1].level, self._groups[-1].depth, self._groups[-1].row) != (None, 0, -1):
                self._change(level=None, depth=0, row=-1)
        elif word in ("s", "outlinelevel"):
            self._change(level=self._levels.get(number or 0) if word == "s" else number)
        elif word == "ilvl":
            self._change(depth=min(number or 0, _MOST_LEVELS))
        elif word == "intbl":
            self._change(row=self._n_rows)
        elif word == "trowd":
            row.left, row.edges, self._merges = 0, [], ""
            self._change(row=self._n_rows)
        elif word == "trleft":
            row.left = number or 0
        elif word in ("clmrg", "clvmrg"):
            self._merges = word
        elif word == "cellx":
            row.edges.append((number or 0, self._merges))
            self._merges = ""
        elif word == "cell":
            self._change(row=self._n_rows)
            self._end_paragraph()
            row.cells.append("".join(self._flow.cell))
            self._flow.cell = []
        elif word == "row":
            self._flow.rows.append(row)
            self._flow.row = Row(row.left, [*row.edges])
            self._n_rows += 1

    def _end_paragraph(self) -> None:
        flow, group = self._flow, self._groups[-1]
        text, label = "".join(flow.text).replace("</s><s>", ""), flow.label.strip()
        text = text.replace("</sup><sup>", "").replace("</sub><sub>", "")
        is_code = 0 < flow.n_code == flow.n_chars and not label
        self._n_code, self._n_chars = self._n_code + flow.n_code, self._n_chars + flow.n_chars
        flow.text, flow.label, flow.n_code, flow.n_chars = [], "", 0, 0
        if flow is not self._flows[""]:
            text = without_page_numbers(text)
        is_cell, level = group.row == self._n_rows, group.level
        block = f"<pre>{text}</pre>"
        if level is not None and level < 6 and text.strip() and not is_cell:
            block = f"<h{level + 1}>{escape(label)} {text.strip()}</h{level + 1}>"
        elif label in _BULLETS:
            outer = '<ul><li octavo-label="">' * group.depth, "</li></ul>" * group.depth
            block = f"{outer[0]}<ul><li>{text.strip()}</li></ul>{outer[1]}"
        elif not is_code:
            block = f"<p>{escape(label)} {text.strip()}</p>" if text.strip() or label else ""
        if is_cell:
            flow.cell.append(block)
        elif block:
            flow.end_table()
            flow.blocks.append(block)


def _code_of(instruction: str) -> str:
    """Return the code of a field up to the end of its group, without what RTF says about its looks."""
    code, depth = "", 0
    for token in _CODE.finditer(instruction):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth < 0:
            break
        code += chr(int(token[1]) % 0x10000) if token[1] else token[2] or token[3] or ""
    return code


def _is_encoding(name: str) -> bool:
    try:
        codecs.lookup(name)
    except LookupError:
        return False
    return True
