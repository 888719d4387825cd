"""A prompt without a chat template: text or tokens as they are, or the text around a gap that the model fills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

import llama_cpp

from ..runtime.llama import Llama
from .chat_turn import ChatTurn, grammar_of
from .engine.request import Request
from .request_error import RequestError
from .services import Server

#: llama.cpp's names of the repository and of the file with a gap, and its separator of files without names.
_REPOSITORY, _FILE, _SNIPPET = "myproject\n", "filename\n", "\n\n--- snippet ---\n\n"

#: A text, tokens, or some of both.
RawPrompt = str | Sequence[int | str]


async def raw_request(server: Server, turn: ChatTurn, prompt: RawPrompt) -> Request:
    """Return the request that continues a prompt.

    Parameters
    ----------
    turn : ChatTurn
        Settings of the answer, and documents before the prompt; its messages and tools are not used.

    Raises
    ------
    RequestError
        A document is unknown, the prompt has tokens that do not exist, or a form of the answer cannot be used.
    """
    n_characters = _length(prompt)
    grammar = await grammar_of(server, turn)
    tokens = await server.tokenized(partial(_tokens, server, prompt, not turn.documents, n_characters), n_characters)
    context = None
    if turn.documents:
        server.engine.limits.check(max(len(tokens), 1))
        question = server.engine.llama.detokenize(tokens).decode(errors="replace")
        context = await server.finder.open(turn.documents, turn.reads, question)
    generation = turn.generation.settled(context is not None)
    return Request(tokens=tokens, generation=generation, context=context, grammar=grammar)


async def text_of(server: Server, tokens: Sequence[int]) -> str:
    """Return the text of a prompt's tokens, control tokens included."""
    llama = server.engine.llama

    def text() -> str:
        return b"".join(llama.piece(token, special=True) for token in tokens).decode(errors="replace")

    return await server.tokenized(text, len(tokens))


@dataclass(frozen=True)
class Gap:
    """A gap in a text.

    Parameters
    ----------
    before, after : str
        Texts before and after the gap.
    begun : str
        How the gap's text begins.
    others : sequence of (str, str)
        Names and texts of files to know besides.
    """

    before: str
    after: str
    begun: str = ""
    others: Sequence[tuple[str, str]] = ()


def fills_gaps(llama: Llama) -> bool:
    """Return whether a model was made to fill gaps in texts."""
    return _GapTokens.of(llama).can_fill


async def gap_tokens(server: Server, gap: Gap, begins: bool = True) -> list[int]:
    """Return the tokens of a prompt for the text of a gap. No text of it becomes control tokens.

    Parameters
    ----------
    begins : bool
        Whether the prompt comes first.

    Raises
    ------
    RequestError
        The model was not made to fill gaps, or the texts are too long.
    """
    if not fills_gaps(server.engine.llama):
        raise RequestError(
            f"{server.engine.name} was not made to fill a gap in a text: send the text before the gap alone."
        )
    parts = _gap_parts(server.engine.llama, gap, begins)
    n_characters = _length(parts)
    return await server.tokenized(partial(_tokens, server, parts, False, n_characters, special=False), n_characters)


class _GapTokens(NamedTuple):
    """The tokens of a model that mark parts of such a prompt; negative where it has none."""

    prefix: int
    suffix: int
    middle: int
    repository: int
    file: int

    @classmethod
    def of(cls, llama: Llama) -> Self:
        """Return a model's tokens."""
        vocab = llama._model.vocab
        return cls(
            *(getattr(llama_cpp, f"llama_vocab_fim_{name}")(vocab) for name in ("pre", "suf", "mid", "rep", "sep"))
        )

    @property
    def can_fill(self) -> bool:
        """Return whether there are those that a gap needs."""
        return min(self.prefix, self.suffix, self.middle) >= 0


def _gap_parts(llama: Llama, gap: Gap, begins: bool) -> list[int | str]:
    """Return texts and tokens of a prompt, in the form of llama.cpp's server, but whole."""
    tokens = _GapTokens.of(llama)
    parts: list[int | str] = [llama.token_bos()] if begins and llama._model.add_bos_token() else []
    if tokens.repository >= 0:
        parts += [tokens.repository, _REPOSITORY]
    for name, text in gap.others:
        parts += [_SNIPPET, text] if tokens.file < 0 else [tokens.file, f"{name}\n", text]
    if tokens.file >= 0:
        parts += [tokens.file, _FILE]
    return [*parts, tokens.prefix, gap.before, tokens.suffix, gap.after, tokens.middle, gap.begun]


def _length(prompt: RawPrompt) -> int:
    """Return the number of characters of a prompt; a token counts as one."""
    return len(prompt) if isinstance(prompt, str) else sum(1 if isinstance(part, int) else len(part) for part in prompt)


def _tokens(server: Server, prompt: RawPrompt, begins: bool, n_characters: int, special: bool = True) -> list[int]:
    """Return a prompt's tokens. Raise RequestError for tokens that do not exist."""
    llama, tokens = server.engine.llama, list[int]()
    server.engine.limits.check_length(n_characters)
    for number, part in enumerate([prompt] if isinstance(prompt, str) else prompt):
        if isinstance(part, int):
            tokens.append(part)
        elif part:
            tokens += llama.tokenize(part.encode(), add_bos=begins and number == 0, special=special)
    n_vocab = llama.n_vocab()
    if any(not 0 <= token < n_vocab for token in tokens):
        raise RequestError(f"The prompt has a token that is not one of the model's {n_vocab:,}.", param="prompt")
    return tokens
