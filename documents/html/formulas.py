r"""Write formulas of Word (OMML) and of pages (MathML) in a line, as TeX does: \frac{1}{2}, x^{2}; signs stay signs.

Elements may be of ElementTree or of lxml.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from ..xml_text import element_name

#: Letters of mathematics, which are letters in another font.
_LETTERS = re.compile("[\U0001d400-\U0001d7ff]+")

#: Elements whose text is text, those without any, and those that only hold others.
_TEXTS, _SILENT = {"t", "mi", "mn", "mo", "mtext", "ms"}, {"annotation", "annotation-xml", "mphantom", "phant"}

#: What separates rows.
_ROW = r" \\ "

#: Accents, by the signs that stand for them.
_ACCENTS = {"\u0302": "hat", "^": "hat", "\u0303": "tilde", "~": "tilde", "\u0304": "bar", "\u0305": "bar", "¯": "bar"}
_ACCENTS |= {"\u20d7": "vec", "→": "vec", "\u0307": "dot", "˙": "dot", "\u0308": "ddot", "\u203e": "bar"}
_ACCENTS |= {"⏞": "overbrace", "⏟": "underbrace"}


def formula(element: Any) -> str:
    """Return a formula in a line, between signs of the dollar; nothing of an empty one."""
    text = " ".join(_write(element).split())
    return f"${text}$" if text else ""


def _write(node: Any) -> str:
    kind = element_name(node)
    if kind in _TEXTS:
        text = _LETTERS.sub(lambda letters: unicodedata.normalize("NFKC", letters[0]), "".join(node.itertext()))
        is_word = kind in ("mi", "mtext") and len(text.strip()) > 1
        return (f" {text.strip()} " if is_word else text if kind == "t" else text.strip()).replace("$", r"\$")
    if kind in _SILENT or not kind:
        return ""
    children = [child for child in node if element_name(child) and not element_name(child).endswith("Pr")]
    parts = [_write(child) for child in children]
    of = {element_name(child): part for child, part in zip(children, parts, strict=True)}
    written = _of_word(kind, node, of, parts) if "officeDocument" in node.tag else _of_pages(kind, node, parts)
    return "".join(parts) if written is None else written


def _of_word(kind: str, node: Any, of: dict[str, str], parts: list[str]) -> str | None:
    """Return an element of OMML; None for one that only holds others."""
    base = of.get("e", "")
    match kind:
        case "f":
            return _fraction(of.get("num", ""), of.get("den", ""), _property(node, "type", "") == "noBar")
        case "rad":
            return rf"\sqrt[{of['deg']}]{{{base}}}" if of.get("deg") else rf"\sqrt{{{base}}}"
        case "sSup" | "sSub" | "sSubSup":
            return base + _scripts(of.get("sub"), of.get("sup"))
        case "sPre":
            return f"{{}}{_scripts(of.get('sub'), of.get('sup'))}{base}"
        case "nary":
            return f"{_property(node, 'chr', '∫')}{_scripts(of.get('sub'), of.get('sup'))} {base}"
        case "limLow":
            return base + _scripts(of.get("lim"), None)
        case "limUpp":
            return base + _scripts(None, of.get("lim"))
        case "func":
            return f" {of.get('fName', '').strip()} {base}"
        case "d":
            inner = _property(node, "sepChr", "|").join(parts)
            return _fenced(inner, _property(node, "begChr", "("), _property(node, "endChr", ")"))
        case "acc" | "groupChr":
            return _accented(base, _property(node, "chr", "\u0302" if kind == "acc" else "⏟"))
        case "bar":
            return rf"\{'over' if _property(node, 'pos', 'bot') == 'top' else 'under'}line{{{base}}}"
        case "eqArr":
            return _ROW.join(part.replace("&", "") for part in parts)
        case "m":
            return rf"\begin{{matrix}}{_ROW.join(parts)}\end{{matrix}}"
        case "mr":
            return " & ".join(parts)
    return None


def _of_pages(kind: str, node: Any, parts: list[str]) -> str | None:
    """Return an element of MathML; None for one that only holds others."""
    first, second, third = (*parts, "", "", "")[:3]
    match kind:
        case "semantics":
            return first
        case "mfrac":
            return _fraction(first, second, re.match(r"0\D*$", node.get("linethickness", "")) is not None)
        case "msqrt":
            return rf"\sqrt{{{''.join(parts)}}}"
        case "mroot":
            return rf"\sqrt[{second}]{{{first}}}"
        case "msub":
            return first + _scripts(second, None)
        case "msup":
            return first + _scripts(None, second)
        case "msubsup" | "munderover":
            return first + _scripts(second, third)
        case "munder" | "mover":
            if second in _ACCENTS:
                return _accented(first, second)
            return first + (_scripts(second, None) if kind == "munder" else _scripts(None, second))
        case "mfenced":
            return _fenced(node.get("separators", ",")[:1].join(parts), node.get("open", "("), node.get("close", ")"))
        case "mtable":
            return rf"\begin{{matrix}}{_ROW.join(parts)}\end{{matrix}}"
        case "mtr":
            return " & ".join(parts)
        case "mspace":
            return " "
    return None


def _fraction(above: str, below: str, is_bare: bool) -> str:
    return rf"{{{above} \atop {below}}}" if is_bare else rf"\frac{{{above}}}{{{below}}}"


def _fenced(inner: str, opened: str, closed: str) -> str:
    return "".join("\\" * (part in ("{", "}")) + part for part in (opened, inner, closed))


def _scripts(below: str | None, above: str | None) -> str:
    return "".join(f"{mark}{{{part.strip()}}}" for mark, part in (("_", below), ("^", above)) if part and part.strip())


def _accented(base: str, accent: str) -> str:
    return rf"\{_ACCENTS[accent]}{{{base}}}" if accent in _ACCENTS else base + _scripts(None, accent)


def _property(node: Any, name: str, otherwise: str) -> str:
    """Return a property of an element of OMML."""
    for properties in node:
        if element_name(properties).endswith("Pr"):
            for child in properties:
                if element_name(child) == name:
                    return next((str(value) for key, value in child.attrib.items() if key.endswith("val")), "")
    return otherwise
