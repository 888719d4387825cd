"""An indexed document: its name, its file and the folder of its index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class IndexedDocument:
    """A document that has an index.

    Parameters
    ----------
    name : str
        Name in messages.
    path : Path
        Path for users: its file, or the name of a part.
    """

    name: str
    path: Path
    folder: Path
