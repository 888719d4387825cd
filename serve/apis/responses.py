"""OpenAI's responses API. Each request has its whole conversation: the server keeps none."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..engine.request import End, Generation, Request
from ..http.api_error import RequestError
from ..http.requests import client_of, connected, openai_error, parsed, sse, while_connected
from ..http.server import server_of
from ..prompt.chat_turn import ChatTurn, Event, Finished, Text, Thought, answer, prepared
from ..prompt.tools import ToolCall
from .attachments import Attachments
from .shared_json import annotations_of, effort_of, extensions_of, logprob_as_json

#: Any JSON object, for "json_object".
_OBJECT: dict[str, Any] = {"type": "object"}

#: Kinds of the output's items.
_MESSAGE, _REASONING = "message", "reasoning"


class Tool(BaseModel):
    """A function that the model may call."""

    type: Literal["function"]
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedTool(BaseModel):
    """A function that must be called."""

    type: Literal["function"]
    name: str


class Format(BaseModel):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class TextOptions(BaseModel):
    """Options of the answer's text."""

    format: Format | None = None


class Reasoning(BaseModel):
    """How much the model thinks."""

    effort: str | None = None
    summary: str | None = None


class ResponseBody(BaseModel):
    """A client's request; other fields are ignored. The server has one model, whatever `model` names."""

    model: str
    input: str | list[dict[str, Any]] = Field(min_length=1)
    instructions: str | None = None
    document: str | list[str] | None = None
    reads: Literal["document", "excerpts"] | None = None
    attention: str | None = None
    sources: bool = False
    max_output_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, ge=0, le=1)
    top_logprobs: int = Field(0, ge=0, le=100)
    include: list[str] | None = None
    seed: int | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    reasoning: Reasoning = Field(default_factory=Reasoning)
    text: TextOptions = Field(default_factory=TextOptions)
    metadata: dict[str, Any] | None = None
    previous_response_id: str | None = None
    stream: bool = False


async def respond(http_request: HttpRequest) -> Response:
    """Answer POST /v1/responses."""
    server, body = server_of(http_request), await parsed(http_request, ResponseBody)
    if body.previous_response_id is not None:
        raise RequestError(
            "Responses are not kept: send the whole conversation as input. What was read before is not read again.",
            param="previous_response_id",
        )
    attachments = Attachments(server, body.document)
    messages = await _messages(body, attachments)
    choice, form = body.tool_choice, body.text.format
    think, effort = effort_of(body.reasoning.effort)
    turn = ChatTurn(
        messages=messages,
        generation=Generation(
            sampling=server.sampling_of(
                body.max_output_tokens, body.seed, temperature=body.temperature, top_p=body.top_p, think=think
            ),
            n_logprobs=body.top_logprobs if "message.output_text.logprobs" in (body.include or ()) else None,
            attention=server.attention_of(body.attention),
            sources=body.sources,
            limits_thoughts=body.max_output_tokens is not None,
            client=client_of(http_request),
        ),
        documents=attachments.documents,
        reads=body.reads,
        tools=[_as_tool(tool) for tool in body.tools or ()],
        choice=choice if isinstance(choice, str) else choice.name,
        parallel=body.parallel_tool_calls,
        schema=None if form is None or form.type == "text" else form.schema_ or _OBJECT,
        options=effort,
    )
    request = await while_connected(http_request, prepared(server, turn))
    writer = _Writer(body, request, server.engine.name)
    if body.stream:
        return sse(writer.lines(answer(server, turn, request)), writer.failure)
    async with aclosing(connected(http_request, answer(server, turn, request))) as events:
        async for event in events:
            for _ in writer.add(event):
                pass
    return JSONResponse(writer.response("completed"))


async def _messages(body: ResponseBody, attachments: Attachments) -> list[Mapping[str, Any]]:
    """Return the conversation in the form of chat completions."""
    messages: list[Mapping[str, Any]] = []
    if body.instructions:
        messages.append({"role": "system", "content": body.instructions})
    items = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    thought = ""  # before the message or call that comes next
    for item in items:
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") in ("user", "assistant", "system", "developer"):
            role = "system" if item["role"] == "developer" else item["role"]
            message = {"role": role, "content": await _content(item.get("content"), attachments)}
            if role == "system" and messages and messages[0]["role"] == "system":
                messages[0] = {"role": role, "content": f"{messages[0]['content']}\n\n{message['content']}"}
            else:
                messages.append(message)
        elif kind == "function_call" and isinstance(item.get("name"), str):
            function = {"name": item["name"], "arguments": str(item.get("arguments", "{}"))}
            call = {"id": str(item.get("call_id", "")), "type": "function", "function": function}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        elif kind == "function_call_output":
            output = item.get("output")
            content = output if isinstance(output, str) else json.dumps(output)
            messages.append({"role": "tool", "content": content, "tool_call_id": str(item.get("call_id", ""))})
        elif kind == "reasoning":
            thought = _thought(item)
            continue
        else:
            raise RequestError(f"An item of the input is of no known kind: {kind}.", param="input")
        if thought and messages[-1]["role"] == "assistant":
            messages[-1] = {**messages[-1], "reasoning_content": thought}
        thought = ""
    return messages


def _thought(item: Mapping[str, Any]) -> str:
    """Return the text of a thought, or else of its summary."""
    parts = item.get("content") or item.get("summary") or ()
    return "\n\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


async def _content(content: Any, attachments: Attachments) -> str:
    """Return the text of a message's content; documents in it are attached."""
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, list) else []:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "input_file" and isinstance(part.get("file_id"), str):
            attachments.name(part["file_id"])
        elif kind == "input_file" and isinstance(part.get("file_data"), str):
            await attachments.bring(part.get("filename"), part["file_data"])
        elif kind == "input_image":
            raise RequestError("octavo reads text and documents: images cannot be sent.", param="input")
        elif kind != "refusal":
            raise RequestError(f"A part of a message is of no known kind: {kind}.", param="input")
    return "\n\n".join(texts)


def _as_tool(tool: Tool) -> dict[str, Any]:
    """Return a function in the form of chat completions."""
    function = tool.model_dump(include={"name", "description", "parameters"}, exclude_none=True)
    return {"type": "function", "function": function}


class _Writer:
    """Make a response of the model's answer, and the event of each step."""

    def __init__(self, body: ResponseBody, request: Request, model: str) -> None:
        self._body, self._request, self._model = body, request, model
        self._id, self._created = f"resp_{uuid.uuid4().hex}", int(time.time())
        self._output: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None  # the current message
        self._end: End | None = None
        self._reason, self._n_events = "", 0

    async def lines(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[str, None]:
        """Yield the events of a stream."""
        for kind in ("created", "in_progress"):
            yield self._line(f"response.{kind}", response=self.response("in_progress"))
        async with aclosing(events):
            async for event in events:
                for line in self.add(event):
                    yield line
        status = "incomplete" if self._reason == "length" else "completed"
        yield self._line(f"response.{status}", response=self.response(status))

    def failure(self, problem: RequestError) -> str:
        """Return the event of an error."""
        error = openai_error(problem)["error"]
        return self._line("error", **{name: error[name] for name in ("message", "code", "param")})

    def add(self, event: Event) -> list[str]:
        """Add a part of the answer, and return its events."""
        if isinstance(event, Thought):
            return self._add_thought(event)
        if isinstance(event, Text):
            return self._add_text(event)
        if isinstance(event, ToolCall):
            return [*self._close(), *self._add_call(event)]
        self._end, self._reason = event.end, event.reason
        lines = self._begin() if self._open is None and not self._output else []
        return [*lines, *self._close(event)]

    def _add_thought(self, event: Thought) -> list[str]:
        lines = self._begin(_REASONING)
        assert self._open is not None
        self._open["content"][0]["text"] += event.text
        return [*lines, self._line("response.reasoning_text.delta", **self._place(), delta=event.text)]

    def _add_text(self, event: Text) -> list[str]:
        if not event.text and not event.logprobs:
            return []
        lines = self._begin()
        assert self._open is not None
        content = self._open["content"][0]
        content["text"] += event.text
        logprobs = [logprob_as_json(token) for token in event.logprobs]
        content["logprobs"] += logprobs
        place = self._place()
        return [*lines, self._line("response.output_text.delta", **place, delta=event.text, logprobs=logprobs)]

    def _begin(self, kind: str = _MESSAGE) -> list[str]:
        """Begin a message or a thought, unless one is open."""
        if self._open is not None and self._open["type"] == kind:
            return []
        lines = self._close()
        if kind == _MESSAGE:
            item: dict[str, Any] = {"id": f"msg_{uuid.uuid4().hex}", "status": "in_progress", "role": "assistant"}
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        else:
            item = {"id": f"rs_{uuid.uuid4().hex}", "status": "in_progress", "summary": []}
            part = {"type": "reasoning_text", "text": ""}
        self._open = {"type": kind, **item, "content": [part]}
        self._output.append(self._open)
        number = len(self._output) - 1
        added = self._line("response.output_item.added", output_index=number, item={**self._open, "content": []})
        return [*lines, added, self._line("response.content_part.added", **self._place(), part={**part})]

    def _close(self, finished: Finished | None = None) -> list[str]:
        """End the current message or thought, if there is one."""
        if self._open is None:
            return []
        item, place, part = self._open, self._place(), self._open["content"][0]
        lines = []
        if part["type"] == "reasoning_text":
            lines.append(self._line("response.reasoning_text.done", **place, text=part["text"]))
        else:
            citations = [] if finished is None else _citations(finished.end, len(part["text"]))
            for number, annotation in enumerate(citations):
                part["annotations"].append(annotation)
                kind = "response.output_text.annotation.added"
                lines.append(self._line(kind, **place, annotation_index=number, annotation=annotation))
            logprobs = part["logprobs"]
            lines.append(self._line("response.output_text.done", **place, text=part["text"], logprobs=logprobs))
        incomplete = finished is not None and finished.reason == "length"
        item["status"] = "incomplete" if incomplete else "completed"
        self._open = None
        return [
            *lines,
            self._line("response.content_part.done", **place, part=part),
            self._line("response.output_item.done", output_index=place["output_index"], item=item),
        ]

    def _add_call(self, call: ToolCall) -> list[str]:
        item = {"type": "function_call", "id": f"fc_{uuid.uuid4().hex}", "call_id": call.id, "name": call.name}
        done = {**item, "arguments": call.arguments, "status": "completed"}
        self._output.append(done)
        number = len(self._output) - 1
        begun = {**item, "arguments": "", "status": "in_progress"}
        place = {"item_id": item["id"], "output_index": number}
        return [
            self._line("response.output_item.added", output_index=number, item=begun),
            self._line("response.function_call_arguments.delta", **place, delta=call.arguments),
            self._line("response.function_call_arguments.done", **place, name=call.name, arguments=call.arguments),
            self._line("response.output_item.done", output_index=number, item=done),
        ]

    def _place(self) -> dict[str, Any]:
        """Return the place of the current text."""
        assert self._open is not None
        return {"item_id": self._open["id"], "output_index": len(self._output) - 1, "content_index": 0}

    def _line(self, kind: str, **values: Any) -> str:
        """Return an event as a line."""
        event = {"type": kind, "sequence_number": self._n_events, **values}
        self._n_events += 1
        return f"event: {kind}\ndata: {json.dumps(event)}"

    def response(self, status: str) -> dict[str, Any]:
        """Return the response so far."""
        body, end = self._body, self._end
        incomplete = self._reason == "length"
        response: dict[str, Any] = {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": int(time.time()) if end else None,
            "status": "incomplete" if incomplete else status,
            "incomplete_details": {"reason": "max_output_tokens"} if incomplete else None,
            "model": self._model,
            "output": self._output,
            "error": None,
            "usage": None,
            "instructions": body.instructions,
            "tools": [
                {"description": None, "parameters": None, "strict": None, **_dump(tool)} for tool in body.tools or ()
            ],
            "tool_choice": _dump(body.tool_choice),
            "parallel_tool_calls": body.parallel_tool_calls,
            "text": {"format": _dump(body.text.format) or {"type": "text"}},
            "temperature": self._request.sampling.temperature,
            "top_p": self._request.sampling.top_p,
            "top_logprobs": body.top_logprobs,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "reasoning": {"effort": body.reasoning.effort, "summary": None},
            **_NOT_KEPT,
        }
        if end is not None:
            usage = end.usage
            response["usage"] = {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens},
                "output_tokens": usage.answer_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.thought_tokens},
                "total_tokens": usage.prompt_tokens + usage.answer_tokens,
            }
            response |= extensions_of(self._request, end)
        return response


#: Fields of a response for settings that octavo lacks.
_NOT_KEPT: dict[str, Any] = {
    "previous_response_id": None,
    "truncation": "disabled",
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "max_tool_calls": None,
    "store": False,
    "background": False,
    "service_tier": "default",
    "safety_identifier": None,
    "prompt_cache_key": None,
}


def _dump(value: Any) -> Any:
    return value.model_dump(by_alias=True, exclude_none=True) if isinstance(value, BaseModel) else value


def _citations(end: End, index: int) -> list[dict[str, Any]]:
    """Return the sources of an answer, which refer to the end of its text."""
    return [{"type": source["type"], "index": index, **source["file_citation"]} for source in annotations_of(end)]


routes = [Route("/v1/responses", respond, methods=["POST"])]
