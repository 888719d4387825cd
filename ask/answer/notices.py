"""Say what a user should know about an answer, in one wording behind every door.

Sentences have kinds: a door may leave some out, or add which option changes a limit. The kinds are thought_cut,
no_answer, length, loop, context, unfounded, changed, whole and budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ...library.file_state import CHANGED, state_of_version
from ...library.source_text import SourceText
from ...runtime.cache.kv_cache import KVCache
from ...runtime.methods import DEFAULT_ATTENTION
from ...runtime.methods.attention import Attention
from .answer_stream import AnswerStream
from .grounding import sentence_about


def notices_of_end(stream: AnswerStream, n_ctx: int, thinks: bool) -> dict[str, str]:
    """Return sentences about how an answer ended, by kind.

    Parameters
    ----------
    n_ctx : int
        Largest number of tokens in the context.
    thinks : bool
        Whether the model may think. If not, cutting its thoughts needs no notice.
    """
    notices: dict[str, str] = {}
    if stream.thought_cut and thinks:
        notices["thought_cut"] = f"The thought was ended after {stream.n_thought:,} tokens."
    if stream.reason == "stop" and stream.reasoning and not stream.text:
        notices["no_answer"] = "The model thought, and ended without an answer."
    if stream.reason == "length":
        n_answer = stream.n_tokens - stream.n_thought
        notices["length"] = f"The answer was cut after {n_answer:,} tokens."
    elif stream.reason == "loop":
        notices["loop"] = "The answer was stopped: the model repeated itself."
    elif stream.reason == "context":
        notices["context"] = f"The answer was cut: the context of {n_ctx:,} tokens is full."
    return notices


def notices_of_unfounded(found: Sequence[str]) -> dict[str, str]:
    """Return a sentence about names and numbers that are not in the text of the documents (grounding.py), if any."""
    return {"unfounded": sentence_about(found)} if found else {}


def notices_of_changed(documents: Iterable[SourceText]) -> dict[str, str]:
    """Return a sentence about documents whose files have changed since their texts were taken from them, if any."""
    versions = (document.version for document in documents if document.version is not None)
    names = dict.fromkeys(Path(each.path).name for each in versions if state_of_version(each) == CHANGED)
    if not names:
        return {}
    have = "has changed since it was read" if len(names) == 1 else "have changed since they were read"
    return {"changed": f"{', '.join(names)} {have}: the answer comes from the text before."}


def notices_of_whole(is_asked_for: bool, share: float) -> dict[str, str]:
    """Return a sentence about a question about a whole text (question_kinds.py), if its answer saw a share of it."""
    if not is_asked_for or share >= 1:
        return {}
    return {"whole": "The question seems to be about all of the text, and the answer comes from a part of it."}


def notices_of_budget(attention: Attention, cache: KVCache) -> dict[str, str]:
    """Return a warning if an attention that a user chose cannot keep its budget over the document, or the context."""
    if attention == Attention.parse(DEFAULT_ATTENTION):
        return {}
    warning = cache.budget_warning(cache.n_document or cache.n_ctx)
    return {"budget": warning} if warning else {}
