"""`octavo mcp`: documents as tools of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..settings import ModelSettings, ReadSettings, Sampling
from . import options
from .access_options import access_options
from .open_conversation import reading_options
from .render import notice
from .sampling import sampling_options
from .short_help import ShortHelp

if TYPE_CHECKING:
    from ..runtime.methods.attention import Attention
    from ..serve.http.access import Access

#: Programs give a call up after a minute, unless they are configured otherwise: answers have to come before.
_DEFAULTS = {"first_answer": "20s", "whole": "off"}


@click.command(
    cls=ShortHelp,
    groups={
        "Answers": ("--read", "--first-answer", "-n", "--temp"),
        "Documents": ("--ocr", "--password"),
        "Model": ("-m", "-hf", "-c"),
        "Address": ("--http", "--port", "--api-key"),
    },
    examples=("octavo mcp ~/Documents", "octavo mcp ~/Documents --http --port 8090"),
    context_settings={"default_map": _DEFAULTS},
)
@click.argument("paths", metavar="FOLDER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--http", "over_http", is_flag=True, help="Serve at an address, in place of standard input and output.")
@access_options(port=8090)
@reading_options
@options.model_options
@options.attention_options
@sampling_options
def mcp(
    paths: tuple[Path, ...],
    over_http: bool,
    access: Access,
    settings: ModelSettings,
    attention: Attention,
    sampling: Sampling,
    reading: ReadSettings,
) -> None:
    """Give documents to Claude and other programs, as tools.

    FOLDER is a folder or a document. Programs start this command themselves (docs/mcp.md); with --http they ask it at
    an address.

    The tools list the documents in FOLDER, answer questions from them with sources, find passages, and read parts of a
    text; they use nothing else of this disk. The model is loaded for the first question.
    """
    from ..serve.mcp.run_tools import serve_tools

    given = list(filter(options.is_on_command_line, ("host", "port", "api_key", "allowed_hosts", "allowed_origins")))
    if given and not over_http:
        raise click.UsageError("The options of an address go with --http: give it, or leave them out.")
    serve_tools(paths, settings, attention, sampling, reading, access if over_http else None, notice)
