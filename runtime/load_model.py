"""Load a model, for documents with its plan, and notify the user of anything unusual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..cpu_kernels.numba_support.compile import compiled_before, keeps_kernels
from ..cpu_kernels.numba_support.kernel_cache import kernel_folder
from ..errors import OctavoError
from ..settings import ModelSettings
from ..system.processors import default_threads, free_threads
from .llama import Llama
from .methods.attention import Attention, plan_for
from .models.find_model import find_model
from .models.llama_arguments import GGML_TYPES
from .store.model_library import Library

#: Threads that read a batch even where no core is free: two read up to a third faster than one, and write no faster.
_FEWEST_OF_A_BATCH = 2

#: Tokens of a conversation without a document, whose kernels are compiled while the model reads the first question.
_SHORT = 1

Notice = Callable[[str], None]


def locate_model(settings: ModelSettings, notice: Notice) -> tuple[ModelSettings, Library]:
    """Find the file of a model, and its library.

    Parameters
    ----------
    settings : ModelSettings
        Names the model by a name or path, or None for the default one.
    notice : callable
        Receives a sentence if the model is fetched.

    Returns
    -------
    settings : ModelSettings
        The same, with the file's path.
    library : Library
        The model's indexes and plan.

    Raises
    ------
    OctavoError
        The model does not exist, or cannot be fetched.
    """
    path = find_model(settings.model, notice)
    return replace(settings, model=path), Library.of(path, settings.index_dir)


def load_model(settings: ModelSettings, notice: Notice, measures: bool = False, **arguments: Any) -> Llama:
    """Load a model.

    Parameters
    ----------
    notice : callable
        Receives a sentence before kernels are compiled.
    measures : bool
        Whether the model runs on all cores by default, however busy they are: figures depend a little on how many
        threads add their sums.
    **arguments
        Further arguments of `Llama`: the attention, and `n_parallel`.

    Raises
    ------
    OctavoError
        The file is not a model that octavo can run, or an argument is out of range.
    """
    path = find_model(settings.model, notice)
    wanted = settings.n_threads or (default_threads() if measures else None)
    note_compiling(notice)
    llama = Llama(
        path,
        **arguments,
        n_ctx=settings.n_ctx,
        n_threads=wanted or free_threads(1),
        n_threads_batch=wanted or free_threads(_FEWEST_OF_A_BATCH),
        type_k=GGML_TYPES[settings.cache_type],
        type_v=GGML_TYPES[settings.cache_type],
        rope_scaling=settings.rope_scaling,
        rope_scale=settings.rope_scale,
        device=settings.device,
    )
    llama.settings, llama.notice = settings, notice
    if llama.device_note:
        notice(f"Note: {llama.device_note}")
    if not compiled_before():
        llama.compile_ahead(llama.attention, _SHORT)
    return llama


def note_compiling(notice: Notice) -> None:
    """Notify the user if kernels are yet to be compiled."""
    if not keeps_kernels():
        notice(
            f"Kernels are compiled each time, as {kernel_folder()} cannot be written or is not yours alone: mend that, "
            "or set XDG_CACHE_HOME to another folder."
        )
    elif not compiled_before():
        notice("Compiling kernels for this CPU, once for all models: about half a minute.")


def load(
    settings: ModelSettings,
    library: Library,
    attention: Attention,
    notice: Notice,
    n_parallel: int = 1,
    parallel_states: bool = True,
) -> Llama:
    """Load a model for documents, with its plan if the attention needs one, and notify the user of anything unusual.

    Parameters
    ----------
    attention : Attention
        The attention. Its plan is read here.
    n_parallel : int
        Most sequences that one step serves, with a token each.
    parallel_states : bool
        Whether a hybrid model serves as many, too (see `Llama`).

    Raises
    ------
    OctavoError
        Model or plan cannot be used, or a setting is out of range.
    """
    if attention.is_llama_cpp:
        raise OctavoError("attention='llama.cpp' reads no index: give octavo's attention, or use octavo.Llama.")
    llama = load_model(
        settings,
        notice,
        attention=attention.with_plan(plan_for([attention], library, attention.plan_file)),
        n_parallel=n_parallel,
        parallel_states=parallel_states,
    )
    trained = llama._model.n_ctx_train()
    if llama.n_ctx() > trained:
        notice(f"Note: this model was trained on {trained:,} tokens, and `n_ctx` allows {llama.n_ctx():,}.")
    if llama.template_problem:
        notice(
            f"Note: this model's chat template cannot be used, as {llama.template_problem}; so questions are put in a "
            "plain form (Question: ... Answer:)."
        )
    elif not llama.prompt().has_template:
        notice("Note: this model has no chat template, so questions are put in a plain form (Question: ... Answer:).")
    return llama
