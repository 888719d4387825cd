"""Write an answer as a response of OpenAI's responses API: its items, and the event of each step."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel

from ...ask.context.whole.finding import PartsAnswered
from ...prompts.tools import ToolCall
from ...settings import Sampling
from ..chat_turn import Event, Finished, Step
from ..engine.request import AnswerPart, End, PromptProgress, Request
from ..http.requests import openai_error
from ..request_error import RequestError
from .response_input import ResponseBody
from .shared_json import annotations_of, extensions_of, logprob_as_json, step_as_json
from .tool_forms import Tools

#: Kinds of the output's items.
_MESSAGE, _REASONING, _SEARCH = "message", "reasoning", "file_search_call"


class ResponseWriter:
    """Make a response of the model's answer, and the event of each step.

    Parameters
    ----------
    keep : callable
        Keeps the whole response.

    Attributes
    ----------
    whole : dict
        The whole response, after the last of `lines`.
    """

    def __init__(
        self,
        body: ResponseBody,
        sampling: Sampling,
        model: str,
        tools: Tools,
        keep: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        self._body, self._sampling, self._model, self._tools, self._keep = body, sampling, model, tools, keep
        self._request: Request | None = None
        self._id, self._created = f"resp_{uuid.uuid4().hex}", int(time.time())
        self._output = list[dict[str, Any]]()
        self._open: dict[str, Any] | None = None  # the current message
        self._end: End | None = None
        self._reason, self._n_events = "", 0
        self.whole: dict[str, Any] = {}

    async def lines(self, parts: AsyncGenerator[Step | dict[str, Any] | Event, None]) -> AsyncGenerator[str, None]:
        """Yield the events of a stream, and keep the response before the last one, or once the client hangs up.

        Parameters
        ----------
        parts : async generator
            The steps before the answer, the item about the files that were searched, if any were, and the answer.
        """
        for kind in ("created", "in_progress"):
            yield self._line(f"response.{kind}", response=self.response("in_progress"))
        try:
            async with aclosing(parts):
                async for part in parts:
                    for line in self._add(part):
                        yield line
        except BaseException:  # clients refer to the items of an answer that they stopped, too
            if self._open is not None:
                self._open["status"] = "incomplete"
            if self._output:
                await self._keep(self.response("cancelled"))
            raise
        self.whole = self.response("incomplete" if self._reason == "length" else "completed")
        await self._keep(self.whole)
        yield self._line(f"response.{self.whole['status']}", response=self.whole)

    def failure(self, problem: RequestError) -> str:
        """Return the events of an error: some clients look for the first, and Codex for the second."""
        error = openai_error(problem)["error"]
        line = self._line("error", **{name: error[name] for name in ("message", "code", "param")})
        reason = {"code": problem.code or "server_error", "message": str(problem)}
        failed = {**self.response("failed"), "completed_at": None, "error": reason}
        return f"{line}\n\n{self._line('response.failed', response=failed)}"

    def _add_search(self, search: dict[str, Any]) -> list[str]:
        """Add the item about the files that were searched."""
        self._output.append(search)
        place = {"item_id": search["id"], "output_index": 0}
        begun = {**search, "status": "in_progress", "queries": [], "results": None}
        return [
            self._line("response.output_item.added", output_index=0, item=begun),
            *(self._line(f"response.file_search_call.{step}", **place) for step in ("in_progress", "searching")),
            self._line("response.file_search_call.completed", **place),
            self._line("response.output_item.done", output_index=0, item=search),
        ]

    def _add(self, event: Step | dict[str, Any] | Event) -> list[str]:
        """Add a step, an item or a part of the answer, and return its events.

        Clients accept a response in progress however often it comes, so it reports progress.
        """
        if isinstance(event, Request):
            self._request = event
            return []
        if isinstance(event, PromptProgress | PartsAnswered):
            return [self._in_progress(event)]
        if isinstance(event, AnswerPart) and event.progress is not None:
            return [self._in_progress(event.progress)]
        if isinstance(event, dict):
            return self._add_search(event)
        if isinstance(event, AnswerPart):
            return self._add_thought(event) if event.is_thought else self._add_text(event)
        if isinstance(event, ToolCall):
            return [*self._close(), *self._add_call(event)]
        self._end, self._reason = event.end, event.reason
        is_empty = self._open is None and all(item["type"] == _SEARCH for item in self._output)
        lines = self._begin() if is_empty else []
        return [*lines, *self._close(event)]

    def _in_progress(self, step: PromptProgress | PartsAnswered) -> str:
        return self._line("response.in_progress", response=self.response("in_progress"), **step_as_json(step))

    def _add_thought(self, event: AnswerPart) -> list[str]:
        lines = self._begin(_REASONING)
        assert self._open is not None
        self._open["content"][0]["text"] += event.text
        return [*lines, self._line("response.reasoning_text.delta", **self._place(), delta=event.text)]

    def _add_text(self, event: AnswerPart) -> list[str]:
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
        takes_text = call.name in self._tools.free_text
        if takes_text:
            kind, field, event = "custom_tool_call", "input", "custom_tool_call_input"
            given = str(json.loads(call.arguments).get("input", ""))
        else:
            kind, field, event = "function_call", "arguments", "function_call_arguments"
            given = call.arguments
        namespace, name = self._tools.spaces.get(call.name, (None, call.name))
        item = {"type": kind, "id": f"{'ctc' if takes_text else 'fc'}_{uuid.uuid4().hex}", "call_id": call.id}
        item |= {"name": name, **({"namespace": namespace} if namespace else {})}
        done = {**item, field: given, "status": "completed"}
        self._output.append(done)
        number = len(self._output) - 1
        place, named = {"item_id": item["id"], "output_index": number}, {} if takes_text else {"name": name}
        begun = {**item, field: "", "status": "in_progress"}
        return [
            self._line("response.output_item.added", output_index=number, item=begun),
            self._line(f"response.{event}.delta", **place, delta=given),
            self._line(f"response.{event}.done", **place, **named, **{field: given}),
            self._line("response.output_item.done", output_index=number, item=done),
        ]

    def _place(self) -> dict[str, Any]:
        assert self._open is not None
        return {"item_id": self._open["id"], "output_index": len(self._output) - 1, "content_index": 0}

    def _line(self, kind: str, **values: Any) -> str:
        event = {"type": kind, "sequence_number": self._n_events, **values}
        self._n_events += 1
        return f"event: {kind}\ndata: {json.dumps(event)}"

    def response(self, status: str) -> dict[str, Any]:
        """Return the response so far."""
        body, request, end = self._body, self._request, self._end
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
                {"description": None, "parameters": None, "strict": None, **tool}
                if tool.get("type") == "function"
                else tool
                for tool in body.tools or ()
            ],
            "tool_choice": body.stated_choice,
            "parallel_tool_calls": body.parallel_tool_calls,
            "text": {"format": _dump(body.text.format) or {"type": "text"}},
            "temperature": self._sampling.temperature if request is None else request.generation.sampling.temperature,
            "top_p": self._sampling.top_p,
            "presence_penalty": body.presence_penalty,
            "frequency_penalty": body.frequency_penalty,
            "top_logprobs": body.top_logprobs,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "previous_response_id": body.previous_response_id,
            "conversation": None if body.conversation is None else {"id": body.conversation},
            "store": body.store,
            "reasoning": {"effort": body.reasoning.effort, "summary": None},
            **_NOT_KEPT,
        }
        if end is not None and request is not None:
            usage = end.usage
            response["usage"] = {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens},
                "output_tokens": usage.answer_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.thought_tokens},
                "total_tokens": usage.prompt_tokens + usage.answer_tokens,
            }
            response |= extensions_of(request, end)
        return response


#: Fields of a response for settings that octavo lacks.
_NOT_KEPT: dict[str, Any] = {
    "truncation": "disabled",
    "max_tool_calls": None,
    "background": False,
    "service_tier": "default",
    "safety_identifier": None,
    "prompt_cache_key": None,
}


def _dump(value: Any) -> Any:
    return value.model_dump(by_alias=True, exclude_none=True) if isinstance(value, BaseModel) else value


def _citations(end: End, n_text: int) -> list[dict[str, Any]]:
    """Return the sources of an answer, each at the end of its sentence, or of the text."""
    cited = [source["file_citation"] for source in annotations_of(end)]
    return [{"type": "file_citation", "index": each.get("end_index", n_text), **each} for each in cited]
