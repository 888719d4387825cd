"""Extract the numbers of charts of Word and PowerPoint (DrawingML), of ElementTree or of lxml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..xml_text import element_name

#: A number with more digits than a spreadsheet has.
_LONG = re.compile(r"-?\d*\.\d{14,}(E-?\d+)?")


def chart_title(chart: Any) -> str:
    """Return the title of a chart; nothing without one."""
    title = next(_all(chart, "title"), None)
    return "" if title is None else " ".join("".join(node.text or "" for node in _all(title, "t")).split())


def chart_rows(chart: Any) -> Iterator[list[str]]:
    """Yield the rows of a chart: the names of its series, then each label with the number of each series."""
    series = list(_all(chart, "ser"))
    names = ["".join(_values(one, "tx")) for one in series]
    labels = _points(series[0], "cat", "xVal") if series else {}
    numbers = [_points(one, "val", "yVal") for one in series]
    yield ["", *names]
    for index in sorted({index for points in (labels, *numbers) for index in points}):
        yield [labels.get(index, ""), *(points.get(index, "") for points in numbers)]


def _points(series: Any, *parts: str) -> dict[int, str]:
    """Return the points of a part of a series, by their numbers."""
    points = (point for part in series if element_name(part) in parts for point in _all(part, "pt"))
    return {
        int(point.get("idx", 0)): _number("".join(node.text or "" for node in _all(point, "v"))) for point in points
    }


def _number(text: str) -> str:
    """Return a number without the digits that are only its form in a file: 4.4 for 4.4000000000000004."""
    return f"{float(text):.15g}" if _LONG.fullmatch(text) else text


def _values(series: Any, name: str) -> Iterator[str]:
    return (node.text or "" for part in series if element_name(part) == name for node in _all(part, "v"))


def _all(node: Any, name: str) -> Iterator[Any]:
    return (inner for inner in node.iter() if element_name(inner) == name)
