"""Dense: attend everything. The reference that every other selector is measured against."""

from __future__ import annotations

from dataclasses import dataclass

from ...cpu_kernels.scores import native_select_all
from ...metal.records import Method
from ..cache.index import Index
from .method import Heads, Keeps


@dataclass(frozen=True)
class Dense:
    """Attend every row that the layer's window shows."""

    keeps = Keeps.DOCUMENT
    beside = ()
    chunk_items = 0
    metal = Method.ALL
    native_score = None
    native_select = staticmethod(native_select_all)
    native_settle = None

    def prepare(self, own: Heads, n_tokens: int, document: Index | None) -> None:
        """Nothing to set."""
