"""Fields of requests that several APIs share, in all the forms that clients of other servers use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ..engine.request import Generation

if TYPE_CHECKING:
    from ..services import Server


class ApiObject(BaseModel):
    """An object of a request: a field that is null counts as left out, and unknown fields are kept as extra ones."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {name: value for name, value in values.items() if value is not None}


class StreamOptions(ApiObject):
    """Extra reports of a stream."""

    include_usage: bool = False


class ApiBody(ApiObject):
    """A whole request. The server has one model, whatever `model` names."""

    model: str = ""

    @property
    def ignored(self) -> list[str]:
        """Return the names of the fields that octavo does not know."""
        return sorted(self.model_extra or ())


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; none of anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


#: What `tool_choice` says without the name of a function.
_MODES = {"any": "required", "required": "required", "auto": "auto", "none": "none"}


def _zero_if_negative(value: Any) -> Any:
    return 0 if isinstance(value, int) and value < 0 else value


def _pairs(value: Any) -> Any:
    """Return biases of tokens or texts as a list of pairs; false, as llama.cpp's server takes it, forbids."""
    pairs = list(map(list, value.items())) if isinstance(value, Mapping) else value
    if not isinstance(pairs, list):
        return value
    return [[*pair[:1], -100.0] if isinstance(pair, (list, tuple)) and pair[1:] == [False] else pair for pair in pairs]


#: What to read of several documents, of READS (settings.py).
Reads = Literal["auto", "document", "excerpts"]

#: Whether all parts or documents are asked, of WHOLES (settings.py).
Whole = Literal["auto", "on", "off"]

#: Most tokens of an answer; -1 is without a limit, as in llama.cpp.
Limit = Annotated[int | None, Field(ge=-1)]

#: Number of likeliest tokens to draw from; 0 and negative numbers are off.
TopK = Annotated[int | None, BeforeValidator(_zero_if_negative), Field(ge=0)]

#: Biases of tokens, by number or by text, as an object or as pairs.
LogitBias = Annotated[list[tuple[int | str, float]] | None, BeforeValidator(_pairs)]

#: The seed that means a random one in llama.cpp's settings.
RANDOM = 0xFFFFFFFF

#: A seed of llama.cpp's and Ollama's clients, for whom -1 means a random one, too.
Seed = Annotated[int | None, BeforeValidator(lambda value: None if value in (-1, RANDOM) else value)]

#: Fewest characters that are too many for the number of a token.
_LONGEST_NUMBER = 20

#: One text or several.
Stop = Annotated[list[str] | None, BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class DrawnBody(ApiObject):
    """How tokens are drawn. The server's options are the defaults."""

    temperature: float | None = Field(None, ge=0, le=100)
    top_k: TopK = None
    top_p: float | None = Field(None, ge=0, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    repeat_penalty: float | None = Field(None, gt=0)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    seed: int | None = None

    def generation(
        self,
        server: Server,
        max_tokens: int | None,
        others: Generation,
        *,
        think: bool | None = None,
        think_budget: int | None = None,
    ) -> Generation:
        """Return the settings of an answer.

        Parameters
        ----------
        max_tokens : int, optional
            Most tokens of the answer; -1 is without a limit, and None as the server's options say.
        others : Generation
            The other settings.
        think, think_budget
            Whether the model thinks, and the most tokens of a thought.
        """
        drawn = {name: getattr(self, name) for name in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")}
        return replace(
            others,
            sampling=server.sampling_of(max_tokens, self.seed, think=think, think_budget=think_budget, **drawn),
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            answers=max_tokens != 0,
            limits_thoughts=max_tokens is not None,
        )


class DocumentBody(ApiObject):
    """The documents that a request names, and how the model reads them. A stream may report how far that is."""

    document: str | list[str] | None = None
    reads: Reads = "auto"
    whole: Whole = "auto"
    sources: bool = False
    attention: str | None = None
    stream: bool = False
    return_progress: bool = False

    def asked(
        self,
        server: Server,
        client: str,
        stop: list[str] | None = None,
        n_logprobs: int | None = None,
        logit_bias: Mapping[int, float] | None = None,
        cites: bool = False,
    ) -> Generation:
        """Return the settings of an answer for a client, without how its tokens are drawn."""
        return Generation(
            attention=server.attention_of(self.attention),
            sources=self.sources or cites,
            client=client,
            stop=stop or (),
            n_logprobs=n_logprobs,
            logit_bias=logit_bias or {},
            reports_progress=self.stream and self.return_progress,
        )

    @property
    def documents(self) -> list[str]:
        """Return the ids, names or patterns of the documents, each once."""
        return list(dict.fromkeys([self.document] if isinstance(self.document, str) else self.document or ()))


class AskingBody(ApiBody, DrawnBody, DocumentBody):
    """A request for an answer."""


def bias_of(pairs: list[tuple[int | str, float]] | None, tokenize: Callable[[str], list[int]]) -> dict[int, float]:
    """Return the bias of each token; a text means all of its tokens."""
    bias: dict[int, float] = {}
    for named, value in pairs or ():
        text = str(named)
        is_number = isinstance(named, int) or (text.removeprefix("-").isdecimal() and len(text) < _LONGEST_NUMBER)
        for token in [int(text)] if is_number else tokenize(text):
            bias[token] = bias.get(token, 0.0) + value
    return bias


def chosen_tools(choice: Any) -> tuple[str, list[str] | None]:
    """Return which function must be called, and which may be.

    Parameters
    ----------
    choice : str, dict or None
        `tool_choice`, in any API's form.

    Returns
    -------
    str
        "auto", "none", "required", or the name of a function.
    list of str or None
        Names of the functions that may be called; None for all.

    Raises
    ------
    ValueError
        It has none of the known forms.
    """
    if choice is None:
        return "auto", None
    if isinstance(choice, str) and choice in _MODES:
        return _MODES[choice], None
    if isinstance(choice, Mapping):
        kind = choice.get("type")
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
        if kind in ("function", "tool", "custom", None) and isinstance(name, str):
            return name, None
        if kind == "allowed_tools" and isinstance(allowed := choice.get("allowed_tools", choice), Mapping):
            listed = [chosen_tools(tool)[0] for tool in objects_in(allowed.get("tools"))]
            return _MODES.get(str(allowed.get("mode")), "auto"), listed
        if isinstance(kind, str) and kind in _MODES:
            return _MODES[kind], None
        if kind == "file_search":  # the answer comes from the files, whatever the model calls
            return "auto", None
    raise ValueError("is neither auto, none, required, the name of a function, nor allowed_tools")


#: `tool_choice`, as `chosen_tools` returns it.
ToolChoice = Annotated[tuple[str, list[str] | None], BeforeValidator(chosen_tools)]
