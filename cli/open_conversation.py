"""Open a conversation: shared by `ask` and `chat`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..settings import READS, WHOLE, ModelSettings, ReadSettings, Sampling
from .batch_progress import ManyProgress
from .render import TaskProgress, resumable

if TYPE_CHECKING:
    from ..ask.session import Session
    from ..runtime.methods.attention import Attention

read_option = click.option(
    "--read",
    type=click.Choice(READS),
    default=WHOLE,
    show_default=True,
    help="What is read for an answer: the document that the question is about, whole, or the excerpts of all documents "
    "that it is about; for excerpts nothing is indexed.",
)


def is_collection(documents: Sequence[str]) -> bool:
    """Return whether arguments name several documents, as a folder or a pattern does."""
    from ..library.expand_paths import names_many

    return len(documents) > 1 or any(map(names_many, documents))


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

    how: dict[str, Any] = {"attention": attention, "sampling": sampling, "system_prompt": system_prompt}
    if not documents:
        return api.open_session(settings, **how, progress=TaskProgress())
    how |= {"reading": reading, "sources": sources}
    with resumable(), ManyProgress() as progress:
        if not is_collection(documents) and reading.read == WHOLE:
            return api.open_document(documents[0], settings, **how, progress=progress)
        return api.open_documents(documents, settings, **how, progress=progress)


def open_next(session: Session, document: Path, reading: ReadSettings, sources: bool) -> Session:
    """Open another document with the model of a conversation."""
    from .. import api

    with resumable(), ManyProgress() as progress:
        return api.open_next(session, document, reading=reading, sources=sources, progress=progress)
