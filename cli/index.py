"""`octavo index`: make indexes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import spoken
from ..settings import ModelSettings, ReadSettings
from . import options
from .batch_progress import ManyProgress
from .render import notice, print_json, resumable, spinning
from .short_help import ShortHelp

if TYPE_CHECKING:
    from ..library.batch.index_result import IndexResult
    from ..library.reading_job import ReadingJob
    from ..runtime.methods.attention import Attention


@click.command(
    cls=ShortHelp,
    groups={
        "Documents": ("--watch", "-j", "--password", "--encoding", "--ocr"),
        "Index": ("--index-dir", "--cache-type"),
        "Model": ("-m", "-hf", "-c"),
        "Output": ("-o", "-q"),
    },
    examples=("octavo index report.pdf book.epub", "octavo index papers/ --watch"),
)
@click.argument("documents", metavar="DOCUMENT...", nargs=-1, required=True)
@options.output_option("text", "json")
@options.quiet
@options.jobs
@options.scheduler
@click.option("--watch", is_flag=True, help="Stay: index documents as they appear and change in the folders.")
@options.attention
@options.plan
@options.retrieval_heads
@options.index_options
@options.model_options
@options.as_attention
def index(
    documents: tuple[str, ...],
    output: str,
    settings: ModelSettings,
    attention: Attention,
    reading: ReadSettings,
    scheduler: str | None,
    watch: bool,
) -> None:
    """Read documents once, so that later questions start at once.

    Each DOCUMENT is a text, a PDF, a file of Office or any other that octavo reads (docs/documents.md), or - for
    standard input. A folder means all documents in it and in its folders.

    A document that is longer than the model's context is split into parts. One that cannot be read does not stop the
    others. Interrupted, the same command resumes where it stopped. Most values of --attention take the same index; give
    the one that you will ask with.
    """
    if watch and (output == "json" or scheduler is not None):
        raise click.UsageError("--watch tells what it does in lines, and on this machine: no -o json, no --scheduler.")
    from ..library.batch.index_documents import index_collection
    from ..library.batch.index_result import folders_of
    from ..library.reading_job import ReadingJob

    job = ReadingJob(settings, attention, reading)
    if watch:
        _watch([Path(document) for document in documents], job, reading.n_jobs)
        return
    with resumable(), spinning("Looking for documents"), ManyProgress() as progress:
        outcomes = index_collection(
            documents,
            job,
            progress,
            notice,
            n_jobs=reading.n_jobs,
            scheduler=scheduler,
        )
    if output == "json":
        print_json([_described(outcome) for outcome in outcomes])
    folders_of(outcomes)


def _watch(folders: list[Path], job: ReadingJob, n_jobs: int) -> None:
    """Keep the indexes of folders current until Ctrl-C."""
    from ..library.watch import Watch

    try:
        with ManyProgress() as progress:
            Watch(folders, job, progress, notice).run(n_jobs)
    except KeyboardInterrupt:
        notice("Ended: the same command resumes.")


def _described(outcome: IndexResult) -> dict[str, Any]:
    if outcome.problem:
        return {"document": outcome.name, "path": None, "problem": spoken(outcome.problem)}
    paths = [str(folder) for folder in outcome.folders]
    if len(paths) > 1:
        return {"document": outcome.name, "path": None, "parts": paths}
    return {"document": outcome.name, "path": paths[0]}
