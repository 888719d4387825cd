"""Endpoints of llama.cpp's server that have no likes in other APIs: continue prompts, and fill gaps in texts."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..chat_turn import ChatTurn, Finished, answer
from ..engine.request import AnswerPart, End, Request, TokenLogprob
from ..http.requests import client_of, connected, note_ignored, parsed, sse, while_connected
from ..raw_prompt import gap_tokens, raw_request, text_of
from ..services import Server, server_of
from .llama_cpp_body import InfillBody, LlamaCppBody, PromptsBody, settings_as_json
from .shared_json import annotations_of, document_as_json, extensions_of, logprob_as_json, progress_as_json


async def complete(http_request: HttpRequest) -> Response:
    """Answer POST /completion and /completions."""
    server, body = server_of(http_request), await parsed(http_request, PromptsBody)
    turn = body.turn(server, client_of(http_request))
    requests = [await while_connected(http_request, raw_request(server, turn, prompt)) for prompt in body.prompt]
    return await _response(http_request, body, turn, requests)


async def infill(http_request: HttpRequest) -> Response:
    """Answer POST /infill."""
    server, body = server_of(http_request), await parsed(http_request, InfillBody)
    turn = body.turn(server, client_of(http_request))
    tokens = await gap_tokens(server, body.gap, begins=not turn.documents)
    request = await while_connected(http_request, raw_request(server, turn, tokens))
    return await _response(http_request, body, turn, [request])


async def _response(
    http_request: HttpRequest, body: LlamaCppBody, turn: ChatTurn, requests: Sequence[Request]
) -> Response:
    """Return the response with answers: an object, or a list of them if there are several."""
    server = server_of(http_request)
    for request in requests:
        server.engine.check(request)
        note_ignored(http_request, request.ignored)
    numbered = [request.numbered(number) for request in requests for number in range(body.n_cmpl)]
    writers = [_Writer(server, body, turn, request, index) for index, request in enumerate(numbered)]
    if body.stream:
        return sse(_lines(writers))
    answers = [await writer.whole(http_request) for writer in writers]
    return JSONResponse(answers if len(answers) > 1 else answers[0])


async def _lines(writers: Sequence[_Writer]) -> AsyncGenerator[str, None]:
    """Yield the parts of all answers, one answer after another."""
    for writer in writers:
        async with aclosing(writer.parts()) as parts:
            async for part in parts:
                yield json.dumps(part)


class _Writer:
    """Writes one answer, in parts or as a whole."""

    def __init__(self, server: Server, body: LlamaCppBody, turn: ChatTurn, request: Request, index: int) -> None:
        self._server, self._body, self._turn, self._request, self._index = server, body, turn, request, index
        self._text, self._tokens = "", list[TokenLogprob]()

    async def parts(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the parts of the answer; the last one has `stop`, and its figures, but no text."""
        async with aclosing(answer(self._server, self._turn, self._request)) as events:
            async for event in events:
                if isinstance(event, AnswerPart):
                    self._add(event)
                    yield self._part(event)
                elif isinstance(event, Finished):
                    yield self._selected({**await self._end(event.end), "content": "", "tokens": []})

    async def whole(self, http_request: HttpRequest) -> dict[str, Any]:
        """Return the answer."""
        fields: dict[str, Any] = {}
        events = answer(self._server, self._turn, self._request)
        async with aclosing(connected(http_request, events)) as connected_events:
            async for event in connected_events:
                if isinstance(event, AnswerPart):
                    self._add(event)
                elif isinstance(event, Finished):
                    fields = await self._end(event.end)
        numbers = [token.token for token in self._tokens] if self._body.return_tokens else []
        fields |= {"content": self._text, "tokens": numbers, **self._probabilities(self._tokens)}
        return self._selected(fields)

    def _add(self, event: AnswerPart) -> None:
        self._text += event.text
        self._tokens += event.logprobs

    def _part(self, event: AnswerPart) -> dict[str, Any]:
        """Return a part that is not the last one: of the text, or of how far the prompt is read."""
        progress = {} if event.progress is None else {"prompt_progress": progress_as_json(event.progress)}
        return {
            "index": self._index,
            "content": event.text,
            "tokens": [token.token for token in event.logprobs],
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": len(self._tokens),
            "tokens_evaluated": self._request.n_prompt,
            **self._probabilities(event.logprobs),
            **progress,
        }

    def _probabilities(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
        if not self._body.n_probs:
            return {}
        return {"completion_probabilities": [_with_ids(token) for token in tokens]}

    def _selected(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of an answer that the request names, or else all; a slash leads into an object."""
        selected = {}
        for name in self._body.response_fields:
            value: Any = fields
            for part in name.split("/"):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                selected[name] = value
        return selected if self._body.response_fields else fields

    async def _end(self, end: End) -> dict[str, Any]:
        llama, request, usage = self._server.engine.llama, self._request, end.usage
        stopped = "eos" if end.stopped_by is None else "word"
        return {
            "index": self._index,
            "id_slot": -1,
            "stop": True,
            "model": self._server.engine.name,
            "tokens_predicted": usage.answer_tokens,
            "tokens_evaluated": usage.prompt_tokens,
            "tokens_cached": usage.cached_tokens,
            "generation_settings": {"n_ctx": llama.n_ctx(), **settings_as_json(request, self._body)},
            "prompt": await text_of(self._server, request.tokens),
            "has_new_line": "\n" in self._text,
            "truncated": end.reason == "context",
            "stop_type": stopped if end.reason == "stop" else "limit",
            "stopping_word": end.stopped_by or "",
            **({"document": document_as_json(request.context)} if request.context else {}),
            **({"annotations": annotations_of(end)} if request.generation.sources else {}),
            **extensions_of(request, end),
        }


def _with_ids(token: TokenLogprob) -> dict[str, Any]:
    """Return the log probabilities of a token and of the likeliest, with the tokens' numbers."""
    fields = logprob_as_json(token)
    top = [{"id": likely, **each} for (likely, _, _), each in zip(token.top, fields["top_logprobs"], strict=True)]
    return {"id": token.token, **fields, "top_logprobs": top}


routes = [
    Route("/completion", complete, methods=["POST"]),
    Route("/completions", complete, methods=["POST"]),
    Route("/infill", infill, methods=["POST"]),
]
