"""Requests of Ollama's clients: bodies, messages, and the settings of an answer that follow from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ..engine.request import Generation
from ..request_error import RequestError
from ..services import Server
from .api_body import ApiBody, ApiObject, DocumentBody, DrawnBody, Seed, Stop
from .shared_json import effort_of

#: Most tokens of an answer: -1 asks for as many as the model wants, and -2 for as many as fit, which is the same here.
_NumPredict = Annotated[int | None, BeforeValidator(lambda value: -1 if value == -2 else value), Field(ge=-1)]


def tagged(name: str) -> str:
    """Return the name of a model with a tag, as Ollama's have."""
    return name if ":" in name else f"{name}:latest"


def ollama_name(server: Server) -> str:
    """Return the name of the server's model for Ollama's clients."""
    return tagged(server.engine.name)


def ollama_error(problem: RequestError) -> dict[str, Any]:
    """Return an error in Ollama's form."""
    return {"error": str(problem)}


class Options(DrawnBody):
    """How to draw an answer."""

    num_predict: _NumPredict = None
    seed: Seed = None
    stop: Stop = None
    frequency_penalty: float = Field(0.0, ge=-2, le=2)


class OllamaBody(ApiBody, DocumentBody):
    """A request for an answer. `stream` is true by default."""

    options: Options = Field(default_factory=lambda: Options.model_validate({}))
    format: Literal["", "json"] | dict[str, Any] | bool = ""
    think: bool | Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    stream: bool = True
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=100)

    @property
    def ignored(self) -> list[str]:
        """Return the names of the fields that octavo does not know, fields of `options` included."""
        return [*super().ignored, *(f"options.{name}" for name in sorted(self.options.model_extra or ()))]

    @property
    def schema_of_answer(self) -> dict[str, Any] | bool | None:
        """Return the JSON schema of the answer; None for free text."""
        if isinstance(self.format, str):
            return {"type": "object"} if self.format else None
        return self.format

    def thinking(self, server: Server) -> tuple[bool | None, dict[str, Any]]:
        """Return whether the model should think, and variables of its template.

        Raise RequestError, in the words that clients know, if a model should think that cannot.
        """
        think, options = effort_of(self.think) if isinstance(self.think, str) else (self.think, {})
        if think and server.thoughts is None:
            raise RequestError(f'"{ollama_name(server)}" does not support thinking: leave `think` out.', param="think")
        return think, options

    def generation(self, server: Server, think: bool | None, client: str) -> Generation:
        """Return the settings of the answer."""
        options = self.options
        return options.generation(
            server,
            options.num_predict,
            self.asked(server, client, options.stop, self.top_logprobs if self.logprobs else None),
            think=think,
        )


class Function(ApiObject):
    """A function that was called, and its arguments."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Call(ApiObject):
    """A call in an earlier message of the model."""

    id: str = ""
    function: Function


class Message(ApiObject):
    """A message; `tool_name` is the function whose result a tool's message is."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str | None = None
    images: list[Any] | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None


class OllamaChatBody(OllamaBody):
    """A conversation. Without messages, the client asks for the model to be loaded."""

    messages: list[Message] = Field(default_factory=list)
    tools: list[dict[str, Any]] | None = None


class GenerateBody(OllamaBody):
    """A prompt. Without one, the client asks for the model to be loaded."""

    prompt: str = ""
    suffix: str = ""
    system: str = ""
    raw: bool = False
    template: str = ""
    images: list[Any] | None = None


def refuse_images(images: Sequence[Any] | None) -> None:
    """Raise RequestError if there are images."""
    if images:
        raise RequestError("octavo reads text and documents: images cannot be sent.", param="images")


def openai_messages(messages: Sequence[Message]) -> list[Mapping[str, Any]]:
    """Return messages in OpenAI's form.

    Calls without ids get some. A result without one belongs to the first open call of its function, or of any.
    """
    formatted, open_calls = list[Mapping[str, Any]](), list[tuple[str, str]]()
    for message in messages:
        refuse_images(message.images)
        as_json: dict[str, Any] = {"role": message.role, "content": message.content}
        for number, call in enumerate(message.tool_calls or ()):
            name, call_id = call.function.name, call.id or f"call-{len(formatted)}-{number}"
            function = {"name": name, "arguments": json.dumps(call.function.arguments)}
            as_json.setdefault("tool_calls", []).append({"id": call_id, "type": "function", "function": function})
            open_calls.append((call_id, name))
        if message.thinking:
            as_json["reasoning_content"] = message.thinking
        if message.role == "tool":
            given = [call for call in open_calls if call[0] == message.tool_call_id]
            named = [call for call in open_calls if call[1] == message.tool_name]
            answered = next(iter([*given, *named, *open_calls]), (message.tool_call_id, message.tool_name))
            open_calls = [call for call in open_calls if call != answered]
            as_json |= {"tool_call_id": answered[0], "name": answered[1]}
        formatted.append(as_json)
    return formatted
