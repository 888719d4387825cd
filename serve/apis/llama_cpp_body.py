"""Requests to the endpoints of llama.cpp's server, and settings in its form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from ...settings import Sampling
from ..chat_turn import ChatTurn
from ..engine.request import Request
from ..raw_prompt import Gap, RawPrompt
from ..services import Server
from .api_body import RANDOM, ApiObject, AskingBody, Limit, LogitBias, Seed, Stop, bias_of

#: The fields of a prompt that is an object: its text; images and sounds.
_TEXT, _MEDIA = "prompt_string", "multimodal_data"


def _prompts(value: Any) -> list[RawPrompt]:
    """Return the prompts of a request: a text, tokens, tokens and texts, an object with a text, or several of these."""
    if not isinstance(value, list):
        return [_prompt(value)]
    is_one = any(isinstance(part, int) for part in value) and all(isinstance(part, int | str) for part in value)
    return [_prompt(value)] if is_one else [_prompt(each) for each in value]


def _prompt(value: Any) -> RawPrompt:
    if isinstance(value, Mapping) and isinstance(value.get(_TEXT), str):
        if value.get(_MEDIA):
            raise ValueError("octavo reads text and documents: images and sounds cannot be sent")
        return str(value[_TEXT])
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(part, int | str) for part in value)):
        return value
    raise ValueError(f"a prompt is a text, tokens, or an object with `{_TEXT}`")


def _not_negative(value: Any) -> Any:
    return max(value, 0) if isinstance(value, int | float) else value


class LlamaCppBody(AskingBody):
    """Settings of an answer."""

    n_predict: Limit = Field(None, validation_alias=AliasChoices("n_predict", "max_tokens", "max_completion_tokens"))
    n_cmpl: int = Field(1, ge=1, le=8, validation_alias=AliasChoices("n_cmpl", "n"))
    temperature: Annotated[float | None, BeforeValidator(_not_negative), Field(ge=0, le=100)] = None
    seed: Seed = None
    logit_bias: LogitBias = None
    ignore_eos: bool = False
    stop: Stop = None
    n_probs: int = Field(0, ge=0, le=100)
    grammar: str = ""
    json_schema: dict[str, Any] | bool | None = None
    cache_prompt: bool = True
    return_tokens: bool = False
    response_fields: list[str] = Field(default_factory=list)

    @property
    def ignored(self) -> list[str]:
        """Return the names of the fields that octavo ignores: it always uses its caches."""
        return [*super().ignored, *([] if self.cache_prompt else ["cache_prompt"])]

    def turn(self, server: Server, client: str) -> ChatTurn:
        """Return the settings of the answer as a turn without messages."""
        bias = bias_of(self.logit_bias, server.tokens_of)
        bias |= dict.fromkeys(server.grammars.ends, -math.inf) if self.ignore_eos else {}
        n_logprobs = self.n_probs if self.n_probs or self.return_tokens or self.stream else None
        generation = self.generation(server, self.n_predict, self.asked(server, client, self.stop, n_logprobs, bias))
        schema, grammar = self.json_schema, self.grammar or None
        return ChatTurn([], generation, self.documents, self.reads, schema=schema, grammar=grammar)


class PromptsBody(LlamaCppBody):
    """A request that continues prompts."""

    prompt: Annotated[list[RawPrompt], BeforeValidator(_prompts), Field(min_length=1, max_length=256)]


class File(ApiObject):
    """A file that is known besides."""

    text: str
    filename: str = "tmp"


class InfillBody(LlamaCppBody):
    """A request that fills a gap."""

    input_prefix: str
    input_suffix: str
    prompt: str = ""
    input_extra: list[File] = Field(default_factory=list)

    @property
    def gap(self) -> Gap:
        others = [(file.filename, file.text) for file in self.input_extra]
        return Gap(self.input_prefix, self.input_suffix, self.prompt, others)


def settings_as_json(request: Request, body: LlamaCppBody) -> dict[str, Any]:
    """Return the settings of an answer."""
    return {
        **sampling_as_json(request.generation.sampling),
        "frequency_penalty": request.generation.frequency_penalty,
        "presence_penalty": request.generation.presence_penalty,
        "logit_bias": [
            {"token": token, "bias": value if math.isfinite(value) else None}
            for token, value in request.generation.logit_bias.items()
        ],
        "ignore_eos": body.ignore_eos,
        "stop": list(request.generation.stop),
        "n_probs": body.n_probs,
        "grammar": body.grammar,
        "stream": body.stream,
    }


def sampling_as_json(sampling: Sampling) -> dict[str, Any]:
    """Return how tokens are drawn."""
    limit = -1 if sampling.max_tokens is None else sampling.max_tokens
    return {
        "n_predict": limit,
        "max_tokens": limit,
        "seed": RANDOM if sampling.seed is None else sampling.seed,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repeat_penalty,
        "samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"],
    }
