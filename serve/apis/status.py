"""Report on the server: tokens, health and figures."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import AliasChoices, BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ...prompts.chat_template import TEMPLATE_NAME, special_tokens
from ...runtime.llama import Llama
from ..http.requests import openai_error, parsed
from ..request_error import RequestError
from ..server_pool import pool_of
from ..services import Server, server_of

#: Most characters of a text that /tokenize takes, and of one whose tokens come with their texts.
_MOST_CHARACTERS, _MOST_WITH_PIECES = 1 << 20, 100_000


class TokenizeBody(BaseModel):
    """A text, in the form of llama.cpp's server, or of vLLM's: as `prompt`."""

    content: str = Field(validation_alias=AliasChoices("content", "prompt"))
    add_special: bool = Field(False, validation_alias=AliasChoices("add_special", "add_special_tokens"))
    parse_special: bool = True
    with_pieces: bool = False


async def tokenize(request: Request) -> Response:
    """Answer POST /tokenize."""
    body, server = await parsed(request, TokenizeBody), server_of(request)
    most = _MOST_WITH_PIECES if body.with_pieces else _MOST_CHARACTERS
    if len(body.content) > most:
        raise RequestError(f"A text has at most {most:,} characters here: send it in parts.", 413, param="content")

    def response() -> Response:
        llama = server.engine.llama
        tokens = llama.tokenize(body.content.encode(), add_bos=body.add_special, special=body.parse_special)
        pieces = ({"id": token, "piece": _piece(llama, token)} for token in tokens)
        return JSONResponse({"tokens": list(pieces) if body.with_pieces else list(tokens), "count": len(tokens)})

    return await server.tokenized(response, len(body.content))


def _piece(llama: Llama, token: int) -> str | list[int]:
    """Return a token's text; bytes where it is a part of a character."""
    piece = llama.piece(token, special=True)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


class DetokenizeBody(BaseModel):
    """Tokens, in the form of llama.cpp's server."""

    tokens: list[int]


async def detokenize(request: Request) -> Response:
    """Answer POST /detokenize."""
    body, server = await parsed(request, DetokenizeBody), server_of(request)

    def text() -> str:
        llama = server.engine.llama
        n_vocab = llama.n_vocab()
        if any(not 0 <= token < n_vocab for token in body.tokens):
            raise RequestError(f"There are only tokens from 0 to {n_vocab - 1}.", param="tokens")
        return b"".join(llama.piece(token) for token in body.tokens).decode(errors="replace")

    found = await server.tokenized(text, len(body.tokens))
    return JSONResponse({"content": found, "prompt": found})


async def tokenizer_info(request: Request) -> Response:
    """Answer GET /tokenizer_info, as vLLM's server does, so that lm-eval needs no tokenizer of its own."""
    llama = server_of(request).engine.llama
    names = {name: text or None for name, text in special_tokens(llama._model).items()}
    return JSONResponse({**names, "chat_template": llama.metadata.get(TEMPLATE_NAME)})


async def health(request: Request) -> Response:
    """Answer GET /health: 503 if the engine of a model has failed."""
    for server in pool_of(request).loaded:
        if server.engine.has_failed:
            return JSONResponse({"status": "error", **openai_error(server.engine.refusal())}, 503)
    return JSONResponse({"status": "ok"})


#: Help text of each figure of /metrics.
_HELP = {
    "requests": "Requests that were begun",
    "failed": "Requests that failed",
    "cancelled": "Requests whose clients hung up",
    "prompt_tokens": "Tokens of prompts, those of documents included",
    "cached_tokens": "Tokens of prompts that were not computed, as they were known",
    "answer_tokens": "Tokens of answers",
    "prompt_seconds": "Seconds from the beginning of requests to their first tokens",
    "answer_seconds": "Seconds from the first tokens of answers to the last",
}


async def metrics(request: Request) -> Response:
    """Answer GET /metrics, in the form of Prometheus. Where there may be several models, each value names its own."""
    pool, figures = pool_of(request), dict[tuple[str, str, str], list[str]]()
    for server in [server_of(request)] if len(pool.choices) == 1 else pool.loaded:
        label = f'{{model="{server.engine.name}"}}' if len(pool.choices) > 1 else ""
        for figure, value in (await _figures(server)).items():
            figures.setdefault(figure, []).append(f"{figure[0]}{label} {value}")
    lines = [
        line
        for (name, kind, text), values in figures.items()
        for line in (f"# HELP {name} {text}.", f"# TYPE {name} {kind}", *values)
    ]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4; charset=utf-8")


async def _figures(server: Server) -> dict[tuple[str, str, str], float]:
    """Return the figures of a model, each by its name, its kind and its meaning."""
    engine = server.engine
    counters = asdict(engine.totals).items()
    gauges = {
        "requests_running": (engine.n_running, "Requests that are worked on"),
        "requests_waiting": (engine.n_waiting, "Requests that wait"),
        "held_tokens": (engine.sequences.n_tokens, "Tokens of conversations in memory, without documents"),
        "kept_prompts_bytes": (server.prompt_cache.n_bytes, "Prompts on disk, in bytes"),
        "documents": (len(await server.documents.look()), "Documents that are read, or being read"),
    }
    figures = {(f"octavo_{name}_total", "counter", _HELP[name]): value for name, value in counters}
    return figures | {(f"octavo_{name}", "gauge", text): number for name, (number, text) in gauges.items()}


routes = [
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
    Route("/tokenizer_info", tokenizer_info, methods=["GET"]),
    Route("/health", health, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
]
