"""Dense: attend everything. The reference that every other selector is measured against."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.cpu_kernels.select import native_select_all
from octavo.metal.records import Method

from ..document import Document
from . import Heads, Keeps


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

    def prepare(self, own: Heads, n_tokens: int, document: Document | None) -> None:
        """Nothing to set."""
