"""Open a conversation: what `ask` and `chat` have in common."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..ask.reads import READS, WHOLE
from .batch_progress import ManyProgress
from .options import AttentionOptions, ModelOptions, refuse_llama_cpp
from .render import TaskProgress, notice, resumable
from .sampling import SamplingOptions

if TYPE_CHECKING:
    from ..ask.session import Session

read_option = click.option(
    "--read",
    "reads",
    type=click.Choice(READS),
    default=WHOLE,
    show_default=True,
    help="What is read for an answer: the document that the question is about, whole, or the excerpts of all documents "
    "that it is about.",
)


def is_collection(documents: Sequence[str]) -> bool:
    """Return whether arguments name several documents: a folder does, and a pattern."""
    from ..library.expand_paths import names_many

    return len(documents) > 1 or any(map(names_many, documents))


def open_session(
    documents: Sequence[str],
    model_options: ModelOptions,
    attention_options: AttentionOptions,
    sampling_options: SamplingOptions,
    password: str | None = None,
    sources: bool = False,
    reads: str = WHOLE,
) -> Session:
    """Open a conversation over a document, over several, or over nothing if there is none.

    Answers are given from what `reads` says. With `sources`, documents can say where answers come from.
    """
    refuse_llama_cpp(attention_options.attention)
    from .. import api
    from ..convert.pipeline import TooLongError

    settings = {**model_options.arguments(), **attention_options.arguments(), **sampling_options.arguments()}
    if not documents:
        del settings["prefill"]
        return api.open_session(**settings, notice=notice)
    settings |= {"password": password, "sources": sources, "notice": notice}
    if not is_collection(documents) and reads == WHOLE:
        with resumable(), TaskProgress() as progress, suppress(TooLongError):
            return api.open_document(documents[0], **settings, progress=progress)
    with resumable(), ManyProgress() as many:  # a document that is too long is several parts
        return api.open_collection(documents, **settings, reads=reads, progress=many)


def open_next(session: Session, document: Path, password: str | None, sources: bool) -> Session:
    """Open another document with the model of a conversation."""
    from .. import api

    with resumable(), TaskProgress() as progress:
        return api.open_next(session, document, password=password, sources=sources, progress=progress, notice=notice)
