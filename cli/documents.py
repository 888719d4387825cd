"""Open a model with a document for questions: what `ask` and `chat` have in common."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .options import AttentionOptions, ModelOptions, SamplingOptions, refuse_llama_cpp
from .render import TaskProgress, notice, resumable

if TYPE_CHECKING:
    from ..runtime.llama import Llama
    from ..runtime.session import Session


def open_session(
    document: Path | None,
    model_options: ModelOptions,
    attention_options: AttentionOptions,
    sampling_options: SamplingOptions,
) -> Session:
    """A session over a document, whose index is made first where there is none; or over nothing."""
    refuse_llama_cpp(attention_options.attention)
    if document is not None:
        check_document(document)
    from ..convert.documents import attach_document
    from ..runtime.session import Session

    llama = open_model(model_options, attention_options)
    if document is not None:
        with resumable(), TaskProgress() as progress:
            attach_document(llama, model_options.library(), document, progress, model_options.threads, notice)
    return Session(llama, sampling_options.sampling())


def open_model(model_options: ModelOptions, attention_options: AttentionOptions | None = None) -> Llama:
    """Load a model, and say what is unusual about it."""
    from ..runtime.prompt import Prompt

    llama = model_options.open(attention_options)
    trained = llama._model.n_ctx_train()
    if llama.n_ctx() > trained:
        notice(f"Note: this model was trained on {trained:,} tokens, and -c allows {llama.n_ctx():,}.")
    if not Prompt(llama).has_template:
        notice("Note: this model has no chat template, so questions are put in a plain form (Question: ... Answer:).")
    return llama


def check_document(path: str | os.PathLike[str]) -> None:
    """Raise OctavoError for a document that cannot be read, before a model is loaded."""
    from ..convert.texts import read_document

    read_document(path)
