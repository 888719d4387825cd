"""Index what a user names: here, or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from ...errors import OctavoError
from ...progress import Progress, ProgressOfMany, of_many
from ...runtime.models.find_model import find_model
from ..expand_paths import documents_of
from ..open_index import Source
from .index_result import Outcome
from .job import Job
from .local_run import index_all


def index_collection(
    paths: Iterable[str | os.PathLike[str]],
    model: str | os.PathLike[str] | None,
    index_dir: str | os.PathLike[str] | None,
    progress: Progress | ProgressOfMany,
    notice: Callable[[str], None],
    *,
    password: str | None = None,
    n_jobs: int = 1,
    scheduler: str | None = None,
    **how: Any,
) -> list[Outcome]:
    """Index documents, folders and patterns. A document that cannot be indexed does not stop the others.

    Parameters
    ----------
    paths, model, index_dir, progress, notice, password, n_jobs, scheduler
        As in `octavo.index_documents`.
    **how
        How documents are read: more arguments of `octavo.index_documents`.

    Returns
    -------
    list of Outcome
        What became of each document.

    Raises
    ------
    OctavoError
        The model cannot be used, a setting is out of range, or a folder has no documents.
    """
    job = job_of(model, index_dir, notice, **how)
    sources = [Source(path, password) for path in documents_of(paths, notice)]
    if scheduler is not None:
        if n_jobs != 1:
            raise OctavoError("A cluster's workers say how many documents are read at once: leave the jobs out.")
        from .cluster_run import index_on_cluster

        name = None if model is None else os.fspath(model)
        return index_on_cluster(sources, job, name, scheduler, of_many(progress, len(sources)), notice)
    return index_all(sources, job, of_many(progress, n_jobs), notice, n_jobs)


def job_of(
    model: str | os.PathLike[str] | None,
    index_dir: str | os.PathLike[str] | None,
    notice: Callable[[str], None],
    **how: Any,
) -> Job:
    """Return how documents are read, with the model's file in the place of its name.

    Parameters
    ----------
    model, index_dir, notice, **how
        As in `index_collection`.
    """
    settings = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in how.items()}
    folder = None if index_dir is None else os.fspath(index_dir)
    return Job(os.fspath(find_model(model, notice)), folder, **settings)
