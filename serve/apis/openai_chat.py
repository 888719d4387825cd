"""OpenAI's chat completions API."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...prompts.tools import ToolCall
from ..chat_turn import AnswerStart, ChatTurn, Step, answer, gathered, prepared, start_answer, steps_of
from ..engine.request import AnswerPart, End, Request
from ..http.requests import client_of, connected, note_ignored, parsed, sse, while_connected
from ..request_error import RequestError
from ..services import Server, server_of
from .api_body import ApiObject, AskingBody, Limit, LogitBias, Stop, StreamOptions, ToolChoice, bias_of
from .attachments import Attachments
from .shared_json import (
    annotations_of,
    document_as_json,
    effort_of,
    extensions_of,
    logprob_as_json,
    new_annotations_of,
    step_as_json,
    usage_of,
)
from .tool_forms import Tools, tools_of

#: Any JSON object, for "json_object".
_OBJECT: dict[str, Any] = {"type": "object"}


class FunctionCall(ApiObject):
    """A function and its arguments, in JSON."""

    name: str
    arguments: str


class Call(ApiObject):
    """A call in an earlier message of the model."""

    id: str = ""
    type: Literal["function"] = "function"
    function: FunctionCall

    def as_json(self) -> dict[str, Any]:
        """Return its known fields."""
        function = {"name": self.function.name, "arguments": self.function.arguments}
        return {"id": self.id, "type": self.type, "function": function}


class Message(ApiObject):
    """A message; its content is text, or a list of parts."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class JsonSchema(ApiObject):
    """The schema of an answer."""

    name: str = ""
    schema_: dict[str, Any] | bool = Field(default_factory=dict, alias="schema")


class ResponseFormat(ApiObject):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema_: dict[str, Any] | bool | None = Field(None, alias="schema")


class TextPart(ApiObject):
    """A part of a prediction."""

    type: Literal["text"] = "text"
    text: str


class Prediction(ApiObject):
    """A text that the answer may resemble."""

    type: Literal["content"] = "content"
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        """Return the whole text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatBody(AskingBody):
    """A client's request."""

    messages: Annotated[list[Message], Field(min_length=1)]
    prediction: Prediction | None = None
    max_tokens: Limit = None
    max_completion_tokens: Limit = None
    logit_bias: LogitBias = None
    logprobs: bool | Annotated[int, Field(ge=0, le=100)] = False
    top_logprobs: int = Field(0, ge=0, le=100)
    stop: Stop = None
    n: int = Field(1, ge=1, le=8)
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice = ("auto", None)
    parallel_tool_calls: bool = True
    response_format: ResponseFormat | None = None
    json_schema: dict[str, Any] | bool | None = None
    grammar: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    reasoning_budget_tokens: int | None = Field(None, ge=0)
    stream_options: StreamOptions | None = None


async def complete(http_request: HttpRequest) -> Response:
    """Answer POST /v1/chat/completions."""
    server, body = server_of(http_request), await parsed(http_request, ChatBody)
    tools = tools_of(body.tools, body.tool_choice[1])
    turn = await while_connected(http_request, turn_of(server, body, tools, client_of(http_request)))
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": server.engine.name}
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    if body.stream:
        first = await while_connected(http_request, start_answer(server, turn))
        note_ignored(http_request, [*tools.left_out, *first.ignored])
        return sse(_prepared_stream(server, turn, body.n, first, head, with_usage))
    request = await while_connected(http_request, prepared(server, turn))
    note_ignored(http_request, [*tools.left_out, *request.ignored])
    head |= _document_of(request)
    choices, ends = [], []
    for index in range(body.n):
        choice, end = await _choice(http_request, server, turn, request.numbered(index))
        choices.append({"index": index, **choice})
        ends.append(end)
    totals = {"usage": usage_of(ends), **extensions_of(request, *ends)}
    return JSONResponse({**head, "object": "chat.completion", "choices": choices, **totals})


async def count(http_request: HttpRequest) -> Response:
    """Answer POST /v1/chat/completions/input_tokens."""
    server, body = server_of(http_request), await parsed(http_request, ChatBody)
    tools = tools_of(body.tools, body.tool_choice[1])
    turn = await while_connected(http_request, turn_of(server, body, tools, client_of(http_request)))
    request = await while_connected(http_request, prepared(server, turn, checked=False))
    return JSONResponse({"input_tokens": request.n_prompt})


async def turn_of(server: Server, body: ChatBody, tools: Tools, client: str) -> ChatTurn:
    attachments = Attachments(server, body.documents)
    messages = [await _message(message, attachments) for message in body.messages]
    max_tokens = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    n_logprobs = body.top_logprobs if body.logprobs is True else int(body.logprobs) or None
    bias, (think, effort) = bias_of(body.logit_bias, server.tokens_of), effort_of(body.reasoning_effort)
    generation = body.generation(
        server,
        max_tokens,
        body.asked(server, client, body.stop, n_logprobs, bias),
        think=think,
        think_budget=body.reasoning_budget_tokens,
    )
    if body.prediction is not None:
        generation = replace(generation, prediction=server.tokens_of(body.prediction.text))
    return ChatTurn(
        messages=messages,
        generation=generation,
        documents=attachments.documents,
        reads=body.reads,
        whole=body.whole,
        tools=tools.functions,
        choice=body.tool_choice[0],
        parallel=body.parallel_tool_calls,
        schema=body.json_schema if body.json_schema is not None else _schema(body.response_format),
        grammar=body.grammar,
        options=effort | (body.chat_template_kwargs or {}),
    )


async def _message(message: Message, attachments: Attachments) -> Mapping[str, Any]:
    """Return a message with its content as text; documents among its parts are attached."""
    content = message.content or ""
    if not isinstance(content, str):
        texts = [await _part(part, attachments) for part in content]
        content = "\n\n".join(text for text in texts if text)
    role = "system" if message.role == "developer" else message.role
    calls = [call.as_json() for call in message.tool_calls or ()]
    formatted: dict[str, Any] = {"role": role, "content": content}
    formatted |= {"tool_calls": calls} if calls else {}
    others = ("reasoning_content", "tool_call_id", "name")
    return formatted | {name: value for name in others if (value := getattr(message, name))}


async def _part(part: Mapping[str, Any], attachments: Attachments) -> str:
    kind = part.get("type")
    if kind in ("text", "refusal") and isinstance(text := part.get("text", part.get("refusal")), str):
        return text
    file = part.get("file")
    if kind == "file" and isinstance(file, dict):
        if isinstance(reference := file.get("file_id"), str):
            attachments.name(reference)
            return ""
        if isinstance(data := file.get("file_data"), str):
            await attachments.bring(file.get("filename"), data)
            return ""
    if kind in ("image_url", "input_audio"):
        raise RequestError("octavo reads text and documents: images and sounds cannot be sent.", param="messages")
    raise RequestError(f"A part of a message is of no known kind: {kind}.", param="messages")


def _schema(form: ResponseFormat | None) -> dict[str, Any] | bool | None:
    if form is None or form.type == "text":
        return None
    if form.json_schema is not None and form.type == "json_schema":
        return form.json_schema.schema_
    return _OBJECT if form.schema_ is None else form.schema_


async def _choice(
    http_request: HttpRequest, server: Server, turn: ChatTurn, request: Request
) -> tuple[dict[str, Any], End]:
    whole = await gathered(connected(http_request, answer(server, turn, request)))
    end, content = whole.finished.end, whole.text if whole.text or not whole.calls else None
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if whole.thought:
        message["reasoning_content"] = whole.thought
    message["annotations"] = annotations_of(end)
    if whole.calls:
        message["tool_calls"] = list(map(_call_as_json, whole.calls))
    logprobs = None
    if request.generation.n_logprobs is not None:
        logprobs = {"content": list(map(logprob_as_json, whole.logprobs)), "refusal": None}
    return {"message": message, "logprobs": logprobs, "finish_reason": whole.finished.reason}, end


def _document_of(request: Request) -> dict[str, Any]:
    """Return the field `document` of an answer, if it has one."""
    return {} if request.context is None else {"document": document_as_json(request.context)}


async def _prepared_stream(
    server: Server,
    turn: ChatTurn,
    n: int,
    first: AnswerStart,
    head: dict[str, Any],
    with_usage: bool,
) -> AsyncGenerator[str, None]:
    """Yield chunks with the progress of passages and parts, if it is asked for, and then the chunks of all answers."""
    step: Step | None = None
    async with aclosing(steps_of(turn, first)) as steps:
        async for step in steps:
            if not isinstance(step, Request):
                choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}
                chunk = {**head, "object": "chat.completion.chunk", "choices": [choice], **step_as_json(step)}
                yield json.dumps(chunk)
    assert isinstance(step, Request)
    requests = [step.numbered(number) for number in range(n)]
    async with aclosing(_stream(server, turn, requests, head | _document_of(step), with_usage)) as chunks:
        async for line in chunks:
            yield line


async def _stream(
    server: Server, turn: ChatTurn, requests: Sequence[Request], head: dict[str, Any], with_usage: bool
) -> AsyncGenerator[str, None]:
    ends = []
    head = {**head, "object": "chat.completion.chunk"}

    def chunk(index: int, delta: dict[str, Any], reason: str | None = None, logprobs: Any = None, **more: Any) -> str:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return json.dumps({**head, "choices": [choice], **more})

    for index, request in enumerate(requests):
        n_calls = 0
        yield chunk(index, {"role": "assistant", "content": ""})
        async with aclosing(answer(server, turn, request)) as events:
            async for event in events:
                if isinstance(event, AnswerPart) and event.progress is not None:
                    yield chunk(index, {}, **step_as_json(event.progress))
                elif isinstance(event, AnswerPart) and event.is_thought:
                    yield chunk(index, {"reasoning_content": event.text})
                elif isinstance(event, AnswerPart):
                    logprobs = [logprob_as_json(token) for token in event.logprobs]
                    found: dict[str, Any] = {"new_annotations": new_annotations_of(event)} if event.sources else {}
                    written = {"content": logprobs} if logprobs else None
                    yield chunk(index, {"content": event.text}, logprobs=written, **found)
                elif isinstance(event, ToolCall):
                    yield chunk(index, {"tool_calls": [{"index": n_calls, **_call_as_json(event)}]})
                    n_calls += 1
                else:
                    if request.generation.sources:
                        yield chunk(index, {"annotations": annotations_of(event.end)})
                    ends.append(event.end)
                    more = {} if with_usage else extensions_of(request, event.end)
                    yield chunk(index, {}, event.reason, **more)
    if with_usage:
        totals = {"usage": usage_of(ends), **extensions_of(requests[-1], *ends)}
        yield json.dumps({**head, "choices": [], **totals})
    yield "[DONE]"


def _call_as_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


routes = [
    Route("/v1/chat/completions", complete, methods=["POST"]),
    Route("/v1/chat/completions/input_tokens", count, methods=["POST"]),
]
