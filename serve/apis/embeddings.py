"""OpenAI's embeddings, for models made for them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..http.requests import parsed
from ..request_error import RequestError
from ..services import Server, server_of
from .api_body import ApiBody

#: Largest number of texts of one request, as in OpenAI's API.
_MOST_TEXTS = 2048


class EmbeddingBody(ApiBody):
    """A client's request; other fields are ignored."""

    input: str | list[int] | list[str | list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)

    def texts(self) -> list[str | list[int]]:
        """Return the texts one by one."""
        if isinstance(self.input, str) or (self.input and isinstance(self.input[0], int)):
            return [self.input]
        return list(self.input)  # type: ignore[arg-type]


async def embed(request: Request) -> Response:
    """Answer POST /v1/embeddings."""
    body = await parsed(request, EmbeddingBody)
    vectors, n_tokens = await embedded(request, body.texts(), body.dimensions)
    data = []
    for index, vector in enumerate(vectors):
        embedding: Any = vector.tolist()
        if body.encoding_format == "base64":
            embedding = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        data.append({"object": "embedding", "index": index, "embedding": embedding})
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return JSONResponse({"object": "list", "data": data, "model": server_of(request).engine.name, "usage": usage})


async def embedded(
    request: Request, texts: Sequence[str | list[int]], dimensions: int | None = None
) -> tuple[list[np.ndarray], int]:
    """Return the embeddings of texts, and how many tokens these have.

    Raise RequestError if the model computes none, or a text is empty or exceeds the context.
    """
    server = server_of(request)
    server.embeddings.check(dimensions)
    if not 1 <= len(texts) <= _MOST_TEXTS:
        message = f"One request has at most {_MOST_TEXTS:,} texts." if texts else "There is no text."
        raise RequestError(message, param="input")
    tokens_of_texts = await server.tokenized(partial(_tokens, server, texts), sum(map(len, texts)))
    vectors = [await server.embeddings.embed(request, tokens) for tokens in tokens_of_texts]
    return vectors, sum(map(len, tokens_of_texts))


def _tokens(server: Server, texts: Sequence[str | list[int]]) -> list[list[int]]:
    return [server.embeddings.tokens(text, number) for number, text in enumerate(texts, 1)]


routes = [Route("/v1/embeddings", embed, methods=["POST"])]
