"""`octavo serve`: OpenAI's API over a library of documents, and a page for the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..settings import Extraction, ModelSettings, ReadSettings, Sampling
from . import options
from .option_types import Number
from .render import notice
from .sampling import sampling_options

if TYPE_CHECKING:
    from ..runtime.methods.attention import Attention


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
    "--allow-origin",
    "allowed_origins",
    env="ALLOW_ORIGIN",
    multiple=True,
    metavar="ORIGIN",
    help="Pages of other sites or programs that may ask, such as app://obsidian.md or chrome-extension://*; may be "
    "given again.",
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
@sampling_options
@options.attention_options
@options.ocr_options
@options.prefill
@options.state_every
@options.model_options
@options.as_reading
def serve(
    settings: ModelSettings,
    attention: Attention,
    sampling: Sampling,
    reading: ReadSettings,
    extraction: Extraction,
    host: str,
    port: int,
    api_key: str | None,
    allowed_hosts: tuple[str, ...],
    allowed_origins: tuple[str, ...],
    max_upload: int,
    n_parallel: int,
    n_waiting: int,
    timeout: float,
    prompt_cache: int,
) -> None:
    """Serve OpenAI's API over documents, and a page for the browser.

    Any program that speaks OpenAI's API (or Anthropic's) can ask. A document that was uploaded to /v1/files, or indexed
    before, is named in a request and need not be sent or read again. Requests say how answers are drawn; the options
    here hold where they do not.
    """
    from ..library.batch.job import Job
    from ..serve.http.access import Access
    from ..serve.http.app import Limits
    from ..serve.run import serve

    serve(
        Job(settings, attention, reading.prefill, reading.state_every, extraction=extraction),
        sampling,
        Access(host, port, api_key, allowed_hosts, allowed_origins, max_upload << 20),
        Limits(n_parallel, n_waiting, timeout, prompt_cache << 20),
        notice,
    )
