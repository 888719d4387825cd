"""Ollama's API: answers to conversations and to prompts."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Protocol

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...ask.context.whole.finding import PartsAnswered
from ...prompts.tools import ToolCall
from ..chat_turn import (
    AnswerStart,
    ChatTurn,
    Event,
    Finished,
    Step,
    answer,
    gathered,
    prepared,
    start_answer,
    start_with,
    steps_and_answer,
)
from ..engine.request import AnswerPart, PromptProgress, Request
from ..http.requests import client_of, connected, ndjson, note_ignored, parsed, while_connected
from ..raw_prompt import Gap, gap_tokens, raw_request
from ..request_error import RequestError
from ..services import Server, server_of
from .ollama_body import (
    GenerateBody,
    OllamaBody,
    OllamaChatBody,
    ollama_error,
    ollama_name,
    openai_messages,
    refuse_images,
)
from .shared_json import annotations_of, document_as_json, extensions_of, logprob_as_json, step_as_json
from .tool_forms import tools_of

#: Nanoseconds of a second.
_NS = 1_000_000_000


class _Form(Protocol):
    """Returns the field of an answer, or of a part of it."""

    def __call__(self, text: str = "", thought: str = "", calls: Sequence[dict[str, Any]] = ()) -> dict[str, Any]: ...


async def chat(http_request: HttpRequest) -> Response:
    """Answer POST /api/chat."""
    server, body = server_of(http_request), await parsed(http_request, OllamaChatBody)
    if not body.messages:
        return JSONResponse({**_part(server, _message()), "done_reason": "load", "done": True})
    tools = tools_of(body.tools)
    note_ignored(http_request, tools.left_out)
    turn = _turn(server, body, openai_messages(body.messages), client_of(http_request), tools.functions)
    return await _response(http_request, body, turn, _start(server, body, turn), _message)


async def generate(http_request: HttpRequest) -> Response:
    """Answer POST /api/generate."""
    server, body = server_of(http_request), await parsed(http_request, GenerateBody)
    if not body.prompt and not body.suffix:
        return JSONResponse({**_part(server, _plain()), "done_reason": "load", "done": True})
    refuse_images(body.images)
    if body.template:
        raise RequestError("octavo uses the model's own template: send a whole prompt with `raw`.", param="template")
    messages = [{"role": "system", "content": body.system}] if body.system else []
    messages.append({"role": "user", "content": body.prompt})
    turn = _turn(server, body, messages, client_of(http_request))
    is_bare = body.raw or body.suffix
    work = start_with(_without_template(server, body, turn)) if is_bare else _start(server, body, turn)
    return await _response(http_request, body, turn, work, _plain)


def _start(server: Server, body: OllamaBody, turn: ChatTurn) -> Coroutine[Any, Any, AnswerStart]:
    return start_answer(server, turn) if body.stream else start_with(prepared(server, turn))


def _turn(
    server: Server,
    body: OllamaBody,
    messages: Sequence[Mapping[str, Any]],
    client: str,
    tools: Sequence[dict[str, Any]] = (),
) -> ChatTurn:
    think, options = body.thinking(server)
    return ChatTurn(
        messages=messages,
        generation=body.generation(server, think, client),
        documents=body.documents,
        reads=body.reads,
        whole=body.whole,
        tools=tools,
        schema=body.schema_of_answer,
        options=options,
    )


async def _without_template(server: Server, body: GenerateBody, turn: ChatTurn) -> Request:
    """Return the request that continues a prompt as it is, or fills the gap after it."""
    for name in ("system", "think"):
        if getattr(body, name):
            raise RequestError(f"`{name}` is for the chat template: leave `raw` and `suffix` out.", param=name)
    prompt: str | list[int] = body.prompt
    if body.suffix:
        prompt = await gap_tokens(server, Gap(body.prompt, body.suffix), begins=not turn.documents)
    request = await raw_request(server, turn, prompt)
    server.engine.check(request)
    return request


async def _response(
    http_request: HttpRequest, body: OllamaBody, turn: ChatTurn, work: Coroutine[Any, Any, AnswerStart], form: _Form
) -> Response:
    """Return the response with an answer, in parts or as a whole."""
    server, first = server_of(http_request), await while_connected(http_request, work)
    started, request = time.perf_counter(), first.step
    note_ignored(http_request, first.ignored)
    if body.stream:
        lines = _lines(server, steps_and_answer(server, turn, first), form, started)
        return ndjson(lines, lambda problem: json.dumps(ollama_error(problem)), json.dumps(_part(server, form())))
    assert isinstance(request, Request)
    whole = await gathered(connected(http_request, answer(server, turn, request)))
    calls = [_call_as_json(number, call) for number, call in enumerate(whole.calls)]
    part = _part(server, form(whole.text, whole.thought, calls), list(map(logprob_as_json, whole.logprobs)))
    return JSONResponse({**part, **_end(request, whole.finished, started)})


async def _lines(
    server: Server, parts: AsyncGenerator[Step | Event, None], form: _Form, started: float
) -> AsyncGenerator[str, None]:
    """Yield an object for each part; those that report progress have no text, as clients add up texts."""
    n_calls, request = 0, None
    async with aclosing(parts):
        async for event in parts:
            if isinstance(event, Request):
                request = event
            elif isinstance(event, PromptProgress | PartsAnswered):
                yield json.dumps({**_part(server, form()), **step_as_json(event)})
            elif isinstance(event, AnswerPart) and event.progress is not None:
                yield json.dumps({**_part(server, form()), **step_as_json(event.progress)})
            elif isinstance(event, AnswerPart):
                fields = form(thought=event.text) if event.is_thought else form(event.text)
                yield json.dumps(_part(server, fields, list(map(logprob_as_json, event.logprobs))))
            elif isinstance(event, ToolCall):
                yield json.dumps(_part(server, form(calls=[_call_as_json(n_calls, event)])))
                n_calls += 1
            elif request is not None:
                yield json.dumps({**_part(server, form()), **_end(request, event, started)})


def _part(server: Server, fields: dict[str, Any], logprobs: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return a part of an answer, which is not the last one."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    part = {"model": ollama_name(server), "created_at": now, **fields, "done": False}
    return part | ({"logprobs": logprobs} if logprobs else {})


def _end(request: Request, finished: Finished, started: float) -> dict[str, Any]:
    """Return the fields that only the last part of an answer has; times are in nanoseconds."""
    usage = finished.end.usage
    return {
        "done": True,
        "done_reason": "length" if finished.reason == "length" else "stop",
        "total_duration": int((time.perf_counter() - started) * _NS),
        "load_duration": 0,
        "prompt_eval_count": usage.prompt_tokens,
        "prompt_eval_duration": int(usage.prompt_s * _NS),
        "eval_count": usage.answer_tokens,
        "eval_duration": int(usage.answer_s * _NS),
        **({"document": document_as_json(request.context)} if request.context else {}),
        **({"annotations": annotations_of(finished.end)} if request.generation.sources else {}),
        **extensions_of(request, finished.end),
    }


def _message(text: str = "", thought: str = "", calls: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return the field of an answer to a conversation: a `_Form`."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    message |= {"thinking": thought} if thought else {}
    message |= {"tool_calls": calls} if calls else {}
    return {"message": message}


def _plain(text: str = "", thought: str = "", calls: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return the fields of an answer to a prompt, which has no calls: a `_Form`."""
    return {"response": text, **({"thinking": thought} if thought else {})}


def _call_as_json(number: int, call: ToolCall) -> dict[str, Any]:
    function = {"index": number, "name": call.name, "arguments": json.loads(call.arguments)}
    return {"id": call.id, "function": function}


routes = [Route("/api/chat", chat, methods=["POST"]), Route("/api/generate", generate, methods=["POST"])]
