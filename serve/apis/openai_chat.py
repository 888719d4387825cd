"""OpenAI's chat completions."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..engine.request import End, Generation, Request, TokenLogprob, Usage
from ..http.api_error import RequestError
from ..http.handlers import Server, server_of
from ..http.requests import client_of, connected, parsed, sse
from ..library.open_document import Opened, OpenExcerpts
from ..prompt.chat_turn import Ask, Finished, Text, answer, prepared
from ..prompt.tools import ToolCall
from .attachments import Attachments

#: Any JSON object, for "json_object".
_OBJECT: dict[str, Any] = {"type": "object"}


class FunctionCall(BaseModel):
    """A function and its arguments, in JSON."""

    name: str
    arguments: str


class Call(BaseModel):
    """A call that the model made before."""

    id: str = ""
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(BaseModel):
    """A message; its content is text, or a list of parts."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class Function(BaseModel):
    """A function that the model may call."""

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(BaseModel):
    """A tool: functions are the only kind."""

    type: Literal["function"] = "function"
    function: Function


class NamedFunction(BaseModel):
    """The name of a function."""

    name: str


class NamedTool(BaseModel):
    """A function that must be called."""

    type: Literal["function"] = "function"
    function: NamedFunction


class JsonSchema(BaseModel):
    """The schema of an answer."""

    name: str = ""
    schema_: dict[str, Any] = Field(default_factory=dict, alias="schema")


class ResponseFormat(BaseModel):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StreamOptions(BaseModel):
    """What a stream tells besides the answer."""

    include_usage: bool = False


class ChatBody(BaseModel):
    """What a client asks; fields that are not named here are ignored. Whatever `model` says, there is one model."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    document: str | list[str] | None = None
    reads: Literal["document", "excerpts"] = "document"
    attention: str | None = None
    sources: bool = False
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0)
    min_p: float | None = Field(None, ge=0, le=1)
    repeat_penalty: float | None = Field(None, gt=0)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    logit_bias: dict[int, float] | None = None
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=100)
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int = Field(1, ge=1, le=8)
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool = True
    response_format: ResponseFormat | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None


async def complete(http_request: HttpRequest) -> Response:
    """Answer POST /v1/chat/completions."""
    server, body = server_of(http_request), await parsed(http_request, ChatBody)
    ask = await _ask(server, body, client_of(http_request))
    request = await prepared(server, ask)
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": server.engine.name}
    if request.document is not None:
        head["document"] = _document_as_json(request.document)
    requests = [_numbered(request, number) for number in range(body.n)]
    if body.stream:
        with_usage = bool(body.stream_options and body.stream_options.include_usage)
        return sse(_stream(server, ask, requests, head, with_usage))
    choices, ends = [], []
    for index, each in enumerate(requests):
        choice, end = await _choice(http_request, server, ask, each)
        choices.append({"index": index, **choice})
        ends.append(end)
    totals = {"usage": usage_of(ends), "timings": timings_of(ends[-1].usage)}
    return JSONResponse({**head, "object": "chat.completion", "choices": choices, **totals})


async def _ask(server: Server, body: ChatBody, client: str) -> Ask:
    """Return what a body asks."""
    attachments = Attachments(server, body.document)
    messages = [await _message(each, attachments) for each in body.messages]
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    generation = Generation(
        sampling=server.sampling_of(
            body.max_completion_tokens or body.max_tokens,
            body.seed,
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            min_p=body.min_p,
            repeat_penalty=body.repeat_penalty,
        ),
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        logit_bias=body.logit_bias or {},
        stop=stop,
        n_logprobs=body.top_logprobs if body.logprobs else None,
        attention=body.attention,
        sources=body.sources,
        client=client,
    )
    choice = body.tool_choice or "auto"
    return Ask(
        messages=messages,
        generation=generation,
        documents=attachments.documents,
        reads=body.reads,
        tools=[tool.model_dump(exclude_none=True) for tool in body.tools or ()],
        choice=choice if isinstance(choice, str) else choice.function.name,
        parallel=body.parallel_tool_calls,
        schema=_schema(body.response_format),
        options=body.chat_template_kwargs or {},
    )


async def _message(message: Message, attachments: Attachments) -> Mapping[str, Any]:
    """Return a message with its content as text; documents among its parts are attached."""
    content = message.content or ""
    if not isinstance(content, str):
        texts = [await _part(part, attachments) for part in content]
        content = "\n\n".join(text for text in texts if text)
    role = "system" if message.role == "developer" else message.role
    calls = [call.model_dump() for call in message.tool_calls or ()]
    known: dict[str, Any] = {"role": role, "content": content}
    known |= {"tool_calls": calls} if calls else {}
    return known | {name: value for name in ("tool_call_id", "name") if (value := getattr(message, name))}


async def _part(part: Mapping[str, Any], attachments: Attachments) -> str:
    """Return the text of a part of a message."""
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


def _schema(form: ResponseFormat | None) -> dict[str, Any] | None:
    """Return the JSON schema of an answer's form."""
    if form is None or form.type == "text":
        return None
    return form.json_schema.schema_ if form.type == "json_schema" and form.json_schema else _OBJECT


def _numbered(request: Request, number: int) -> Request:
    """Return the request for one of several answers: each is drawn with another seed."""
    sampling = request.sampling
    if not number or sampling.seed is None:
        return request
    return replace(request, sampling=replace(sampling, seed=(sampling.seed + number) % (2**32 - 1)))


async def _choice(http_request: HttpRequest, server: Server, ask: Ask, request: Request) -> tuple[dict[str, Any], End]:
    """Return an answer as a whole, and its end."""
    text, calls, logprobs = "", list[dict[str, Any]](), list[dict[str, Any]]()
    finished: Finished | None = None
    async with aclosing(connected(http_request, answer(server, ask, request))) as events:
        async for event in events:
            if isinstance(event, Text):
                text += event.text
                logprobs += map(logprob_as_json, event.logprobs)
            elif isinstance(event, ToolCall):
                calls.append(_call_as_json(event))
            else:
                finished = event
    assert finished is not None
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
    message["annotations"] = annotations_of(finished.end)
    if calls:
        message["tool_calls"] = calls
    told = {"content": logprobs, "refusal": None} if request.n_logprobs is not None else None
    return {"message": message, "logprobs": told, "finish_reason": finished.reason}, finished.end


async def _stream(
    server: Server, ask: Ask, requests: Sequence[Request], head: dict[str, Any], with_usage: bool
) -> AsyncGenerator[str, None]:
    """Yield the chunks of all answers, one answer after another."""
    ends = []
    head = {**head, "object": "chat.completion.chunk"}

    def chunk(index: int, delta: dict[str, Any], reason: str | None = None, logprobs: Any = None, **more: Any) -> str:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return json.dumps({**head, "choices": [choice], **more})

    for index, request in enumerate(requests):
        n_calls = 0
        yield chunk(index, {"role": "assistant", "content": ""})
        async with aclosing(answer(server, ask, request)) as events:
            async for event in events:
                if isinstance(event, Text):
                    told = {"content": [logprob_as_json(each) for each in event.logprobs]} if event.logprobs else None
                    yield chunk(index, {"content": event.text}, logprobs=told)
                elif isinstance(event, ToolCall):
                    yield chunk(index, {"tool_calls": [{"index": n_calls, **_call_as_json(event)}]})
                    n_calls += 1
                else:
                    if request.sources:
                        yield chunk(index, {"annotations": annotations_of(event.end)})
                    ends.append(event.end)
                    more = {} if with_usage else {"timings": timings_of(event.end.usage)}
                    yield chunk(index, {}, event.reason, **more)
    if with_usage:
        totals = {"usage": usage_of(ends), "timings": timings_of(ends[-1].usage)}
        yield json.dumps({**head, "choices": [], **totals})
    yield "[DONE]"


def _call_as_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def logprob_as_json(known: TokenLogprob) -> dict[str, Any]:
    """Return a token's log probability in OpenAI's form."""

    def one(text: bytes, value: float | None) -> dict[str, Any]:
        return {"token": text.decode(errors="replace"), "logprob": value, "bytes": list(text)}

    return {**one(known.text, known.logprob), "top_logprobs": [one(text, value) for _, text, value in known.top]}


def _document_as_json(opened: Opened) -> Any:
    """Return what an answer is given from: a document, or those that excerpts are of, the likeliest first."""
    known = [{"file_id": document.id, "filename": document.name} for document in opened.documents]
    return known if isinstance(opened, OpenExcerpts) else known[0]


def annotations_of(end: End) -> list[dict[str, Any]]:
    """Return the sources of an answer as annotations."""
    return [
        {
            "type": "file_citation",
            "file_citation": {"file_id": document.id, "filename": document.name, **passage.as_json()},
        }
        for document, passage in end.sources
    ]


def usage_of(ends: Sequence[End]) -> dict[str, Any]:
    """Return what answers to the same prompt took."""
    first, n_answer = ends[0].usage, sum(end.usage.answer_tokens for end in ends)
    return {
        "prompt_tokens": first.prompt_tokens,
        "completion_tokens": n_answer,
        "total_tokens": first.prompt_tokens + n_answer,
        "prompt_tokens_details": {"cached_tokens": first.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def timings_of(usage: Usage) -> dict[str, Any]:
    """Return what llama.cpp's server tells of an answer's time, and how much of the keys and values was read."""
    n_read, n_steps = usage.prompt_tokens - usage.cached_tokens, max(usage.answer_tokens - 1, 0)
    return {
        "prompt_n": n_read,
        "prompt_ms": round(1000 * usage.prompt_s, 2),
        "prompt_per_second": round(n_read / usage.prompt_s, 2) if usage.prompt_s else None,
        "predicted_n": usage.answer_tokens,
        "predicted_ms": round(1000 * usage.answer_s, 2),
        "predicted_per_second": round(n_steps / usage.answer_s, 2) if usage.answer_s else None,
        "cache_n": usage.cached_tokens,
        "waited_ms": round(1000 * usage.waited_s, 2),
        "attention": usage.attention,
        "kv_share": round(usage.kv_share, 4),
    }


routes = [Route("/v1/chat/completions", complete, methods=["POST"])]
