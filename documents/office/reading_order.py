"""Put the shapes of a slide in the order in which they are read, which is not that in which they were drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_Shape = TypeVar("_Shape")

#: Left, top, width and height of a shape, in any unit.
Box = tuple[float, float, float, float]


def in_reading_order(shapes: Sequence[_Shape], box: Callable[[_Shape], Box | None]) -> list[_Shape]:
    """Return shapes column by column, and each column from top to bottom; those that overlap from the top.

    A shape without a place stays behind the one before it.
    """
    boxes: list[tuple[Box, list[_Shape]]] = []
    for shape in shapes:
        place = box(shape)
        if place is not None or not boxes:
            boxes.append((place or (0.0, 0.0, 0.0, 0.0), [shape]))
        else:
            boxes[-1][1].append(shape)
    return [shape for _, group in _ordered(boxes) for shape in group]


def _ordered(boxes: list[tuple[Box, list[_Shape]]]) -> list[tuple[Box, list[_Shape]]]:
    """Cut between columns, or else between rows, as far as there are gaps."""
    if len(boxes) < 2:
        return boxes
    for side in (0, 1):
        groups: list[list[tuple[Box, list[_Shape]]]] = []
        stop = 0.0
        for each in sorted(boxes, key=lambda each: each[0][side]):
            start = each[0][side]
            if groups and start < stop:
                groups[-1].append(each)
            else:
                groups.append([each])
            stop = max(stop, start + each[0][side + 2]) if len(groups[-1]) > 1 else start + each[0][side + 2]
        if len(groups) > 1:
            return [each for group in groups for each in _ordered(group)]
    return sorted(boxes, key=lambda each: (each[0][1], each[0][0]))
