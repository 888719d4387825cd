"""Anthropic's messages API."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...ask.context.whole.finding import PartsAnswered
from ...ask.sources.find_sources import Passage
from ...library.source_text import SourceText
from ...prompts.tools import ToolCall
from ..chat_turn import ChatTurn, Event, Finished, Step, prepared, start_answer, start_with, steps_and_answer
from ..engine.prompt_limits import PromptTooLong
from ..engine.request import AnswerPart, PromptProgress, Request, Usage
from ..http.requests import client_of, connected, note_ignored, parsed, sse, while_connected
from ..library.served_document import placed
from ..request_error import RequestError
from ..services import Server, server_of
from .api_body import ApiObject, AskingBody, objects_in
from .attachments import NO_URL, Attachments
from .shared_json import effort_of, extensions_of, step_as_json
from .tool_forms import Tools, tools_of

#: The beginning of a text that Claude Code sends before its instructions, and that is another in each request: with it,
#: no request could reuse the prefill of the one before.
_BILLING = "x-anthropic-billing-header"

#: Anthropic's names of reasons and of errors.
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_ERRORS = {413: "request_too_large", 503: "overloaded_error", 504: "timeout_error"}


class Message(ApiObject):
    """A message; its content is text, or a list of blocks."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class ToolChoice(ApiObject):
    """Whether the model must call a function."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Thinking(ApiObject):
    """Whether the model thinks, and for how many tokens at most."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(None, ge=0)


class Format(ApiObject):
    """The form of an answer."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] | bool = Field(alias="schema")


class OutputConfig(ApiObject):
    """The form of an answer, and how much the model thinks."""

    format: Format | None = None
    effort: str | None = None


class MessagesBody(AskingBody):
    """A client's request."""

    messages: list[Message] = Field(min_length=1)
    system: str | list[dict[str, Any]] | None = None
    stop_sequences: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig = Field(default_factory=lambda: OutputConfig())
    output_format: Format | None = None


class CreateBody(MessagesBody):
    """A body that asks for an answer."""

    max_tokens: int = Field(ge=1)


async def create(http_request: HttpRequest) -> Response:
    """Answer POST /v1/messages."""
    server, body = server_of(http_request), await parsed(http_request, CreateBody)
    tools = tools_of(body.tools)
    attachments = Attachments(server, body.documents)
    coming = _turn(server, body, tools, client_of(http_request), attachments, body.max_tokens)
    turn = await while_connected(http_request, coming)
    first = await while_connected(
        http_request, start_answer(server, turn) if body.stream else start_with(prepared(server, turn))
    )
    note_ignored(http_request, [*tools.left_out, *first.ignored])
    numbers = await attachments.numbers() if turn.generation.sources else {}
    writer = _Writer(server.engine.name, body.stop_sequences or (), numbers, attachments.titles)
    coming_parts = steps_and_answer(server, turn, first)
    if body.stream:
        return sse(writer.lines(coming_parts), writer.failure)
    async with aclosing(connected(http_request, coming_parts)) as parts:
        async for part in parts:
            writer.add(part)
    return JSONResponse(writer.message())


async def count(http_request: HttpRequest) -> Response:
    """Answer POST /v1/messages/count_tokens."""
    server, body = server_of(http_request), await parsed(http_request, MessagesBody)
    attachments = Attachments(server, body.documents)
    coming = _turn(server, body, tools_of(body.tools), client_of(http_request), attachments)
    turn = await while_connected(http_request, coming)
    request = await while_connected(http_request, prepared(server, turn, checked=False))
    return JSONResponse({"input_tokens": request.n_prompt})


async def _turn(
    server: Server,
    body: MessagesBody,
    tools: Tools,
    client: str,
    attachments: Attachments,
    max_tokens: int | None = None,
) -> ChatTurn:
    messages: list[Mapping[str, Any]] = []
    if body.system:
        texts = [body.system] if isinstance(body.system, str) else _texts(body.system)
        system = "\n\n".join(text for text in texts if not text.startswith(_BILLING))
        messages += [{"role": "system", "content": system}] if system else []
    for message in body.messages:
        messages += await _messages(message, attachments)
    choice, form = body.tool_choice or ToolChoice(type="auto"), body.output_config.format or body.output_format
    named = {"auto": "auto", "none": "none", "any": "required", "tool": choice.name or ""}
    thinks = body.thinking
    generation = body.generation(
        server,
        max_tokens,
        body.asked(server, client, body.stop_sequences, cites=_cites(body.messages)),
        think=None if thinks is None or thinks.type == "adaptive" else thinks.type == "enabled",
        think_budget=None if thinks is None else thinks.budget_tokens,
    )
    return ChatTurn(
        messages=messages,
        generation=generation,
        documents=attachments.documents,
        reads=body.reads,
        whole=body.whole,
        tools=tools.functions,
        choice=named[choice.type],
        parallel=not choice.disable_parallel_tool_use,
        schema=None if form is None else form.schema_,
        options=effort_of(body.output_config.effort)[1],
    )


def _cites(messages: Sequence[Message]) -> bool:
    """Return whether a document in messages asks for citations."""
    blocks = [block for message in messages for block in objects_in(message.content)]
    asked = [block.get("citations") for block in blocks if block.get("type") == "document"]
    return any(isinstance(citations, dict) and citations.get("enabled") for citations in asked)


async def _messages(message: Message, attachments: Attachments) -> list[Mapping[str, Any]]:
    """Return a message in the form of chat completions, which has messages for the results of calls."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    results: list[Mapping[str, Any]] = []
    texts, thoughts, calls = list[str](), [], []
    for before, block in pairwise([{}, *message.content]):
        kind = block.get("type")
        if message.role == "assistant" and kind == before.get("type") == "text":  # sentences of one answer
            texts[-1] += str(block.get("text", ""))
        elif kind == "text":
            texts.append(str(block.get("text", "")))
        elif kind == "thinking":
            thoughts.append(str(block.get("thinking", "")))
        elif kind == "document" and isinstance(block.get("source"), dict):
            await _attach(block, attachments)
        elif kind == "tool_use":
            function = {"name": str(block.get("name")), "arguments": json.dumps(block.get("input", {}))}
            calls.append({"id": str(block.get("id")), "type": "function", "function": function})
        elif kind == "tool_result":
            text = _result(block.get("content") or "")
            results.append({"role": "tool", "content": text, "tool_call_id": str(block.get("tool_use_id"))})
        elif kind == "search_result":
            texts.append(_search_result(block))
        elif kind == "image":
            raise RequestError("octavo reads text and documents: images cannot be sent.", param="messages")
        elif kind != "redacted_thinking":
            raise RequestError(f"A block of a message is of no known kind: {kind}.", param="messages")
    if results and not (texts or calls):
        return results
    more: dict[str, Any] = {"tool_calls": calls} if calls else {}
    more |= {"reasoning_content": "\n\n".join(thoughts)} if thoughts else {}
    return [*results, {"role": message.role, "content": "\n\n".join(texts), **more}]


def _result(content: Any) -> str:
    """Return the text of a function's result. A note replaces each picture, which would end the conversation."""
    if isinstance(content, str):
        return content
    texts = []
    for block in objects_in(content):
        kind = block.get("type")
        if kind == "search_result":
            texts.append(_search_result(block))
        else:
            texts.append(str(block.get("text", "")) if kind == "text" else f"[{kind}: octavo reads text]")
    return "\n\n".join(texts)


def _search_result(block: Mapping[str, Any]) -> str:
    """Return the text of a search result, with its title and source."""
    return "\n\n".join([f"{block.get('title', '')} ({block.get('source', '')})", *_texts(block.get("content"))])


async def _attach(block: Mapping[str, Any], attachments: Attachments) -> None:
    source, title = block["source"], str(block.get("title") or "")
    kind = source.get("type")
    if kind == "file":
        attachments.name(str(source.get("file_id")), title)
    elif kind == "text":
        await attachments.bring_bytes(title or "document.txt", str(source.get("data", "")).encode(), title)
    elif kind == "base64":
        await attachments.bring(title, str(source.get("data", "")), title)
    elif kind == "content":
        content = source.get("content") or ""
        text = content if isinstance(content, str) else "\n\n".join(_texts(content))
        await attachments.bring_bytes(title or "document.txt", text.encode(), title)
    elif kind == "url":
        raise RequestError(NO_URL, param="messages")
    else:
        raise RequestError(f"A document's source is of no known kind: {kind}.", param="messages")


def _texts(blocks: Any) -> list[str]:
    return [str(block.get("text", "")) for block in objects_in(blocks) if block.get("type") == "text"]


class _Writer:
    """Make a message of the model's answer, and the event of each step.

    Parameters
    ----------
    stops : sequence of str
        The client's stop texts.
    numbers : mapping of str to int
        The number of each document among the client's, by its id: citations have it.
    titles : sequence of str
        The client's titles of the first of them: citations have these in place of names of files.
    """

    def __init__(self, model: str, stops: Sequence[str], numbers: Mapping[str, int], titles: Sequence[str]) -> None:
        self._request: Request | None = None
        self._model, self._stops, self._id = model, stops, f"msg_{uuid.uuid4().hex}"
        self._numbers, self._titles = numbers, titles
        self._blocks: list[dict[str, Any]] = []
        self._is_open = False
        self._is_marked = self._ended_sentence = False
        self._finished: Finished | None = None

    async def lines(self, parts: AsyncGenerator[Step | Event, None]) -> AsyncGenerator[str, None]:
        """Yield the events of a stream."""
        async with aclosing(parts):
            async for part in parts:
                for line in self.add(part):
                    yield line
        message = self.message()
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
        yield _line("message_delta", delta=delta, usage=message["usage"], **self._extensions)
        yield _line("message_stop")

    @staticmethod
    def failure(problem: RequestError) -> str:
        """Return the event of an error."""
        return f"event: error\ndata: {json.dumps(anthropic_error(problem))}"

    def add(self, event: Step | Event) -> list[str]:
        """Add a part of the answer, or a step before it, and return its events.

        Clients ignore a ping, wherever it comes: so pings report progress.
        """
        if isinstance(event, PromptProgress | PartsAnswered):
            return [_line("ping", **step_as_json(event))]
        if isinstance(event, Request):
            self._request = event
            return [_line("message_start", message={**self.message(), "content": []}), _line("ping")]
        if isinstance(event, AnswerPart) and event.progress is not None:
            return [_line("ping", **step_as_json(event.progress))]
        if isinstance(event, AnswerPart) and event.is_thought:
            lines = self._open("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            self._blocks[-1]["thinking"] += event.text
            return [*lines, self._delta({"type": "thinking_delta", "thinking": event.text})]
        if isinstance(event, AnswerPart):
            return [*self._add_text(event.text), *([] if event.sources is None else self._end_sentence(event.sources))]
        if isinstance(event, ToolCall):
            block = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}, "caller": {"type": "direct"}}
            lines = [*self._close(), *self._begin(block)]
            lines.append(self._delta({"type": "input_json_delta", "partial_json": event.arguments}))
            self._blocks[-1] = {**block, "input": json.loads(event.arguments)}
            return [*lines, *self._close()]
        self._finished = event
        lines = [] if self._blocks else self._begin({"type": "text", "text": "", "citations": []})
        if not self._is_marked:
            lines += self._cite(event.end.sources)
        return [*lines, *self._close()]

    def _add_text(self, text: str) -> list[str]:
        """Add a part of the answer. A sentence with sources is a block of its own, as blocks have the citations."""
        if not text:
            return []
        lines = self._close() if self._ended_sentence and text.strip() else []
        lines += self._open("text", {"type": "text", "text": "", "citations": []})
        self._blocks[-1]["text"] += text
        return [*lines, self._delta({"type": "text_delta", "text": text})]

    def _end_sentence(self, sources: Sequence[tuple[SourceText, Passage]]) -> list[str]:
        self._is_marked = self._ended_sentence = True
        return self._cite(sources)

    def _cite(self, sources: Sequence[tuple[SourceText, Passage]]) -> list[str]:
        """Add citations to the text that is open."""
        if not self._is_open or self._blocks[-1]["type"] != "text":
            return []
        citations = self._citations(sources)
        self._blocks[-1]["citations"] += citations
        return [self._delta({"type": "citations_delta", "citation": citation}) for citation in citations]

    def _citations(self, sources: Sequence[tuple[SourceText, Passage]]) -> list[dict[str, Any]]:
        titles = {number: title for number, title in enumerate(self._titles) if title}
        return [
            {
                "type": "char_location",
                "document_index": (number := self._numbers.get(document.id, 0)),
                "document_title": titles.get(number, document.name),
                "file_id": document.id,
                "cited_text": passage.quote,
                "start_char_index": passage.start,
                "end_char_index": passage.stop,
            }
            for document, passage in placed(sources)
        ]

    def _open(self, kind: str, block: dict[str, Any]) -> list[str]:
        """Begin a block of a kind, unless one is open."""
        if self._is_open and self._blocks[-1]["type"] == kind:
            return []
        return [*self._close(), *self._begin(block)]

    def _begin(self, block: dict[str, Any]) -> list[str]:
        self._blocks.append({**block, "citations": []} if "citations" in block else dict(block))
        self._is_open = True
        return [_line("content_block_start", index=len(self._blocks) - 1, content_block=block)]

    def _delta(self, delta: dict[str, Any]) -> str:
        return _line("content_block_delta", index=len(self._blocks) - 1, delta=delta)

    def _close(self) -> list[str]:
        if not self._is_open:
            return []
        self._is_open = self._ended_sentence = False
        block, lines = self._blocks[-1], []
        if block["type"] == "thinking":  # nothing checks it, but clients expect one
            block["signature"] = hashlib.sha256(block["thinking"].encode()).hexdigest()
            lines = [self._delta({"type": "signature_delta", "signature": block["signature"]})]
        return [*lines, _line("content_block_stop", index=len(self._blocks) - 1)]

    def message(self) -> dict[str, Any]:
        """Return the message so far."""
        finished = self._finished
        n_prompt = self._request.n_prompt if self._request else 0
        usage = _usage(finished.end.usage) if finished else {**_usage(None), "input_tokens": n_prompt}
        reason, stop = _REASONS[finished.reason] if finished else None, None
        if finished and finished.reason == "stop" and finished.end.stopped_by in self._stops:
            reason, stop = "stop_sequence", finished.end.stopped_by
        message: dict[str, Any] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": self._blocks,
            "stop_reason": reason,
            "stop_sequence": stop,
            "stop_details": None,
            "container": None,
            "usage": usage,
        }
        return message | self._extensions

    @property
    def _extensions(self) -> dict[str, Any]:
        """Return octavo's own fields, at the end."""
        return extensions_of(self._request, self._finished.end) if self._request and self._finished else {}


def _line(kind: str, **values: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **values})}"


def _usage(usage: Usage | None) -> dict[str, Any]:
    """Return an answer's token counts: Anthropic counts cached tokens separately."""
    n_read = usage.prompt_tokens - usage.cached_tokens if usage else 0
    n_cached, n_answer = (usage.cached_tokens, usage.answer_tokens) if usage else (0, 0)
    cached = {"cache_read_input_tokens": n_cached, "cache_creation_input_tokens": 0, "cache_creation": None}
    names = ("inference_geo", "output_tokens_details", "server_tool_use", "service_tier")
    return {"input_tokens": n_read, **cached, "output_tokens": n_answer, **dict.fromkeys(names)}


def anthropic_error(problem: RequestError) -> dict[str, Any]:
    """Return an error in Anthropic's form."""
    kind = _ERRORS.get(problem.status) or ("api_error" if problem.status >= 500 else problem.kind)
    message = f"prompt is too long: {problem.counts}. {problem}" if isinstance(problem, PromptTooLong) else str(problem)
    return {"type": "error", "error": {"type": kind, "message": message}}


routes = [
    Route("/v1/messages", create, methods=["POST"]),
    Route("/v1/messages/count_tokens", count, methods=["POST"]),
]
