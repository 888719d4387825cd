"""Index documents on workers of a Dask cluster, into the client's library or for the client to fetch."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...runtime.store.model_library import LIBRARY
from ...workers.cluster_worker import Order
from ...workers.work import Sender
from ..reading_job import ReadingJob
from .job import ReadDocuments


class ReadForClient(ReadDocuments):
    """Read documents for a client that may be on another machine.

    The settings are `job`, the client's in JSON's types; `library`, the client's; and `probe`, a file in the library by
    whose name workers recognise it.
    """

    def __init__(self, settings: dict[str, Any], sender: Sender) -> None:
        job, folder = ReadingJob.of_json(settings["job"]), Path(settings["folder"])
        self._is_shared = is_shared(settings)
        model = replace(job.settings, model=settings["model"], n_threads=settings["n_threads"])
        library = str(folder / f"{Path(settings['model']).stem}{LIBRARY}")
        job = replace(job, settings=model, library=library)
        if self._is_shared:
            job = replace(job, library=settings["library"], known=())
        if settings["plan"]:
            job = replace(job, attention=replace(job.attention, plan_file=folder / settings["plan"]))
        super().__init__(job.as_json(), sender)

    def do(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the folders of a document's index or of its parts', as `folders` (see `Work.do`).

        If the client does not see them, `files` lists the files of each to fetch; None if the client has the index.
        """
        result = super().do(message)
        if self._is_shared:
            return result
        return {**result, "files": [_files(Path(folder)) for folder in result["folders"]]}


def _files(folder: Path) -> dict[str, int] | None:
    """Return the files of an index and their sizes; None if the index is not here."""
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
    """Remove a fetched index."""
    shutil.rmtree(folder, ignore_errors=True)
