r"""Write the formulas of Word's EQ fields in TeX: `EQ \f(m,t)` is a fraction. Old and East Asian files have them."""

from __future__ import annotations

import re

#: The beginning of a field with a formula; a command in it with its options, up to its arguments; more of them.
_FIELD = re.compile(r"\s*EQ\s+", re.IGNORECASE)
_OPTIONS = r"((?:\\(?:[lrb]c\\.|[a-z]{2}\d*)\s*)*)\("
_COMMAND = re.compile(rf"\\([abdfilorsx])\s*{_OPTIONS}", re.IGNORECASE)
_MORE = re.compile(rf"\s*{_OPTIONS}", re.IGNORECASE)
_BRACKET = re.compile(r"\\[lb]c\\(.)")

#: The signs of integrals, sums and products, and the brackets that close others.
_SIGNS, _CLOSING = {"su": "∑", "pr": "∏"}, {"(": ")", "[": "]", "{": "}", "<": ">"}


def equation(code: str) -> str | None:
    """Return the formula that the code of a field stands for, or the text that it sets; None for another field."""
    field = _FIELD.match(code)
    if field is None:
        return None
    written = _part(code, field.end())[0].strip()
    return f"${written}$" if re.search(r"[\\^_]", written) else written


def _part(code: str, position: int, ends: str = "") -> tuple[str, int]:
    """Return the formula from a position up to one of the signs that end it, and where it ends."""
    written, n_open = "", 0
    while position < len(code) and (n_open or code[position] not in ends):
        if command := _COMMAND.match(code, position):
            name, options = command[1].lower(), command[2].lower()
            parts, position = _arguments(code, command.end())
            written += _command(name, options, parts)
            while name == "s" and (more := _MORE.match(code, position)):  # one above the other
                parts, position = _arguments(code, more.end())
                written += _command(name, more[1].lower(), parts)
        else:
            position += code[position] == "\\" and position + 1 < len(code)
            written += code[position]
            n_open += {"(": 1, ")": -1}.get(code[position], 0)
            position += 1
    return written, position


def _arguments(code: str, position: int) -> tuple[list[str], int]:
    parts: list[str] = []
    while True:
        part, position = _part(code, position, ",;)")
        parts.append(part.strip())
        position += 1
        if position > len(code) or code[position - 1] == ")":
            return parts, position


def _command(name: str, options: str, parts: list[str]) -> str:
    first, last = parts[0], parts[-1]
    if name == "f":
        return rf"\frac{{{first}}}{{{last}}}"
    if name == "r":
        return rf"\sqrt{f'[{first}]' if len(parts) > 1 and first else ''}{{{last}}}"
    if name == "s":
        return f"{'_' if 'do' in options else '^'}{{{first}}}"
    if name == "i":
        sign = next((sign for option, sign in _SIGNS.items() if option in options), "∫")
        below, above, inner = [*parts, "", ""][:3]
        return f"{sign}_{{{below}}}^{{{above}}} {inner}"
    if name == "b":
        bracket = _BRACKET.search(options)
        opening = bracket[1] if bracket else "("
        pair = opening, _CLOSING.get(opening, opening)
        return first.join(f"\\{sign}" if sign in "{}" else sign for sign in pair)
    return ("" if name in "odx" else ", ").join(parts)
