"""What workers of a Dask cluster do with documents: they read them into the client's library, or for it to fetch."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ...runtime.store.model_library import LIBRARY
from ...workers.cluster_worker import Order
from ...workers.work import Sender
from .job import ReadDocuments


class ReadForClient(ReadDocuments):
    """Read documents for a client that may be on another machine.

    The settings are `job`, the fields of the client's; `library`, the client's; and `probe`, a file in that, whose name
    tells that it is the client's.
    """

    def __init__(self, settings: dict[str, Any], sender: Sender) -> None:
        job, folder = settings["job"], Path(settings["folder"])
        self._is_shared = is_shared(settings)
        own = {name: settings[name] for name in ("model", "n_threads")}
        own["library"] = str(folder / f"{Path(own['model']).stem}{LIBRARY}")
        if self._is_shared:
            own |= {"library": settings["library"], "known": ()}
        if settings["plan"]:
            own["plan"] = str(folder / settings["plan"])
        super().__init__({**job, **own}, sender)

    def do(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the folders of a document's index or of its parts', as `folders` (see `Work.do`).

        If the client does not see them, `files` says of each what to fetch; None if the client has the index.
        """
        result = super().do(message)
        if self._is_shared:
            return result
        return {**result, "files": [_files(Path(folder)) for folder in result["folders"]]}


def _files(folder: Path) -> dict[str, int] | None:
    """Return the files of an index and their sizes; None if it is not here."""
    return {file.name: file.stat().st_size for file in folder.iterdir()} if folder.exists() else None


def is_shared(settings: dict[str, Any]) -> bool:
    """Return whether this machine sees the client's library."""
    return os.path.exists(os.path.join(settings["library"], settings["probe"]))


def sees_library(order: Order) -> bool:
    """Return whether this machine sees the client's library."""
    return is_shared(order.settings)


def piece(path: str, offset: int, size: int) -> bytes:
    """Return a part of a file."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def remove(folder: str) -> None:
    """Remove an index that was fetched."""
    shutil.rmtree(folder, ignore_errors=True)
