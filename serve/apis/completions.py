"""OpenAI's completions: continue a text or tokens; with `echo`, report the log probabilities of the text itself."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..chat_turn import ChatTurn, Finished, answer
from ..engine.request import AnswerPart, End, Generation, Request, TokenLogprob
from ..http.requests import client_of, connected, parsed, sse, while_connected
from ..raw_prompt import raw_request
from ..request_error import RequestError
from ..services import Server, server_of
from .api_body import ApiBody, DrawnBody, LogitBias, Stop, StreamOptions, bias_of
from .shared_json import drafts_of, extensions_of

#: Largest number of prompts of one request, and of answers to each.
_MOST_PROMPTS, _MOST_ANSWERS = 256, 8


class CompletionBody(ApiBody, DrawnBody):
    """A client's request."""

    prompt: str | list[str] | list[int] | list[list[int]] = Field(min_length=1)
    document: str | None = None
    attention: str | None = None
    max_tokens: Annotated[int, Field(ge=-1)] = 16
    logit_bias: LogitBias = None
    stop: Stop = None
    n: int = Field(1, ge=1, le=_MOST_ANSWERS)
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=100)
    stream: bool = False
    stream_options: StreamOptions | None = None

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts one by one."""
        prompt = self.prompt
        if isinstance(prompt, str) or all(isinstance(part, int) for part in prompt):
            return [prompt]  # type: ignore[list-item]
        return list(prompt)  # type: ignore[arg-type]


async def complete(http_request: HttpRequest) -> Response:
    """Answer POST /v1/completions."""
    server, body = server_of(http_request), await parsed(http_request, CompletionBody)
    prompts = body.prompts()
    if len(prompts) > _MOST_PROMPTS:
        raise RequestError(f"One request has at most {_MOST_PROMPTS} prompts.", param="prompt")
    generation = body.generation(
        server,
        body.max_tokens,
        Generation(
            logit_bias=bias_of(body.logit_bias, server.tokens_of),
            stop=body.stop or (),
            n_logprobs=body.logprobs,
            of_prompt=body.echo and body.logprobs is not None,
            attention=server.attention_of(body.attention),
            client=client_of(http_request),
        ),
    )
    turn = ChatTurn([], generation, documents=[body.document] if body.document else [])
    requests = []
    for prompt in prompts:
        request = await while_connected(http_request, raw_request(server, turn, prompt))
        requests += [request.numbered(number) for number in range(body.n)]
    for request in requests:
        server.engine.check(request)
    head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
    head["model"] = server.engine.name
    if body.stream:
        return sse(_stream(server, body, turn, requests, head))
    choices, ends = [], []
    for index, request in enumerate(requests):
        text, logprobs = _echoed(server, body, request), list[TokenLogprob]()
        finished: Finished | None = None
        async with aclosing(connected(http_request, answer(server, turn, request))) as events:
            async for event in events:
                if isinstance(event, AnswerPart):
                    text += event.text
                    logprobs += event.logprobs
                elif isinstance(event, Finished):
                    finished = event
        assert finished is not None
        ends.append(finished.end)
        shown = _logprobs([*finished.end.prompt_logprobs, *logprobs]) if body.logprobs is not None else None
        choices.append({"index": index, "text": text, "logprobs": shown, "finish_reason": finished.reason})
    return JSONResponse({**head, "choices": choices, "usage": _usage(ends), **extensions_of(requests[-1], *ends)})


async def _stream(
    server: Server, body: CompletionBody, turn: ChatTurn, requests: list[Request], head: dict[str, Any]
) -> AsyncGenerator[str, None]:
    ends, with_usage = list[End](), bool(body.stream_options and body.stream_options.include_usage)
    for index, request in enumerate(requests):
        echoed = _echoed(server, body, request)
        async with aclosing(answer(server, turn, request)) as events:
            async for event in events:
                reason, more = None, dict[str, Any]()
                if isinstance(event, Finished):
                    ends.append(event.end)
                    reason, text, logprobs = event.reason, "", event.end.prompt_logprobs
                    more = {} if with_usage else extensions_of(request, event.end)
                elif isinstance(event, AnswerPart):
                    text, logprobs, echoed = echoed + event.text, event.logprobs, ""
                shown = _logprobs(logprobs) if body.logprobs is not None and logprobs else None
                choice = {"index": index, "text": text, "logprobs": shown, "finish_reason": reason}
                yield json.dumps({**head, "choices": [choice], **more})
    if with_usage:
        yield json.dumps({**head, "choices": [], "usage": _usage(ends), **extensions_of(requests[-1], *ends)})
    yield "[DONE]"


def _echoed(server: Server, body: CompletionBody, request: Request) -> str:
    """Return the prompt's text, if the request asks for it."""
    if not body.echo:
        return ""
    llama = server.engine.llama
    return b"".join(llama.piece(token) for token in request.tokens).decode(errors="replace")


def _logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    """Return log probabilities in OpenAI's older form."""
    texts = [token.text.decode(errors="replace") for token in tokens]
    starts, at = [], 0
    for text in texts:
        starts.append(at)
        at += len(text)
    top = [None if token.logprob is None else _top(token) for token in tokens]
    values = [token.logprob for token in tokens]
    return {"tokens": texts, "token_logprobs": values, "top_logprobs": top, "text_offset": starts}


def _top(token: TokenLogprob) -> dict[str, float]:
    """Return the likeliest tokens, and the token itself: of two with the same text the likelier counts."""
    top: dict[str, float] = {}
    for _, text, value in token.top:
        top.setdefault(text.decode(errors="replace"), value)
    return top


def _usage(ends: list[End]) -> dict[str, Any]:
    """Return the token counts of all answers together."""
    n_prompt, n_answer = (sum(getattr(end.usage, name) for end in ends) for name in ("prompt_tokens", "answer_tokens"))
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_answer,
        "total_tokens": n_prompt + n_answer,
        "prompt_tokens_details": {"cached_tokens": sum(end.usage.cached_tokens for end in ends)},
        "completion_tokens_details": drafts_of(ends),
    }


routes = [Route("/v1/completions", complete, methods=["POST"])]
