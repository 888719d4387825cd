"""Open a conversation: shared by `ask` and `chat`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from ..settings import BY_QUESTION, READS, Extraction, ModelSettings, ReadSettings, Sampling
from . import options
from .batch_progress import ManyProgress
from .option_types import Seconds
from .render import TaskProgress, is_quiet, resumable, spinning
from .shown_notices import ShownNotices

if TYPE_CHECKING:
    from ..ask.session import Session
    from ..runtime.methods.attention import Attention


def _reading(
    read: str,
    first_answer: float,
    background: bool,
    n_jobs: int,
    prefill: str,
    state_every: int,
    extraction: Extraction,
) -> ReadSettings:
    """Gather the options of these names."""
    if read != BY_QUESTION and options.is_on_command_line("first_answer"):
        raise click.UsageError(f"--first-answer goes with --read {BY_QUESTION}: leave one of them out.")
    return ReadSettings(
        read=read,
        first_answer=first_answer if read == BY_QUESTION else None,
        background=background,
        n_jobs=n_jobs,
        prefill=prefill,
        state_every=state_every,
        password=extraction.password,
        encoding=extraction.encoding,
        ocr=extraction.ocr,
        ocr_languages=extraction.ocr_languages,
    )


#: Add all options about reading, as one `reading`.
reading_options = options.gathered(
    "reading",
    _reading,
    options.option(
        "--read",
        env="READ",
        type=click.Choice(READS),
        default=BY_QUESTION,
        show_default=True,
        help="Context of an answer: the best document, whole, or excerpts of all, which need no index. auto: one "
        "document is used whole; of several, excerpts, or the best document if the question asks for a summary. Until "
        "indexing is done (see --first-answer), passages found by words are used.",
    ),
    options.option(
        "--first-answer",
        env="FIRST_ANSWER",
        type=Seconds(),
        default="60s",
        show_default=True,
        help="How long an answer may wait for documents to be read.",
    ),
    options.option(
        "--background/--no-background",
        env="BACKGROUND",
        default=True,
        show_default=True,
        help="Whether documents that cannot be read in time are read in the background: see octavo list, octavo stop.",
    ),
    options.jobs,
    options.extraction_options,
    options.prefill,
    options.state_every,
)


def is_collection(documents: Sequence[str]) -> bool:
    """Return whether arguments name several documents, as a folder or a pattern does."""
    from ..library.expand_paths import names_many

    return len(documents) > 1 or any(map(names_many, documents))


def _opening(documents: Sequence[str]) -> AbstractContextManager[Any]:
    from ..documents.extract import document_name

    what = document_name(documents[0]) if len(documents) == 1 else f"{len(documents)} documents"
    return spinning(f"Opening {what}")


def open_session(
    documents: Sequence[str],
    settings: ModelSettings,
    attention: Attention,
    sampling: Sampling,
    *,
    reading: ReadSettings,
    sources: bool,
    system_prompt: str,
) -> Session:
    """Open a conversation over a document, over several, or without one.

    With `sources`, documents record where answers come from.
    """
    from .. import api

    if not documents:
        with spinning("Loading the model"):
            return api.open_session(
                settings, attention=attention, sampling=sampling, system_prompt=system_prompt, progress=TaskProgress()
            )
    shown, asking = ShownNotices(documents), api.Asking(sampling, reading, system_prompt, sources)
    with resumable(), _opening(documents), ManyProgress(shown) as progress:
        opening = api.Opening(documents, asking, progress, is_one=not is_collection(documents))
        session = api.load_and_open(opening, settings, attention, progress.notice)
    if not is_quiet():
        shown.keep()
    return session


def open_next(session: Session, documents: Sequence[str], reading: ReadSettings, sources: bool) -> Session:
    """Open other documents with the model of a conversation."""
    from .. import api

    with resumable(), _opening(documents), ManyProgress() as progress:
        return api.open_next(session, *documents, reading=reading, sources=sources, progress=progress)
