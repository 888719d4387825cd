"""Embeddings of texts, computed in the engine's thread between the steps of answers."""

from __future__ import annotations

import asyncio
from functools import partial

import numpy as np
from starlette.requests import Request

from ...runtime.embedder import Embedder
from ..request_error import RequestError
from .engine import Engine


class TextEmbeddings:
    """Compute embeddings batch by batch in the engine's thread, so that answers continue in between."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._embedder, self._one_at_a_time = engine, Embedder(engine.llama), asyncio.Lock()

    @property
    def works(self) -> bool:
        """Return whether the model computes embeddings."""
        return self._embedder.works

    def check(self, dimensions: int | None) -> None:
        """Raise RequestError unless the model computes embeddings, with this number of dimensions."""
        if not self.works:
            raise RequestError(
                f"{self._engine.name} computes no embeddings, as its header names no way to pool them: start "
                "`octavo serve` with a model for embeddings, such as Qwen3-Embedding.",
                param="model",
            )
        n_dimensions = self._embedder.n_dimensions
        if dimensions not in (None, n_dimensions):
            raise RequestError(
                f"Embeddings of {self._engine.name} have {n_dimensions:,} dimensions, and none are cut off: leave "
                "`dimensions` out.",
                param="dimensions",
            )

    def tokens(self, text: str | list[int], number: int) -> list[int]:
        """Return the tokens of a request's text.

        Raise RequestError if the text is empty, exceeds the context, or has tokens that do not exist.
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

        Raise OctavoError if memory does not suffice, the client has hung up, or the server stops.
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
        """Free memory, after the engine is closed."""
        self._embedder.close()
