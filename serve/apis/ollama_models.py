"""Ollama's API: the model, and embeddings."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..http.requests import ndjson, parsed
from ..request_error import RequestError
from ..server_pool import LoadableModel, pool_of
from ..services import Server, server_of
from .api_body import ApiBody
from .embeddings import embedded
from .model_card import ModelCard
from .ollama_body import ollama_error, ollama_name, tagged

#: The version of Ollama whose API this is: some clients refuse older ones.
_VERSION = "0.12.11"

#: When the model leaves memory: as long as the server runs, it does not.
_NEVER = "2318-01-01T00:00:00Z"

#: Most characters of a field of the model's header in a description: it leaves out longer texts, such as templates.
_LONGEST_FIELD = 200


class ShowBody(ApiBody):
    """Asks for a description of the model."""


class EmbedBody(ApiBody):
    """Texts to embed. None is ever cut, so `truncate` changes nothing."""

    input: str | list[str]
    truncate: bool = False
    dimensions: int | None = Field(None, ge=1)

    @property
    def ignored(self) -> list[str]:
        """Return the names of the fields that octavo ignores."""
        return [*super().ignored, *(["truncate"] if self.truncate else [])]


class PromptBody(ApiBody):
    """A text to embed, in the older form."""

    prompt: str


async def version(request: Request) -> Response:
    """Answer GET /api/version."""
    return JSONResponse({"version": _VERSION})


async def tags(request: Request) -> Response:
    """Answer GET /api/tags: models that are not loaded have names and files alone."""
    pool = pool_of(request)
    loaded = {server.engine.name: _listed(server.engine.name, ModelCard(server)) for server in pool.loaded}
    models = [loaded.get(name) or _not_loaded(name, choice) for name, choice in pool.choices.items()]
    return JSONResponse({"models": models})


async def running(request: Request) -> Response:
    """Answer GET /api/ps."""
    cards = [ModelCard(server) for server in pool_of(request).loaded]
    more = {"expires_at": _NEVER, "size_vram": 0}
    return JSONResponse(
        {"models": [{**_listed(card.name, card), **more, "context_length": card.n_ctx} for card in cards]}
    )


async def show(request: Request) -> Response:
    """Answer POST /api/show."""
    await parsed(request, ShowBody)
    server = server_of(request)
    card = ModelCard(server)
    return JSONResponse(
        {
            "modelfile": f"FROM {ollama_name(server)}\n",
            "parameters": f"num_ctx {card.n_ctx}",
            "template": card.template,
            "details": _details(card),
            "model_info": _info(server, card),
            "capabilities": card.capabilities,
            "modified_at": _modified(card.path),
        }
    )


async def embed(request: Request) -> Response:
    """Answer POST /api/embed."""
    server, body, started = server_of(request), await parsed(request, EmbedBody), time.perf_counter()
    texts = [body.input] if isinstance(body.input, str) else body.input
    vectors, n_tokens = await embedded(request, texts, body.dimensions)
    return JSONResponse(
        {
            "model": ollama_name(server),
            "embeddings": [vector.tolist() for vector in vectors],
            "total_duration": int((time.perf_counter() - started) * 1e9),
            "load_duration": 0,
            "prompt_eval_count": n_tokens,
        }
    )


async def embed_prompt(request: Request) -> Response:
    """Answer POST /api/embeddings."""
    body = await parsed(request, PromptBody)
    [vector], _ = await embedded(request, [body.prompt])
    return JSONResponse({"embedding": vector.tolist()})


class PullBody(ApiBody):
    """The name of a model, in either field."""

    name: str = ""
    stream: bool = True


async def pull(request: Request) -> Response:
    """Answer POST /api/pull: there is nothing to fetch of a model that is served; others cannot be fetched."""
    body, pool = await parsed(request, PullBody), pool_of(request)
    name = body.model or body.name
    if not name:
        raise RequestError("The request names no model.", param="model")
    if pool.known(name) is None:
        raise RequestError(f"octavo has no model {name}: {_only(request)}")
    if not body.stream:
        return JSONResponse({"status": "success"})

    async def steps() -> AsyncGenerator[str, None]:
        for step in ("pulling manifest", "success"):
            yield json.dumps({"status": step})

    return ndjson(steps(), lambda problem: json.dumps(ollama_error(problem)), "{}")


async def refuse(request: Request) -> Response:
    """Refuse to change models: POST /api/create, /api/copy, /api/push, /api/blobs/DIGEST, DELETE /api/delete."""
    raise RequestError(f"octavo does not make, copy, push or delete models: {_only(request)}")


def _only(request: Request) -> str:
    """Return how models come to a server, as the end of a sentence."""
    names = ", ".join(map(tagged, pool_of(request).choices))
    return f"it serves those that it was started with ({names}). `octavo serve -m` or `-hf` names others."


def _listed(name: str, card: ModelCard) -> dict[str, Any]:
    named = {"name": tagged(name), "model": tagged(name), "modified_at": _modified(card.path)}
    return {**named, "size": card.n_bytes, "digest": card.sha256, "details": _details(card)}


def _not_loaded(name: str, choice: LoadableModel) -> dict[str, Any]:
    """Return a model that is not loaded as lists have it."""
    named = {"name": tagged(name), "model": tagged(name), "modified_at": _modified(choice.path)}
    details = {"parent_model": "", "format": "gguf", "family": "", "families": None}
    details |= {"parameter_size": "", "quantization_level": ""}
    n_bytes = choice.path.stat().st_size if choice.path.exists() else 0
    return {**named, "size": n_bytes, "digest": choice.library.model_hash, "details": details}


def _modified(path: Path) -> str:
    changed = path.stat().st_mtime if path.exists() else 0
    return datetime.fromtimestamp(changed, UTC).isoformat().replace("+00:00", "Z")


def _details(card: ModelCard) -> dict[str, Any]:
    size = next(
        (f"{card.n_params / unit:.1f}{letter}" for unit, letter in ((1e9, "B"), (1e6, "M")) if card.n_params >= unit),
        f"{card.n_params / 1e3:.0f}K",
    )
    family = {"family": card.architecture, "families": [card.architecture]}
    return {
        "parent_model": "",
        "format": "gguf",
        **family,
        "parameter_size": size,
        "quantization_level": card.quantization,
    }


def _info(server: Server, card: ModelCard) -> dict[str, Any]:
    """Return the model's header without its long texts; its context is the one that is served."""
    info = dict[str, Any]()
    for name, text in server.engine.llama.metadata.items():
        if len(text) <= _LONGEST_FIELD:
            info[name] = text
            with suppress(ValueError):  # a text
                info[name] = json.loads(text)
    return info | {"general.parameter_count": card.n_params, f"{card.architecture}.context_length": card.n_ctx}


routes = [
    Route("/api/version", version, methods=["GET"]),
    Route("/api/tags", tags, methods=["GET"]),
    Route("/api/ps", running, methods=["GET"]),
    Route("/api/show", show, methods=["POST"]),
    Route("/api/embed", embed, methods=["POST"]),
    Route("/api/embeddings", embed_prompt, methods=["POST"]),
    Route("/api/pull", pull, methods=["POST"]),
    *(Route(f"/api/{name}", refuse, methods=["POST"]) for name in ("create", "copy", "push", "blobs/{digest}")),
    Route("/api/delete", refuse, methods=["DELETE"]),
]
