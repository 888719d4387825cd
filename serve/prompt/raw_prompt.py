"""A prompt without a chat template: text or tokens as they are, or the text around a gap that the model fills."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import llama_cpp

from ...runtime.llama import Llama
from ..engine.request import Request
from ..http.api_error import RequestError
from ..http.server import Server
from .chat_turn import ChatTurn, grammar_of

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
    document = None
    if turn.documents:
        question = server.engine.llama.detokenize(tokens).decode(errors="replace")
        document = await server.finder.open(turn.documents, turn.reads, question)
    return Request(**vars(turn.generation), tokens=tokens, document=document, grammar=grammar)


def fills_gaps(llama: Llama) -> bool:
    """Return whether a model was made to fill gaps in texts."""
    return min(_gap_marks(llama)) >= 0


async def gap_tokens(server: Server, before: str, after: str, begun: str = "", begins: bool = True) -> list[int]:
    """Return the tokens of a prompt for the text of a gap. The texts around it never become control tokens.

    Parameters
    ----------
    before, after : str
        Texts before and after the gap.
    begun : str
        How the gap's text begins.
    begins : bool
        Whether nothing stands before the prompt.

    Raises
    ------
    RequestError
        The model was not made to fill gaps, or the texts are too long.
    """
    llama, n_characters = server.engine.llama, len(before) + len(after) + len(begun)
    if not fills_gaps(llama):
        raise RequestError(
            f"{server.engine.name} was not made to fill a gap in a text: send the text before the gap alone."
        )
    server.engine.limits.check_length(n_characters)

    def tokens(text: str) -> list[int]:
        return list(llama.tokenize(text.encode(), add_bos=False, special=False)) if text else []

    first = [llama.token_bos()] if begins and llama._model.add_bos_token() else []
    prefix, suffix, middle = _gap_marks(llama)
    return await server.tokenized(
        lambda: [*first, prefix, *tokens(before), suffix, *tokens(after), middle, *tokens(begun)], n_characters
    )


def _gap_marks(llama: Llama) -> tuple[int, int, int]:
    """Return the tokens before the text before a gap, before the text after it, and before the gap's text."""
    vocab = llama._model.vocab
    finders = (llama_cpp.llama_vocab_fim_pre, llama_cpp.llama_vocab_fim_suf, llama_cpp.llama_vocab_fim_mid)
    prefix, suffix, middle = (int(find(vocab)) for find in finders)
    return prefix, suffix, middle


def _length(prompt: RawPrompt) -> int:
    """Return the number of characters of a prompt; a token counts as one."""
    return len(prompt) if isinstance(prompt, str) else sum(1 if isinstance(part, int) else len(part) for part in prompt)


def _tokens(server: Server, prompt: RawPrompt, begins: bool, n_characters: int) -> list[int]:
    """Return a prompt's tokens. Raise RequestError for tokens that do not exist."""
    llama, tokens = server.engine.llama, list[int]()
    server.engine.limits.check_length(n_characters)
    for number, part in enumerate([prompt] if isinstance(prompt, str) else prompt):
        if isinstance(part, int):
            tokens.append(part)
        elif part:
            tokens += llama.tokenize(part.encode(), add_bos=begins and number == 0, special=True)
    n_vocab = llama.n_vocab()
    if any(not 0 <= token < n_vocab for token in tokens):
        raise RequestError(f"The prompt has a token that is not one of the model's {n_vocab:,}.", param="prompt")
    return tokens
