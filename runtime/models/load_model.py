"""Load a model for documents: with its plan, and with a word about what is unusual."""

from __future__ import annotations

import os
from collections.abc import Callable

from ...errors import OctavoError
from ..llama import Llama
from ..methods import LLAMA_CPP
from ..methods.compose import plan_for, with_budget
from ..store.model_library import Library
from .find_model import load_model

Notice = Callable[[str], None]


def ignore(message: str) -> None:
    """Say nothing."""


def load(
    model: str | os.PathLike[str],
    library: Library,
    attention: str,
    budget: float | None = None,
    plan: str | os.PathLike[str] | None = None,
    retrieval_heads: float | None = None,
    *,
    n_ctx: int,
    n_threads: int,
    cache_type: str,
    device: str,
    rope_scaling: str | None,
    rope_scale: float,
    notice: Notice,
    n_parallel: int = 1,
) -> Llama:
    """Load a model, with its plan if the attention needs one, and say what is unusual about it.

    Parameters
    ----------
    n_parallel : int
        Most sequences of which one step computes a token each.

    Raises
    ------
    OctavoError
        Model or plan cannot be used, or a setting is out of range.
    """
    if attention == LLAMA_CPP:
        raise OctavoError("attention='llama.cpp' reads no index: give octavo's attention, or use octavo.Llama.")
    words, share = with_budget(attention, budget)
    llama = load_model(
        model,
        n_ctx=n_ctx,
        n_threads=n_threads,
        cache_type=cache_type,
        device=device,
        rope_scaling=rope_scaling,
        rope_scale=rope_scale,
        notice=notice,
        attention=words,
        budget=share,
        plan=plan_for([attention], plan, library),
        retrieval_heads=retrieval_heads,
        n_parallel=n_parallel,
    )
    trained = llama._model.n_ctx_train()
    if llama.n_ctx() > trained:
        notice(f"Note: this model was trained on {trained:,} tokens, and -c allows {llama.n_ctx():,}.")
    if llama.template_problem:
        notice(
            f"Note: this model's chat template cannot be used, as {llama.template_problem}; so questions are put in a "
            "plain form (Question: ... Answer:)."
        )
    elif not llama.prompt().has_template:
        notice("Note: this model has no chat template, so questions are put in a plain form (Question: ... Answer:).")
    return llama
