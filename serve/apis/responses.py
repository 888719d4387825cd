"""OpenAI's responses API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..chat_turn import (
    AnswerStart,
    ChatTurn,
    Event,
    Step,
    prepared,
    questions_of,
    start_answer,
    start_with,
    steps_and_answer,
)
from ..engine.request import Request
from ..http.requests import client_of, connected, note_ignored, parsed, sse, while_connected
from ..kept_responses import Item, KeptResponse
from ..request_error import RequestError
from ..server_pool import pool_of
from ..services import Server, server_of
from .attachments import Attachments
from .file_search import FILE_SEARCH, FileSearch, file_search_of
from .paging import page_of
from .response_input import ResponseBody, kept_item, messages_of
from .response_writer import ResponseWriter
from .shared_json import effort_of
from .tool_forms import Tools, tools_of

#: Any JSON object, for "json_object".
_OBJECT: dict[str, Any] = {"type": "object"}


class _Before(NamedTuple):
    """What a response continues: the items of a conversation, and the names of its documents."""

    items: list[Item]
    documents: Sequence[str]


class _Asked(NamedTuple):
    """A body's turn, what it continues, the items of its input, the documents that it names, and its tools."""

    turn: ChatTurn
    before: _Before
    input: list[Item]
    documents: list[str]
    tools: Tools
    search: FileSearch | None


async def respond(http_request: HttpRequest) -> Response:
    """Answer POST /v1/responses."""
    server, body = server_of(http_request), await parsed(http_request, ResponseBody)
    asked = await while_connected(http_request, _asked(http_request, body))
    work = start_answer(server, asked.turn) if body.stream else start_with(prepared(server, asked.turn))
    first = await while_connected(http_request, work)
    note_ignored(http_request, first.ignored)
    keep = partial(_keep, http_request, body, asked)
    generation = asked.turn.generation.settled(bool(asked.turn.documents))
    writer = ResponseWriter(body, generation.sampling, server.engine.name, asked.tools, keep)
    parts = _parts(server, asked, first)
    if body.stream:
        return sse(writer.lines(parts), writer.failure)
    async with aclosing(writer.lines(connected(http_request, parts))) as lines:
        async for _ in lines:
            pass
    return JSONResponse(writer.whole)


async def _parts(
    server: Server, asked: _Asked, first: AnswerStart
) -> AsyncGenerator[Step | dict[str, Any] | Event, None]:
    """Yield the steps before an answer, the item about the files that were searched, if any were, and the answer."""
    async with aclosing(steps_and_answer(server, asked.turn, first)) as parts:
        async for part in parts:
            yield part
            if isinstance(part, Request) and asked.search is not None:
                yield await asked.search.call(server, part, questions_of(asked.turn.messages)[0])


async def count(http_request: HttpRequest) -> Response:
    """Answer POST /v1/responses/input_tokens."""
    server, body = server_of(http_request), await parsed(http_request, ResponseBody)
    asked = await while_connected(http_request, _asked(http_request, body))
    n_tokens = (await while_connected(http_request, prepared(server, asked.turn, checked=False))).n_prompt
    return JSONResponse({"object": "response.input_tokens", "input_tokens": n_tokens})


async def kept(http_request: HttpRequest) -> Response:
    """Answer GET and DELETE /v1/responses/{id}."""
    responses, name = pool_of(http_request).responses, _name_in(http_request)
    if http_request.method == "DELETE":
        responses.remove(name)
        return JSONResponse({"id": name, "object": "response", "deleted": True})
    return JSONResponse(responses.get(name).response)


async def input_items(http_request: HttpRequest) -> Response:
    """Answer GET /v1/responses/{id}/input_items: the conversation before the answer."""
    kept = pool_of(http_request).responses.get(_name_in(http_request))
    return JSONResponse(page_of(http_request, kept.input))


def _name_in(http_request: HttpRequest) -> str:
    return f"resp_{http_request.path_params['id']}"


async def _asked(http_request: HttpRequest, body: ResponseBody) -> _Asked:
    """Return a body's turn, after the response or the conversation that it names, if it names one."""
    server, left_out = server_of(http_request), list[str]()
    before = await _before(http_request, body)
    attachments = Attachments(server, body.documents)
    for reference in before.documents:
        attachments.name(reference)
    new = await _input(http_request, body, before.items, attachments)
    instructions = [{"role": "system", "content": body.instructions}] if body.instructions else []
    messages = messages_of([*instructions, *before.items, *new], attachments, left_out)
    choice, allowed = body.tool_choice
    named, stated = list(attachments.documents), [] if choice == "none" else body.tools or []
    search = await file_search_of(http_request, stated, body.include or ())
    for file in search.files if search else ():
        attachments.name(file.document["id"])
    tools, form = (
        tools_of([tool for tool in body.tools or () if tool.get("type") != FILE_SEARCH], allowed),
        body.text.format,
    )
    note_ignored(http_request, [*left_out, *tools.left_out])
    think, effort = effort_of(body.reasoning.effort)
    n_logprobs = body.top_logprobs if "message.output_text.logprobs" in (body.include or ()) else None
    turn = ChatTurn(
        messages=messages,
        generation=body.generation(
            server,
            body.max_output_tokens,
            body.asked(server, client_of(http_request), n_logprobs=n_logprobs, cites=search is not None),
            think=think,
        ),
        documents=attachments.documents,
        reads=body.reads,
        whole=body.whole,
        tools=tools.functions,
        choice=choice,
        parallel=body.parallel_tool_calls,
        schema=None if form is None or form.type == "text" else _OBJECT if form.schema_ is None else form.schema_,
        options=effort,
        notices=() if search is None else search.notices,
    )
    return _Asked(turn, before, new, named, tools, search)


async def _before(http_request: HttpRequest, body: ResponseBody) -> _Before:
    """Return what a body continues. Raise RequestError if that is not kept, or it names two such."""
    pool = pool_of(http_request)
    if body.conversation is not None:
        if body.previous_response_id is not None:
            raise RequestError("A response continues a conversation or a response: name one.", param="conversation")
        conversation = await asyncio.to_thread(pool.conversations.get, body.conversation)
        return _Before(list(map(Item, conversation["items"])), conversation["documents"])
    if body.previous_response_id is not None:
        kept = pool.responses.get(body.previous_response_id)
        return _Before(kept.items, kept.documents)
    return _Before([], ())


async def _input(
    http_request: HttpRequest, body: ResponseBody, before: Sequence[Item], attachments: Attachments
) -> list[Item]:
    """Return the items of an input. A reference means an item that is kept, unless that is there already."""
    items, there = [], {item["id"] for item in before}
    for stated in [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input:
        kind = stated.get("type") or ("item_reference" if set(stated) <= {"id", "type"} else "message")
        if kind != "item_reference":
            items.append(await kept_item(stated, attachments.bring))
        elif (name := str(stated.get("id"))) not in there:
            items.append(pool_of(http_request).responses.item(name))
    return items


async def _keep(http_request: HttpRequest, body: ResponseBody, asked: _Asked, response: dict[str, Any]) -> None:
    """Keep a response, and add its items to the conversation that it continues, unless it was cut off."""
    pool, output = pool_of(http_request), list(map(Item.of, response["output"]))
    if body.store:
        pool.responses.keep(KeptResponse(response, [*asked.before.items, *asked.input], output, asked.documents))
    if body.conversation is not None and response["status"] != "cancelled":

        def add(conversation: dict[str, Any]) -> None:
            conversation["items"] += [*asked.input, *output]
            conversation["documents"] = asked.documents

        await asyncio.to_thread(pool.conversations.change, body.conversation, add)


routes = [
    Route("/v1/responses", respond, methods=["POST"]),
    Route("/v1/responses/input_tokens", count, methods=["POST"]),
    Route("/v1/responses/resp_{id}", kept, methods=["GET", "DELETE"]),
    Route("/v1/responses/resp_{id}/input_items", input_items, methods=["GET"]),
]
