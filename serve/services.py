"""The server: a model and its documents, for the handlers of all APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request

from ..errors import OctavoError
from ..prompts.call_form import CallForm, control_texts, forms_of
from ..prompts.thought_form import Thoughts
from .engine.grammar import Grammars
from .library.file_workers import FileWorkers
from .request_error import RequestError

if TYPE_CHECKING:
    from ..runtime.methods.attention import Attention
    from ..runtime.store.model_library import Library
    from ..settings import Sampling
    from .engine.engine import Engine
    from .engine.prompt_cache import PromptCache
    from .engine.text_embeddings import TextEmbeddings
    from .library.document_finder import DocumentFinder
    from .library.served_library import ServedLibrary


#: The field of a request's scope with the server of its model.
SERVER = "octavo.server"

#: Fewest characters of a text that is tokenized beside the event loop: these take some 30 ms; and most such at once.
_SHORT, _AT_ONCE = 20_000, 2

#: Most pages that are drawn at once.
_DRAWN_AT_ONCE = 2

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Server:
    """A model and its documents.

    Parameters
    ----------
    library : Library
        The folder of the model's indexes.
    documents : ServedLibrary
        Indexed documents, and those that are being read.
    attention : Attention
        Words of the default attention.
    started : int
        Time of the start, in seconds since 1970.
    """

    engine: Engine
    library: Library
    documents: ServedLibrary
    finder: DocumentFinder
    embeddings: TextEmbeddings
    prompt_cache: PromptCache
    sampling: Sampling
    attention: Attention
    started: int

    @cached_property
    def thoughts(self) -> Thoughts | None:
        """Return how the model thinks; None if it does not."""
        return Thoughts.of(self.engine.llama)

    @cached_property
    def call_forms(self) -> list[CallForm]:
        """Return the forms in which the model may write calls, the likeliest first."""
        return forms_of(self.engine.llama.chat_template)

    @cached_property
    def call_texts(self) -> dict[int, str]:
        """Return the texts of the control tokens in these forms."""
        return control_texts(self.engine.llama, self.call_forms)

    def tokens_of(self, text: str) -> list[int]:
        """Return the tokens of a short text within others."""
        return list(self.engine.llama.tokenize(text.encode(), add_bos=False, special=True))

    @cached_property
    def grammars(self) -> Grammars:
        """Return the maker of answers' grammars."""
        return Grammars(self.engine.llama)

    @cached_property
    def pictures(self) -> FileWorkers:
        """Return the processes that draw pages of documents."""
        return FileWorkers({}, _DRAWN_AT_ONCE)

    async def tokenized(self, work: Callable[[], _Result], n_characters: int) -> _Result:
        """Return the result of work that tokenizes a text, or parses it: beside the event loop, if the text is long.

        Parameters
        ----------
        n_characters : int
            Length of the text.

        """
        if n_characters < _SHORT:
            return work()
        async with self._long_texts:
            return await asyncio.to_thread(work)

    @cached_property
    def _long_texts(self) -> asyncio.Semaphore:
        """Return a limit that keeps threads free for other work while long texts are tokenized."""
        return asyncio.Semaphore(_AT_ONCE)

    def close(self) -> None:
        """Stop the engine, wait until prompts are kept, and free the model. A second call does nothing."""
        self.engine.close()
        self.grammars.close()
        self.embeddings.close()
        self.prompt_cache.close()
        self.engine.llama.close()

    @property
    def is_busy(self) -> bool:
        """Return whether the model answers."""
        return bool(self.engine.n_running or self.engine.n_waiting)

    def attention_of(self, words: str | None) -> Attention | None:
        """Return how a request attends, with the server's budget and plan; None for the default.

        Raise RequestError if the words do not compose, or are llama.cpp's own attention.
        """
        if words is None:
            return None
        try:
            attention = self.attention.parsed(words)
        except OctavoError as problem:
            raise RequestError(str(problem), param="attention") from problem
        if attention.is_llama_cpp:
            raise RequestError("The server attends by octavo: choose another attention.", param="attention")
        return replace(attention, budget=self.attention.budget)

    def sampling_of(self, max_tokens: int | None, seed: int | None, **values: Any) -> Sampling:
        """Return how to draw an answer: the request's values, or else the server's. Any integer is a seed.

        A limit of -1 is none. A limit counts thoughts, too. By default a thought takes no more than half of it.
        """
        limited = max_tokens is not None and max_tokens >= 0
        if max_tokens is not None and limited and values.get("think_budget") is None:
            budget = self.sampling.think_budget
            values["think_budget"] = max_tokens // 2 if budget is None else min(budget, max_tokens // 2)
        given = {name: value for name, value in {"max_tokens": max_tokens, **values}.items() if value is not None}
        given |= {} if seed is None else {"seed": seed % (2**32 - 1)}
        given |= {} if max_tokens is None else {"max_tokens": max(max_tokens, 1) if limited else None}
        return replace(self.sampling, **given)


def server_of(request: Request) -> Server:
    """Return the server that a request came to."""
    server: Server = request.scope[SERVER]
    return server
