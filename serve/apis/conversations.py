"""OpenAI's conversations: items that clients and answers add, which responses continue."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..http.requests import parsed
from ..kept_responses import Item
from ..request_error import RequestError
from ..server_pool import pool_of
from .api_body import ApiObject
from .paging import page_of


class ConversationBody(ApiObject):
    """A new conversation."""

    items: list[dict[str, Any]] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)


class MetadataBody(ApiObject):
    """A client's facts about a conversation."""

    metadata: dict[str, Any]


class ItemsBody(ApiObject):
    """More items of a conversation."""

    items: list[dict[str, Any]] = Field(min_length=1)


async def create(request: Request) -> Response:
    """Answer POST /v1/conversations."""
    body = await parsed(request, ConversationBody)
    items = list(map(Item.of, body.items))
    made = await asyncio.to_thread(lambda: pool_of(request).conversations.add(metadata=body.metadata, items=items))
    return JSONResponse(_described(made))


async def retrieve(request: Request) -> Response:
    """Answer GET /v1/conversations/ID."""
    return JSONResponse(_described(await _found(request)))


async def update(request: Request) -> Response:
    """Answer POST /v1/conversations/ID."""
    body = await parsed(request, MetadataBody)

    def change(conversation: dict[str, Any]) -> dict[str, Any]:
        conversation["metadata"] = body.metadata
        return _described(conversation)

    return JSONResponse(await _changed(request, change))


async def remove(request: Request) -> Response:
    """Answer DELETE /v1/conversations/ID."""
    conversation_id = request.path_params["id"]
    await asyncio.to_thread(pool_of(request).conversations.remove, conversation_id)
    return JSONResponse({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


async def items(request: Request) -> Response:
    """Answer GET /v1/conversations/ID/items."""
    return JSONResponse(page_of(request, (await _found(request))["items"]))


async def add_items(request: Request) -> Response:
    """Answer POST /v1/conversations/ID/items."""
    added = list(map(Item.of, (await parsed(request, ItemsBody)).items))
    await _changed(request, lambda conversation: conversation["items"].extend(added))
    ends = {"first_id": added[0]["id"], "last_id": added[-1]["id"], "has_more": False}
    return JSONResponse({"object": "list", "data": added, **ends})


async def item(request: Request) -> Response:
    """Answer GET /v1/conversations/ID/items/ITEM."""
    return JSONResponse(_item_in(await _found(request), request.path_params["item"]))


async def remove_item(request: Request) -> Response:
    """Answer DELETE /v1/conversations/ID/items/ITEM."""

    def change(conversation: dict[str, Any]) -> dict[str, Any]:
        conversation["items"].remove(_item_in(conversation, request.path_params["item"]))
        return _described(conversation)

    return JSONResponse(await _changed(request, change))


async def _found(request: Request) -> dict[str, Any]:
    return await asyncio.to_thread(pool_of(request).conversations.get, request.path_params["id"])


async def _changed(request: Request, change: Any) -> Any:
    return await asyncio.to_thread(pool_of(request).conversations.change, request.path_params["id"], change)


def _item_in(conversation: dict[str, Any], item_id: str) -> dict[str, Any]:
    for found in conversation["items"]:
        if found["id"] == item_id:
            return found  # type: ignore[no-any-return]
    raise RequestError(f"There is no item {item_id} in {conversation['id']}.", 404, "not_found")


def _described(conversation: dict[str, Any]) -> dict[str, Any]:
    known = {name: conversation[name] for name in ("id", "created_at", "metadata")}
    return {**known, "object": "conversation"}


routes = [
    Route("/v1/conversations", create, methods=["POST"]),
    Route("/v1/conversations/{id}", retrieve, methods=["GET"]),
    Route("/v1/conversations/{id}", update, methods=["POST"]),
    Route("/v1/conversations/{id}", remove, methods=["DELETE"]),
    Route("/v1/conversations/{id}/items", items, methods=["GET"]),
    Route("/v1/conversations/{id}/items", add_items, methods=["POST"]),
    Route("/v1/conversations/{id}/items/{item}", item, methods=["GET"]),
    Route("/v1/conversations/{id}/items/{item}", remove_item, methods=["DELETE"]),
]
