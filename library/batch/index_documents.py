"""Index the documents that a user names: here, or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from ...errors import OctavoError
from ...progress import Progress, ProgressOfMany, Silent, of_many
from ...runtime.load_model import locate_model
from ...runtime.methods import DEFAULT_ATTENTION
from ...runtime.methods.attention import Attention
from ...settings import AnyPath, ModelSettings, ReadSettings, check_whole
from ..expand_paths import documents_of, listed
from ..reading_job import ReadingJob
from ..source_text import SourceFile
from .index_result import IndexResult, folders_of
from .local_run import index_all


def index_documents(
    paths: AnyPath | Iterable[AnyPath],
    model: AnyPath | ModelSettings | None = None,
    *,
    attention: str | Attention = DEFAULT_ATTENTION,
    reading: ReadSettings = ReadSettings(),
    n_jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | ProgressOfMany | None = None,
) -> list[Path]:
    """Index documents, so that they open at once later. Documents with an index keep it.

    A document that cannot be indexed does not stop the others.

    Parameters
    ----------
    paths : path or iterable of path
        Documents, folders and patterns, as `open_documents` takes them.
    attention : str or Attention
        The attention of later questions. Most attentions share an index; some parameters, such as the number of
        centroids, make another.
    n_jobs : int
        Number of documents to read at the same time, each in a process of its own. They share the threads.
    scheduler : str, optional
        Address of a Dask cluster's scheduler, such as "tcp://10.0.0.5:8786": its workers read the documents
        (docs/library.md).
    progress : Progress or ProgressOfMany, optional
        Receives progress and notices. A `Progress` receives one document after another, or the number of finished ones
        if several are read at the same time; a `ProgressOfMany` receives both.

    Returns
    -------
    list of Path
        The folder of each index, in the order of the documents: of one longer than the context, those of its parts.

    Raises
    ------
    NotIndexed
        Some documents cannot be indexed; the others are. Its `outcomes` have the reason or the folders of each.
    OctavoError
        The model cannot be used, a setting is out of range, or a folder has no documents.
    """
    progress = progress or Silent()
    outcomes = index_collection(
        listed(paths),
        ReadingJob(ModelSettings.of(model), Attention.of(attention), reading),
        progress,
        progress.notice,
        n_jobs=n_jobs,
        scheduler=scheduler,
    )
    return folders_of(outcomes)


def index_collection(
    paths: Iterable[AnyPath],
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
