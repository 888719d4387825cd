"""Dense: attend everything. The reference that every other selector is measured against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.cpu_kernels.select import native_select_all

from ..document import Document


@dataclass(frozen=True)
class Dense:
    """Attend every row that the layer's window shows."""

    native_select = staticmethod(native_select_all)
    native_score = None

    def configure(self, heads: np.ndarray, document: Document | None) -> None:
        """Nothing to set."""
