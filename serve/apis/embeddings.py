"""OpenAI's embeddings, for models made for them."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..http.api_error import RequestError
from ..http.requests import parsed
from ..http.server import Server, server_of
from .api_body import ApiBody

#: Largest number of texts of one request, as in OpenAI's API.
_MOST_TEXTS = 2048


class EmbeddingBody(ApiBody):
    """A client's request; other fields are ignored."""

    input: str | list[str] | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)

    def texts(self) -> list[str | list[int]]:
        """Return the texts one by one."""
        if isinstance(self.input, str) or (self.input and isinstance(self.input[0], int)):
            return [self.input]
        return list(self.input)  # type: ignore[arg-type]


async def embed(request: Request) -> Response:
    """Answer POST /v1/embeddings."""
    server, body = server_of(request), await parsed(request, EmbeddingBody)
    server.embeddings.check(body.dimensions)
    texts = body.texts()
    if not 1 <= len(texts) <= _MOST_TEXTS:
        message = f"One request has at most {_MOST_TEXTS:,} texts." if texts else "There is no text."
        raise RequestError(message, param="input")
    tokens_of_texts = await server.tokenized(partial(_tokens, server, texts), sum(map(len, texts)))
    data = []
    for index, tokens in enumerate(tokens_of_texts):
        vector = await server.embeddings.embed(request, tokens)
        embedding: Any = vector.tolist()
        if body.encoding_format == "base64":
            embedding = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        data.append({"object": "embedding", "index": index, "embedding": embedding})
    n_tokens = sum(map(len, tokens_of_texts))
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return JSONResponse({"object": "list", "data": data, "model": server.engine.name, "usage": usage})


def _tokens(server: Server, texts: list[str | list[int]]) -> list[list[int]]:
    return [server.embeddings.tokens(text, number) for number, text in enumerate(texts, 1)]


routes = [Route("/v1/embeddings", embed, methods=["POST"])]
