"""Top-k: attend to the rows whose keys score highest exactly, the upper bound of a look-up.

Squeezed Attention (table 6), SparQ (figure 7a) and Quest (figure 3) compare with it. A step scores all keys.
"""

from __future__ import annotations

from ..layout.hooks import Hooks
from ..layout.scores import score_rows
from .select_top import select_top

HOOKS = Hooks(select=select_top, score=score_rows)
