"""What all handlers of the server share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request

if TYPE_CHECKING:
    from .documents import Documents
    from .engine import Engine
    from .kept_prompts import KeptPrompts
    from .template import ChatTemplate


@dataclass(frozen=True)
class Server:
    """A model and its documents.

    Parameters
    ----------
    engine : Engine
        Generates.
    documents : Documents
        The documents that are read, and those that are being read.
    template : ChatTemplate
        The model's chat template.
    kept : KeptPrompts
        Prompts on disk.
    attention : str
        How tokens attend, unless a request says otherwise.
    started : int
        When the server was started, in seconds since 1970.
    """

    engine: Engine
    documents: Documents
    template: ChatTemplate
    kept: KeptPrompts
    attention: str
    started: int


def server_of(request: Request) -> Server:
    """Return the server that a request came to."""
    server: Server = request.app.state.server
    return server
