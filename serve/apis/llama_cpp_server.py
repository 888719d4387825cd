"""Reports of llama.cpp's server about itself: its properties, its slots, and the prompt of a conversation."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...prompts.chat_template import special_tokens
from ...version import __version__
from ..chat_turn import prepared
from ..http.requests import client_of, parsed, while_connected
from ..raw_prompt import text_of
from ..request_error import RequestError
from ..services import server_of
from .llama_cpp_body import sampling_as_json
from .model_card import ModelCard
from .openai_chat import ChatBody, turn_of
from .tool_forms import tools_of


async def props(request: Request) -> Response:
    """Answer GET /props."""
    server = server_of(request)
    card, special = ModelCard(server), special_tokens(server.engine.llama._model)
    alone, over_documents = (server.sampling.settled(has_documents) for has_documents in (False, True))
    defaults = {"id": 0, "id_task": -1, "n_ctx": card.n_ctx, "speculative": False, "is_processing": False}
    return JSONResponse(
        {
            "default_generation_settings": {
                **defaults,
                "params": {**sampling_as_json(alone), "temperature_over_documents": over_documents.temperature},
            },
            "total_slots": server.engine.n_parallel,
            "model_alias": card.name,
            "model_path": card.path.name,
            "model_ftype": card.quantization,
            "modalities": {"vision": False, "audio": False},
            "chat_template": card.template,
            "bos_token": special.get("bos_token", ""),
            "eos_token": special.get("eos_token", ""),
            "build_info": f"octavo-{__version__}",
            "is_sleeping": False,
        }
    )


async def slots(request: Request) -> Response:
    """Answer GET /slots: octavo has none, but so many requests may run at once."""
    server = server_of(request)
    engine, n_running = server.engine, server.engine.n_running
    if request.query_params.get("fail_on_no_slot") and n_running >= engine.n_parallel:
        raise RequestError("All slots are busy.", 503)
    each = {"n_ctx": engine.llama.n_ctx(), "speculative": False}
    return JSONResponse(
        [{"id": number, **each, "is_processing": number < n_running} for number in range(engine.n_parallel)]
    )


async def apply_template(request: Request) -> Response:
    """Answer POST /apply-template: the prompt without the token that /completion puts before it."""
    server, body = server_of(request), await parsed(request, ChatBody)
    tools = tools_of(body.tools, body.tool_choice[1])
    turn = await while_connected(request, turn_of(server, body, tools, client_of(request)))
    tokens = list((await while_connected(request, prepared(server, turn, checked=False))).tokens)
    llama = server.engine.llama
    if tokens and llama._model.add_bos_token() and tokens[0] == llama.token_bos():
        tokens = tokens[1:]
    return JSONResponse({"prompt": await text_of(server, tokens)})


routes = [
    Route("/props", props, methods=["GET"]),
    Route("/slots", slots, methods=["GET"]),
    Route("/apply-template", apply_template, methods=["POST"]),
]
