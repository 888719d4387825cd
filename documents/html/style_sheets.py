"""Apply a page's own style sheets, so far as they decide whether and how its text is shown.

A declaration becomes a part of the element's `style`, as if the page had written it there. Rules of a narrow or a wide
window can only show text: somebody sees it then. Rules of printing, and those with selectors that depend on more than
names, classes and attributes, are not applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from .html_elements import BLOCKS

#: The properties that are applied, each with the values for which it is.
_VALUES = {
    "display": r"none|block|flex|grid|list-item|table|table-row|table-cell",
    "visibility": r"hidden|collapse",
    "opacity": r"0(\.0+)?%?",
    "font-size": r"0(\.0+)?(px|pt|em|rem|%)?",
    "color": r"#fff(fff)?|white|rgb\(255,255,255\)|transparent",
    "left": r"-\d{3,}px",
    "vertical-align": r"super|sub",
    "text-decoration": r"[^;!}]*line-through[^;!}]*",
    "list-style-type": r"[a-z]+(-[a-z]+)*",
}
_APPLIED = {name: re.compile(values) for name, values in _VALUES.items()}

#: The same in a sheet without blanks, as most sheets have none of them.
_PRESENT = {name: re.compile(rf"(?<![-\w]){name}:(?:{values})(?=[;!}}]|\Z)") for name, values in _VALUES.items()}
_PRESENT["text-decoration"] = re.compile("line-through")
_PRESENT["list-style-type"] = re.compile("(?<![-\\w])list-style(-type)?:")

#: Values that hide an element, or make its text void.
_HIDING = {"display": "none", "left": None, "visibility": None, "opacity": None, "font-size": None, "color": None}
_HIDING["text-decoration"] = None

#: Elements whose lists have numbers.
_LISTS = ("ol", "ul", "li")

#: What a reader does with an element: a rule for that can only show text, too.
_STATE = re.compile(r":(?:checked|target|hover|focus(?:-within|-visible)?|active)\b")

#: Text between rules; groups of rules that apply in any window, and those that may apply.
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|<!--|-->", re.DOTALL)
_ALWAYS = re.compile(r"@media\s+(?:only\s+)?(?:all|screen)\s*$|@layer|@supports")
_GROUPS = re.compile(r"@media(?!.*print)|@layer|@supports")

_BRACE = re.compile("[{}]")

#: What makes text visible that a program fades in.
_FADES = re.compile(r"(?<![-\w])opacity\s*:\s*(?:0?\.\d*[1-9]|[1-9])")

#: Most groups of rules within each other, and most comparisons of a rule with an element.
_MOST_NESTED, _MOST_MATCHES = 9, 10**8

#: A part of a selector between combinators, and its classes, names and attributes.
_NAME = r"(?:[\w-]|\\.)+"
_PART = re.compile(
    rf"\s*([>+~]?)\s*({_NAME}|\*)?((?:[.#]{_NAME}|\[[^\]]*\])*)(?=[\s>+~]|$)",
)
_SIMPLE = re.compile(rf"""([.#])({_NAME})|\[\s*([\w-]+)\s*(?:([~^*|]?=)\s*["']?([^"'\]]*?)["']?\s*)?\]""")
_AXES = {"": "ancestor::", ">": "parent::", "+": "preceding-sibling::*[1]/self::", "~": "preceding-sibling::"}


class _Selector(NamedTuple):
    """The XPath of a selector, as a condition on an element, the classes and ids in it, and its specificity.

    Each element that it selects has the last class, id or name; without one, all elements may be selected.
    """

    path: str
    needs: frozenset[str]
    last: str
    specificity: tuple[int, int, int]

    def elements(self, scope: Any, by_name: dict[str, list[Any]]) -> list[Any]:
        """Return the elements that it selects, by the elements of each class, id and name."""
        from lxml.etree import XPath

        if not self.last:
            found: list[Any] = scope.xpath(f".//{self.path}")
            return found
        if sum(self.specificity) == 1:
            return by_name[self.last]
        is_selected = XPath(f"self::{self.path}")
        return [node for node in by_name[self.last] if is_selected(node)]


class _Rule(NamedTuple):
    """A value, the selector of the elements that it is for, and its rank: whether it is important, and what follows."""

    value: str
    selector: _Selector
    rank: tuple[int, ...]


def apply_style_sheets(root: Any) -> bool:
    """Write what a page's style sheets declare into its elements.

    Returns
    -------
    bool
        Whether the page may colour the ground of its text: by a sheet, or by one that is not in the file.
    """
    sheets = [(node, "".join(node.itertext())) for node in root.iter("style")]
    has_ground = any("background" in text for _, text in sheets)
    has_ground |= any("stylesheet" in (node.get("rel") or "").lower() for node in root.iter("link"))
    by_scope: dict[Any, list[str]] = {}
    for node, text in sheets:
        if (node.get("media") or "all").strip().lower() in ("all", "screen"):
            by_scope.setdefault(next(node.iterancestors("template"), root), []).append(text)
    for scope, texts in by_scope.items():
        _apply("\n".join(texts), scope)
    return has_ground


def _apply(sheet: str, scope: Any) -> None:
    parsed = _parsed(sheet)
    if not parsed:
        return
    by_name: dict[str, list[Any]] = {
        name: [] for _, rule in parsed for name in (*rule.selector.needs, rule.selector.last)
    }
    for name in by_name:
        if name[:1] not in ".#":
            by_name[name] = list(scope.iter(name))
    for node in scope.xpath("descendant-or-self::*[@class or @id]"):
        for name in (f"#{node.get('id')}", *(f".{each}" for each in (node.get("class") or "").split())):
            if name in by_name:
                by_name[name].append(node)
    rules: dict[str, list[_Rule]] = {}
    for name, rule in parsed:
        if all(by_name[needed] for needed in rule.selector.needs):
            rules.setdefault(name, []).append(rule)

    @cache
    def elements(selector: _Selector) -> list[Any]:  # one may set several properties
        return selector.elements(scope, by_name)

    most = _MOST_MATCHES // (1 + int(scope.xpath("count(.//*)")))
    for name, own in rules.items():
        if (name == "opacity" and _FADES.search(sheet)) or not any(
            _APPLIED[name].fullmatch(rule.value) for rule in own
        ):
            continue
        values: dict[Any, _Rule] = {}
        for rule in sorted(own[:most], key=lambda rule: rule.rank):
            values.update(dict.fromkeys(elements(rule.selector), rule))
        for node, rule in values.items():
            if _APPLIED[name].fullmatch(rule.value) and (rule.rank[0] or _matters(node.tag, name, rule.value)):
                written = node.get("style") or ""
                if rule.rank[0] or not re.search(rf"(?:^|[;\s]){name}\s*:", written):
                    node.set("style", f"{name}:{rule.value};{written}")


def _matters(tag: Any, name: str, value: str) -> bool:
    """Return whether a value changes how an element is written."""
    return tag in _LISTS if name == "list-style-type" else name != "display" or value == "none" or tag not in BLOCKS


@lru_cache(maxsize=8)
def _parsed(sheet: str) -> list[tuple[str, _Rule]]:
    """Return the rules of a sheet that matter, with the properties that they set. Chapters of a book share sheets."""
    sheet = _COMMENT.sub("", sheet)
    compact = "".join(sheet.lower().split())
    present = {name for name, pattern in _PRESENT.items() if pattern.search(compact)}
    parsed: list[tuple[str, _Rule]] = []
    for number, (selectors, declarations, is_certain) in enumerate(_rules(sheet) if present else ()):
        found = [each for each in _declarations(declarations) if each[0] in present]
        for written in selectors.split(",") if found else ():
            stateless, n_states = _STATE.subn("", written)
            if (selector := _selector(stateless)) is None:
                continue
            for name, value, is_important in found:
                if (is_certain and not n_states) or not _hides(name, value):
                    parsed.append((name, _Rule(value, selector, (is_important, *selector.specificity, number))))
    return parsed


def _hides(name: str, value: str) -> bool:
    return name in _HIDING and _HIDING[name] in (None, value) and _APPLIED[name].fullmatch(value) is not None


def _rules(sheet: str, is_certain: bool = True, depth_left: int = _MOST_NESTED) -> Iterator[tuple[str, str, bool]]:
    """Yield the selectors and the declarations of each rule, and whether it applies in any window."""
    position = 0
    while (opened := sheet.find("{", position)) >= 0:
        head = sheet[position:opened].rpartition(";")[2].strip()
        depth, end = 1, opened + 1
        for brace in _BRACE.finditer(sheet, opened + 1):
            depth += 1 if brace[0] == "{" else -1
            end = brace.end()
            if not depth:
                break
        inner = sheet[opened + 1 : end - 1 if not depth else end]
        if not head.startswith("@"):
            yield head, inner, is_certain
        elif depth_left and _GROUPS.match(head):
            yield from _rules(inner, is_certain and _ALWAYS.match(head) is not None, depth_left - 1)
        position = max(end, opened + 1)


def _declarations(text: str) -> list[tuple[str, str, bool]]:
    """Return the declarations that matter: property, value, and whether it is important."""
    found = []
    for declaration in text.split(";"):
        name, _, value = declaration.lower().partition(":")
        name, is_important = name.strip(), "!important" in value
        value = value.replace("!important", "").strip()
        if name == "list-style":
            name, value = "list-style-type", next(filter(_APPLIED["list-style-type"].fullmatch, value.split()), "")
        name = "text-decoration" if name == "text-decoration-line" else name
        if name in _APPLIED and value:
            found.append((name, value.replace(" ", ""), is_important))
    return found


def _selector(text: str) -> _Selector | None:
    """Parse a selector; return None for one that is not applied."""
    position, path, last = 0, "", ""
    ids = classes = names = 0
    needs = set[str]()
    text = text.strip()
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or not (part[2] or part[3]):
            return None
        position = part.end()
        tag = (part[2] or "*").lower()
        names += tag != "*"
        around, path, last = path and f"[{_AXES[part[1]]}{path}]", tag, tag.strip("*")
        for sign, name, key, operator, value in _SIMPLE.findall(part[3]):
            name = re.sub(r"\\(.)", r"\1", name)
            if '"' in name + value:
                return None
            if sign:
                last = sign + name
                needs.add(last)
            ids, classes = ids + (sign == "#"), classes + (sign != "#")
            path += f"[{_condition(sign, name, key, operator, value)}]"
        path += around
    return _Selector(path, frozenset(needs), last, (ids, classes, names)) if path else None


def _condition(sign: str, name: str, key: str, operator: str, value: str) -> str:
    if sign == "#":
        return f'@id="{name}"'
    if sign == "." or operator == "~=":
        attribute, word = ("class", name) if sign else (key, value)
        return f'contains(concat(" ", normalize-space(@{attribute}), " "), " {word} ")'
    if operator in ("^=", "|="):
        return f'starts-with(@{key}, "{value}")'
    return f'contains(@{key}, "{value}")' if operator == "*=" else f'@{key}="{value}"' if operator else f"@{key}"
