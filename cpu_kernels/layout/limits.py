"""State the largest heads that kernels compute. Their memory has room for no more, and they check no size themselves.

A method's kernels have limits of their own, by the arrays of their state and scratch; its file states them. They are
checked when the method is assigned to a layer (runtime/methods/assignment.py). All kernels have limits, too, of a
`Shape`: they are checked when a model's graph is read (runtime/graph/attention_nodes.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..numba_support.shape import MOST, Shape


@dataclass(frozen=True)
class Limits:
    """The largest sizes of a head.

    Parameters
    ----------
    longest : int
        Most elements of a key, and of a value.
    group : int
        Most query heads that share a KV head.
    way_out : str
        Advice for larger heads.
    """

    longest: int = MOST
    group: int = MOST
    way_out: str = "use another attention, such as dense"

    def excess(self, shape: Shape) -> str:
        """Return which size of a shape exceeds the limits; "" if none does."""
        if shape.longest > self.longest:
            return f"its heads have {shape.longest:,} numbers, and {self.longest:,} are the most here"
        if shape.group > self.group:
            return f"{shape.group:,} query heads share a KV head, and {self.group:,} are the most here"
        return ""


#: Limits of query heads that select apart: a set of them is the bits of an int64 (spans.py).
LIMITS_APART = Limits(group=64, way_out="leave out select=head")
