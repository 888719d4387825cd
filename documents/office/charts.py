"""Extract the numbers of charts of Word and PowerPoint (DrawingML), of ElementTree or of lxml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..xml_text import element_name
from .number_formats import shown_value

#: A number with more digits than a spreadsheet has.
_LONG = re.compile(r"-?\d*\.\d{14,}(E-?\d+)?")

_AXES = ("catAx", "valAx", "dateAx", "serAx")


def chart_titles(chart: Any) -> list[str]:
    """Return the titles of a chart and of its axes, which say in which unit its numbers are."""
    found = [title for holder in _all(chart, "chart") for title in holder if element_name(title) == "title"]
    found += [title for axis in chart.iter() if element_name(axis) in _AXES for title in _all(axis, "title")]
    texts = (" ".join("".join(node.text or "" for node in _all(title, "t")).split()) for title in found)
    return [*dict.fromkeys(filter(None, texts))]


def chart_rows(chart: Any) -> Iterator[list[str]]:
    """Yield the rows of a chart: the names of its series, then each label with the number of each series.

    Bubbles, and series of a scatter chart with places of their own, are one below the other: name, x and y in each row.
    """
    series = list(_all(chart, "ser"))
    names = ["".join(_values(one, "tx")) for one in series]
    places = [_points(one, "cat", "xVal") for one in series]
    numbers = [_points(one, "val", "yVal") for one in series]
    sizes = [_points(one, "bubbleSize") for one in series]
    are_apart = len({tuple(sorted(points.items())) for points in places if points}) > 1
    if any(sizes) or (are_apart and next(_all(chart, "xVal"), None) is not None):
        yield ["", "x", "y", *(["size"] if any(sizes) else [])]
        for name, *own in zip(names, places, numbers, *([sizes] if any(sizes) else []), strict=True):
            for index in sorted({index for points in own for index in points}):
                yield [name, *(points.get(index, "") for points in own)]
        return
    labels = next(filter(None, places), {})
    yield ["", *names]
    for index in sorted({index for points in (labels, *numbers) for index in points}):
        yield [labels.get(index, ""), *(points.get(index, "") for points in numbers)]


def _points(series: Any, *parts: str) -> dict[int, str]:
    """Return the points of a part of a series, by their numbers; labels of several levels as one."""
    for part in series:
        if element_name(part) not in parts:
            continue
        levels = [_texts(level) for level in _all(part, "lvl")]
        if not levels:
            return _texts(part)
        labels: dict[int, str] = {}
        outer: dict[int, str] = {}
        for index in sorted({index for level in levels for index in level}):
            outer |= {depth: level[index] for depth, level in enumerate(levels) if index in level}
            labels[index] = " ".join(outer[depth] for depth in sorted(outer, reverse=True))
        return labels
    return {}


def _texts(part: Any) -> dict[int, str]:
    code = "".join(node.text or "" for node in _all(part, "formatCode"))
    return {
        int(point.get("idx", 0)): _number("".join(node.text or "" for node in _all(point, "v")), code)
        for point in _all(part, "pt")
    }


def _number(text: str, code: str) -> str:
    """Return a number without the digits that are only its form in a file, and a date as one."""
    from openpyxl.styles.numbers import is_date_format
    from openpyxl.utils.datetime import from_excel

    if code and is_date_format(code):
        try:
            return shown_value(from_excel(float(text)), code)
        except (ValueError, OverflowError):
            return text
    return f"{float(text):.15g}" if _LONG.fullmatch(text) else text


def _values(series: Any, name: str) -> Iterator[str]:
    return (node.text or "" for part in series if element_name(part) == name for node in _all(part, "v"))


def _all(node: Any, name: str) -> Iterator[Any]:
    return (inner for inner in node.iter() if element_name(inner) == name)
