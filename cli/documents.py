"""Open a conversation: what `ask` and `chat` have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .options import AttentionOptions, ModelOptions, refuse_llama_cpp
from .render import TaskProgress, notice, resumable
from .sampling import SamplingOptions

if TYPE_CHECKING:
    from ..runtime.session import Session


def open_session(
    document: Path | None,
    model_options: ModelOptions,
    attention_options: AttentionOptions,
    sampling_options: SamplingOptions,
    password: str | None = None,
    sources: bool = False,
) -> Session:
    """Open a conversation over a document, or over nothing if there is none.

    With `sources`, a document can say where answers come from.
    """
    refuse_llama_cpp(attention_options.attention)
    from .. import api

    settings = {**model_options.arguments(), **attention_options.arguments(), **sampling_options.arguments()}
    if document is None:
        del settings["prefill"]
        return api.open_session(**settings, notice=notice)
    with resumable(), TaskProgress() as progress:
        return api.open_document(
            document, **settings, password=password, sources=sources, progress=progress, notice=notice
        )


def open_next(session: Session, document: Path, password: str | None, sources: bool) -> Session:
    """Open another document with the model of a conversation."""
    from .. import api

    with resumable(), TaskProgress() as progress:
        return api.open_next(session, document, password=password, sources=sources, progress=progress, notice=notice)
