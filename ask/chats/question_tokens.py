"""The tokens of a conversation's next question."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ...errors import OctavoError, PromptError
from ...prompts.conversation_tokens import ConversationTokens
from ...runtime.llama import Llama
from ...runtime.sequences.sequence import n_common
from .history import History


def question_tokens(
    llama: Llama,
    prompt: ConversationTokens,
    history: History | None,
    unread: Sequence[int],
    n_document: int,
    question: str,
) -> list[int]:
    """Return the tokens of a question that the model has not evaluated. Go back to the tokens before them.

    The context holds more tokens than that if the template now writes an earlier answer in another way.

    Parameters
    ----------
    history : History, optional
        The conversation with this question; None if only its tokens are known.
    unread : sequence of int
        Tokens of the last answer that the model has not evaluated.
    n_document : int
        Tokens before the conversation.

    Raises
    ------
    OctavoError
        The question does not fit the context.
    """
    tokens = list[int]()
    if history is not None and prompt.has_template:
        with suppress(PromptError):
            tokens = prompt.tokens(history.messages, written=history.spoken)
    if tokens:
        n_same = n_common(llama.sequence.tokens[n_document:], tokens[:-1])
        tokens, n_kept = tokens[n_same:], n_document + n_same
    else:
        n_kept, is_first = llama.n_tokens, llama.n_tokens == n_document
        following = prompt.first_question(question) if is_first else prompt.next_question(question)
        tokens = [*unread, *following]
    n_tokens = n_kept + len(tokens)
    if n_tokens >= llama.longest:
        raise OctavoError(
            f"The question does not fit: {n_tokens:,} tokens, and the context holds {llama.longest:,}. Use /clear "
            "to forget the conversation, or give a larger context with `n_ctx`."
        )
    if n_kept < llama.n_tokens:
        llama.rewind(n_kept)
    return tokens
