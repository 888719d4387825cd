"""OpenAI's embeddings, of models that are made for them."""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...runtime.embedder import Embedder
from ..engine.engine import Engine
from ..http.api_error import RequestError
from ..http.handlers import Server, server_of
from ..http.requests import parsed

#: Most texts of one request, as in OpenAI's API.
_MOST_TEXTS = 2048


class EmbeddingBody(BaseModel):
    """What a client asks; fields that are not named here are ignored."""

    input: str | list[str] | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)

    def texts(self) -> list[str | list[int]]:
        """Return the texts one by one."""
        if isinstance(self.input, str) or (self.input and isinstance(self.input[0], int)):
            return [self.input]
        return list(self.input)  # type: ignore[arg-type]


class Embeddings:
    """Embeddings of one text after another, batch by batch in the engine's thread: answers go on in between.

    Parameters
    ----------
    engine : Engine
        What computes.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._embedder, self._one_at_a_time = engine, Embedder(engine.llama), asyncio.Lock()

    def check(self, dimensions: int | None) -> None:
        """Check that the model computes embeddings, and of so many dimensions.

        Raises
        ------
        RequestError
            It does not.
        """
        if not self._embedder.works:
            raise RequestError(
                f"{self._engine.name} computes no embeddings, as its header names no way to pool them: start "
                "`octavo serve` with a model for embeddings, such as Qwen3-Embedding.",
                param="model",
            )
        own = self._embedder.n_dimensions
        if dimensions not in (None, own):
            raise RequestError(
                f"Embeddings of {self._engine.name} have {own:,} dimensions, and none are cut off: leave `dimensions` "
                "out.",
                param="dimensions",
            )

    def tokens(self, text: str | list[int], number: int) -> list[int]:
        """Return the tokens of a request's text.

        Raises
        ------
        RequestError
            It has none, more than the context, or some that do not exist.
        """
        llama = self._engine.llama
        tokens = text if isinstance(text, list) else list(llama.tokenize(text.encode(errors="replace")))
        if not text or not tokens:
            raise RequestError(f"Text {number} is empty.", param="input")
        if any(not 0 <= token < llama.n_vocab() for token in tokens):
            raise RequestError(
                f"Text {number} has a token that is not one of the model's {llama.n_vocab():,}.", param="input"
            )
        n_ctx = llama.context.n_ctx()
        if len(tokens) > n_ctx:
            raise RequestError(
                f"Text {number} has {len(tokens):,} tokens, and the context has {n_ctx:,}: send it in pieces, or start "
                "the server with a larger context (-c).",
                code="context_length_exceeded",
                param="input",
            )
        return tokens

    async def embed(self, request: Request, tokens: list[int]) -> np.ndarray:
        """Compute an embedding.

        Raises
        ------
        OctavoError
            There is not enough memory, the client has hung up, or the server stops.
        """
        embedder, run = self._embedder, self._engine.run
        async with self._one_at_a_time:
            await run(partial(embedder.start, len(tokens)))
            for start in range(0, len(tokens), embedder.n_batch):
                if await request.is_disconnected():
                    raise RequestError("The client has hung up.", 499)
                await run(partial(embedder.read, tokens[start : start + embedder.n_batch]))
            return embedder.embedding()

    def close(self) -> None:
        """Free memory. The engine must be closed."""
        self._embedder.close()


async def embed(request: Request) -> Response:
    """Answer POST /v1/embeddings."""
    server, body = server_of(request), await parsed(request, EmbeddingBody)
    server.embeddings.check(body.dimensions)
    texts = body.texts()
    if not 1 <= len(texts) <= _MOST_TEXTS:
        message = f"One request has at most {_MOST_TEXTS:,} texts." if texts else "There is no text."
        raise RequestError(message, param="input")
    known = await asyncio.to_thread(_tokens, server, texts)
    data = []
    for index, tokens in enumerate(known):
        vector = await server.embeddings.embed(request, tokens)
        told: Any = vector.tolist()
        if body.encoding_format == "base64":
            told = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        data.append({"object": "embedding", "index": index, "embedding": told})
    n_tokens = sum(map(len, known))
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return JSONResponse({"object": "list", "data": data, "model": server.engine.name, "usage": usage})


def _tokens(server: Server, texts: list[str | list[int]]) -> list[list[int]]:
    return [server.embeddings.tokens(text, number) for number, text in enumerate(texts, 1)]


routes = [Route("/v1/embeddings", embed, methods=["POST"])]
