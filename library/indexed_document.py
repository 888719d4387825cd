"""A document that is indexed: its name, its file and the folder of its index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class IndexedDocument:
    """A document that has an index.

    Parameters
    ----------
    name : str
        What messages call it.
    path : Path
        The path by which users know it: that of its file, or the name of a part.
    folder : Path
        Its index.
    """

    name: str
    path: Path
    folder: Path
