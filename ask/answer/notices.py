"""Say what a user should know about an answer, in one wording behind every door.

Sentences have kinds: a door may leave some out, or add which option changes a limit. The kinds are thought_cut,
no_answer, length, loop, context, unfounded, changed, gone, damaged, whole, budget and drafts.

Names and numbers of an answer that are neither in the text that the model saw nor in the question are unfounded. No
finding does not mean that the answer is right (docs/sources.md has figures).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...library.document_parts import without_part
from ...library.source_text import CHANGED, GONE, SourceText, state_of_version
from ...runtime.cache.kv_cache import KVCache
from ...runtime.methods import DEFAULT_ATTENTION
from ...runtime.methods.attention import Attention
from .answer_stream import AnswerStream
from .written_numbers import WrittenNumbers

#: The number of a list's item.
_ITEM = re.compile(r"^\s*\d+[.)]\s", re.MULTILINE)

#: A word, the first letter of one after another word, and a word after another or a comma. With a capital letter it is
#: a name in most languages.
_WORD, _FOLLOWING = re.compile(r"[^\W\d_]+"), re.compile(r"(?<=[^\W\d_] )[^\W\d_]")
_NAME = re.compile(r"(?<=[^\W\d_] )[^\W\d_]+|(?<=[^\W\d_], )[^\W\d_]+")

#: Fewest letters of a name, and most words with a capital letter in a language whose nouns have none.
_LETTERS, _CAPITALS = 3, 0.2

#: Names that a sentence lists.
_LISTED = 3


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
    """Return a sentence about names and numbers that `unfounded` found, if there are any."""
    if not found:
        return {}
    more = [f"{len(found) - _LISTED} more"] if len(found) > _LISTED else []
    *first, last = [*found[:_LISTED], *more]
    listed = f"{', '.join(first)} and {last} are" if first else f"{last} is"
    return {"unfounded": f"{listed} not in the text that was read."}


def notices_of_changed(documents: Iterable[SourceText]) -> dict[str, str]:
    """Return sentences about documents whose files have changed since their texts were taken from them, or are gone."""
    names = {each.version: without_part(each.name) for each in documents if each.version is not None}
    states = {version: state_of_version(version) for version in names}
    changed, gone = (
        dict.fromkeys(names[version] for version, each in states.items() if each == state) for state in (CHANGED, GONE)
    )
    notices: dict[str, str] = {}
    if changed:
        have = "has changed since it was read" if len(changed) == 1 else "have changed since they were read"
        notices["changed"] = f"{', '.join(changed)} {have}: the answer comes from the text before."
    if gone:
        are = "is gone, or cannot be reached" if len(gone) == 1 else "are gone, or cannot be reached"
        notices["gone"] = f"{', '.join(gone)} {are}: the answer comes from the text that was read."
    return notices


def notices_of_damaged(names: Iterable[str]) -> dict[str, str]:
    """Return a sentence about documents whose indexes are made again while their texts answer, if any."""
    if not (listed := ", ".join(names)):
        return {}
    return {"damaged": f"The index of {listed} is damaged, and is made again: the answer comes from passages."}


def notices_of_whole(is_asked_for: bool, share: float) -> dict[str, str]:
    """Return a sentence about a question about a whole text (question_words.py), if its answer saw a share."""
    if not is_asked_for or share >= 1:
        return {}
    return {"whole": "The question seems to be about all of the text, and the answer comes from a part of it."}


def notices_of_settings(attention: Attention, draft: int | None, cache: KVCache, no_drafts: str) -> dict[str, str]:
    """Return warnings if what a user chose cannot be had.

    An attention may not keep its budget over the document, or the context; and a length of drafts may have no effect,
    for a reason (`Context.no_drafts`).
    """
    notices: dict[str, str] = {}
    if attention != Attention.parse(DEFAULT_ATTENTION) and (
        warning := cache.budget_warning(cache.n_document or cache.n_ctx)
    ):
        notices["budget"] = warning
    if draft and no_drafts:
        notices["drafts"] = f"Nothing is drafted: {no_drafts}."
    return notices


def unfounded(answer: str, known: Sequence[str], document: Iterable[bytes] = ()) -> list[str]:
    """Return the names and numbers of an answer that are in no known text, each once.

    Parameters
    ----------
    known : sequence of str
        Texts that the model saw, as the questions.
    document : iterable of bytes
        The bytes of the document's tokens.
    """
    text = "\n".join([b"".join(document).decode(errors="replace"), *known])
    words, known_numbers = {word.casefold() for word in _WORD.findall(text)}, WrittenNumbers(text)
    following, found = _FOLLOWING.findall(text), list[str]()
    numbers, answer = known_numbers.unknown(_ITEM.sub("", answer))
    if sum(map(str.isupper, following)) < _CAPITALS * max(len(following), 1):
        names = (name for name in _NAME.findall(answer) if len(name) >= _LETTERS and name[0].isupper())
        found += [name for name in names if not _has(words, name) and not known_numbers.has_month(name)]
    return list(dict.fromkeys([*found, *numbers]))


def _has(words: set[str], name: str) -> bool:
    """Return whether a word is among others, perhaps with or without an ending."""
    word = name.casefold()
    return not words.isdisjoint({word, word.removesuffix("s"), word.removesuffix("es"), f"{word}s", f"{word}es"})
