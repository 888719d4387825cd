"""The server: a model and its documents, as the handlers of all APIs use them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

if TYPE_CHECKING:
    from ...settings import Sampling
    from ..engine.engine import Engine
    from ..engine.prompt_cache import KeptPrompts
    from ..engine.text_embeddings import Embeddings
    from ..library.document_finder import Finder
    from ..library.served_library import Documents
    from ..prompt.message_formatter import MessageFormatter


@dataclass(frozen=True)
class Server:
    """A model and its documents.

    Parameters
    ----------
    engine : Engine
        Generates.
    documents : Documents
        The documents that are read, and those that are being read.
    finder : Finder
        Finds the document that a question is about, or excerpts of several.
    messages : MessageFormatter
        Makes tokens of messages.
    embeddings : Embeddings
        Computes embeddings, where the model can.
    kept : KeptPrompts
        Prompts on disk.
    sampling : Sampling
        How answers are drawn where requests do not say.
    attention : str
        How tokens attend, unless a request says otherwise.
    started : int
        When the server was started, in seconds since 1970.
    """

    engine: Engine
    documents: Documents
    finder: Finder
    messages: MessageFormatter
    embeddings: Embeddings
    kept: KeptPrompts
    sampling: Sampling
    attention: str
    started: int

    def close(self) -> None:
        """End the engine, and wait until prompts are kept. It may be closed again."""
        self.engine.close()
        self.kept.close()

    def sampling_of(self, max_tokens: int | None, seed: int | None, **values: Any) -> Sampling:
        """Return how to draw an answer: as a request says, or else as the server does. Any integer is a seed."""
        given = {name: value for name, value in {"max_tokens": max_tokens, **values}.items() if value is not None}
        given |= {} if seed is None else {"seed": seed % (2**32 - 1)}
        return replace(self.sampling, **given)


def server_of(request: Request) -> Server:
    """Return the server that a request came to."""
    server: Server = request.app.state.server
    return server
