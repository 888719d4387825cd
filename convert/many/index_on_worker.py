"""What workers of a Dask cluster do with documents: they read them into the client's library, or for it to fetch."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ...runtime.store.library import LIBRARY
from .job import ReadDocuments
from .on_worker import Order
from .work import Told


class ReadForClient(ReadDocuments):
    """Read documents for a client that may be on another machine.

    The settings are `job`, the fields of the client's; `library`, the client's; and `probe`, a file in that, whose name
    tells that it is the client's.
    """

    def __init__(self, settings: dict[str, Any], told: Told) -> None:
        job, folder = settings["job"], Path(settings["folder"])
        self._is_shared = is_shared(settings)
        own = {name: settings[name] for name in ("model", "n_threads")}
        own["library"] = str(folder / f"{Path(own['model']).stem}{LIBRARY}")
        if self._is_shared:
            own |= {"library": settings["library"], "known": ()}
        if settings["plan"]:
            own["plan"] = str(folder / settings["plan"])
        super().__init__({**job, **own}, told)

    def do(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the folder of a document's index, as `folder` (see `Work.do`).

        If the client does not see that, `files` says what to fetch; `known` stands in its place if the client has the
        index.
        """
        result = super().do(message)
        path = Path(result["folder"])
        if self._is_shared:
            return result
        if not path.exists():
            return {**result, "known": True}
        return {**result, "files": {file.name: file.stat().st_size for file in path.iterdir()}}


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
