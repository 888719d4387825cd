"""Index the documents that a user names: here, or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace

from ...errors import OctavoError
from ...progress import Progress, ProgressOfMany, of_many
from ...runtime.load_model import locate_model
from ...settings import check_whole
from ..expand_paths import documents_of
from ..source_text import SourceFile
from .index_result import IndexResult
from .job import ReadingJob
from .local_run import index_all


def index_collection(
    paths: Iterable[str | os.PathLike[str]],
    job: ReadingJob,
    progress: Progress | ProgressOfMany,
    notice: Callable[[str], None],
    *,
    n_jobs: int = 1,
    scheduler: str | None = None,
) -> list[IndexResult]:
    """Index documents, folders and patterns. A document that cannot be indexed does not stop the others.

    Parameters
    ----------
    n_jobs : int
        Documents to read at once, each in a process of its own.
    scheduler : str, optional
        Address of a Dask cluster's scheduler, whose workers read the documents.

    Raises
    ------
    OctavoError
        The model cannot be used, a setting is out of range, or a folder has no documents.
    """
    check_whole("n_jobs", n_jobs, 1)
    named = job.settings.model
    settings, _ = locate_model(job.settings, notice)
    job = replace(job, settings=settings)
    files = [SourceFile(path, job.reading.extraction) for path in documents_of(paths, notice)]
    if scheduler is not None:
        if n_jobs != 1:
            raise OctavoError("A cluster's workers say how many documents are read at once: leave the jobs out.")
        from .cluster_run import index_on_cluster

        name = None if named is None else os.fspath(named)
        return index_on_cluster(files, job, name, scheduler, of_many(progress, len(files)), notice)
    return index_all(files, job, of_many(progress, n_jobs), notice, n_jobs)
