"""Lists of the server's models: OpenAI's, LM Studio's and Anthropic's."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..request_error import RequestError
from ..server_pool import ServerPool, pool_of
from .model_card import ModelCard, described_header
from .paging import cut

#: The header that Anthropic's clients send with each request.
ANTHROPIC_VERSION = "anthropic-version"

#: Models on a page of Anthropic's list: without `limit`, and at most.
_DEFAULT, _MOST = 20, 1000


async def models(request: Request) -> Response:
    """Answer GET /v1/models, for clients of Anthropic's API in its form."""
    listed = await _described(pool_of(request))
    if ANTHROPIC_VERSION not in request.headers:
        return JSONResponse({"object": "list", "data": listed})
    page = cut(request, [_as_anthropic(model) for model in listed], "after_id", "before_id", _DEFAULT, _MOST)
    return JSONResponse({name: value for name, value in page.items() if name != "object"})


async def model(request: Request) -> Response:
    """Answer GET /v1/models/ID, for clients of Anthropic's API in its form."""
    found = await _model_in(request)
    return JSONResponse(_as_anthropic(found) if ANTHROPIC_VERSION in request.headers else found)


async def lm_studio_models(request: Request) -> Response:
    """Answer GET /api/v0/models."""
    listed = await _described(pool_of(request))
    return JSONResponse({"object": "list", "data": [_as_lm_studio(model) for model in listed]})


async def lm_studio_model(request: Request) -> Response:
    """Answer GET /api/v0/models/ID."""
    return JSONResponse(_as_lm_studio(await _model_in(request)))


async def _described(pool: ServerPool) -> list[dict[str, Any]]:
    """Describe each model, those that are not loaded by the headers of their files."""
    loaded = {server.engine.name: ModelCard(server).as_openai() for server in pool.loaded}
    started = min((described["created"] for described in loaded.values()), default=int(time.time()))
    others = {"object": "model", "created": started, "owned_by": "octavo", "state": "not-loaded"}
    described = []
    for name, choice in pool.choices.items():
        header = {} if name in loaded else await asyncio.to_thread(described_header, choice.path)
        described.append(loaded.get(name) or {"id": name, **others, **header})
    return described


async def _model_in(request: Request) -> dict[str, Any]:
    for described in await _described(pool_of(request)):
        if request.path_params["id"] == described["id"]:
            return described
    raise RequestError(f"There is no model {request.path_params['id']}.", 404, "model_not_found")


def _as_lm_studio(model: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "object", "type", "arch", "quantization", "state", "max_context_length", "loaded_context_length")
    known = {name: model[name] for name in names if name in model}
    return {**known, "publisher": "", "compatibility_type": "gguf"}


def _as_anthropic(model: dict[str, Any]) -> dict[str, Any]:
    created = datetime.fromtimestamp(model["created"], UTC).isoformat().replace("+00:00", "Z")
    n_ctx = model.get("loaded_context_length", model.get("max_context_length"))
    return {
        "type": "model",
        "id": model["id"],
        "display_name": model["id"],
        "created_at": created,
        "lifecycle": "active",
        "max_input_tokens": n_ctx,
        "max_tokens": n_ctx,
    }


routes = [
    Route("/v1/models", models, methods=["GET"]),
    Route("/v1/models/{id:path}", model, methods=["GET"]),
    Route("/api/v0/models", lm_studio_models, methods=["GET"]),
    Route("/api/v0/models/{id:path}", lm_studio_model, methods=["GET"]),
]
