"""`octavo serve`: OpenAI's API over a library of documents, and a page for the browser."""

from __future__ import annotations

from typing import Any

import click

from . import options, sampling
from .option_types import Number
from .render import notice


@click.command()
@options.option(
    "--host",
    env="HOST",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen at; beyond this machine a key is needed.",
)
@options.option(
    "--port", env="PORT", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port; 0 for any."
)
@options.option(
    "--api-key",
    env="API_KEY",
    help="What requests must bring, as a bearer token.  A variable keeps it out of the shell's history.",
)
@options.option(
    "--allow-host",
    "allowed_hosts",
    env="ALLOW_HOST",
    multiple=True,
    metavar="NAME",
    help="A name by which the server may be asked, besides addresses and localhost; may be given again.",
)
@options.option(
    "--parallel",
    "n_parallel",
    env="PARALLEL",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Requests that are answered at once; others wait.",
)
@options.option(
    "--queue",
    "n_waiting",
    env="QUEUE",
    type=click.IntRange(min=0),
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
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Largest body of a request, in MiB.",
)
@options.option(
    "--prompt-cache",
    env="PROMPT_CACHE",
    type=click.IntRange(min=0),
    default=8192,
    show_default=True,
    help="What long prompts may take on disk, in MiB, so that they are read once; 0 keeps none.",
)
@sampling.predict
@sampling.temp
@sampling.top_p
@sampling.top_k
@sampling.min_p
@sampling.repeat_penalty
@sampling.seed
@options.attention_options
@options.model_options
def serve(
    model_options: options.ModelOptions,
    attention_options: options.AttentionOptions,
    max_upload: int,
    prompt_cache: int,
    predict: int,
    temp: float,
    top_p: float,
    top_k: int,
    min_p: float,
    repeat_penalty: float,
    seed: int,
    **how: Any,
) -> None:
    """Serve OpenAI's API over documents, and a page for the browser.

    Any program that speaks OpenAI's API (or Anthropic's) can ask. A document that was uploaded to /v1/files, or indexed
    before, is named in a request and need not be sent or read again. Requests say how answers are drawn; the options
    here hold where they do not.
    """
    options.refuse_llama_cpp(attention_options.attention)
    from ..ask.session import Sampling
    from ..serve.run import serve

    n_tokens, number = predict if predict >= 0 else None, seed if seed >= 0 else None

    serve(
        **model_options.arguments(),
        **attention_options.arguments(),
        **how,
        sampling=Sampling(n_tokens, temp, top_p, top_k, min_p, repeat_penalty, number),
        most_bytes=max_upload << 20,
        kept_bytes=prompt_cache << 20,
        notice=notice,
    )
