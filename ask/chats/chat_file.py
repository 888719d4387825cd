"""Save a conversation with its keys and values, so that it resumes at once, and read its file."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...convert.identity import RowSource
from ...errors import OctavoError
from ...runtime.document.cache_layer import Rows
from ...runtime.document.kept_state import BLOB, KeptState, kept_state
from ...runtime.llama import Llama
from ...runtime.sequences.sequence import steps_within
from ...system.files import DamagedError, FileVersion, make_private, map_arrays, stored_checksum, write_arrays
from .history import History, Message

_VERSION = 1

#: What decides the numbers of models that run as their files say (`RowSource.numbers`).
_ORDINARY = {"rope": [0.0, 0.0]}

#: Prefix of the names of arrays of recurrent states; the number of tokens and the array's own name follow.
_STATE = "state."

#: Why a conversation was saved: by the user ("named"), or automatically by `chat` or `ask`.
Kind = Literal["named", "chat", "question"]


class OtherText(OctavoError):
    """A conversation was over another text."""


@dataclass(frozen=True)
class Origin:
    """Where a conversation comes from.

    Parameters
    ----------
    documents : tuple of str, or None
        Absolute paths of the documents, folders and patterns that it is about; none without a document. None in files
        of older versions.
    model_path : str
        The model's file; "" in files of older versions.
    kind : Kind
        Who keeps it.
    """

    documents: tuple[str, ...] | None = None
    model_path: str = ""
    kind: Kind = "named"


@dataclass(frozen=True)
class Header:
    """What the file of a conversation says before its arrays.

    Parameters
    ----------
    source : RowSource
        What computed its keys and values.
    n_rows : int
        Arrays of keys and values.
    read : list of FileVersion
        The files that its answers came from, as they were then; none in files of older versions.
    """

    source: RowSource
    origin: Origin
    messages: list[Message]
    n_rows: int
    read: list[FileVersion]


@dataclass(frozen=True)
class Turn:
    """A question, the tokens in the context before it, and the unread tokens of the answer before."""

    question: str
    start: int
    unread: list[int]


@dataclass(frozen=True)
class Conversation:
    """The tokens of a context after the document.

    Parameters
    ----------
    follows : str
        Hash of the tokens before it: those of the document, or of nothing.
    rows : list of (keys, values), one for each layer
        Keys and values of the tokens; empty if the attention forgets some, so that the tokens must be read again.
    unread : list of int
        Tokens of the last answer that the model has not read yet.
    history : History, optional
        The messages; None in files of older versions.
    states : sequence of KeptState
        In a hybrid model, the recurrent states that were kept, in rising order: the last one is that after all tokens.
    steps : sequence of int
        The tokens, by their places in the context, that were steps of their own (see `TokenSequence`), if some may be
        read again: in a hybrid model, or without rows.
    """

    follows: str
    tokens: list[int]
    rows: list[Rows]
    unread: list[int]
    last: Turn | None
    history: History | None = None
    states: Sequence[KeptState] = ()
    steps: Sequence[int] = ()

    @classmethod
    def of(
        cls,
        llama: Llama,
        n_document: int,
        unread: list[int],
        last: Turn | None,
        history: History | None = None,
        with_rows: bool = True,
    ) -> Conversation:
        """Copy the conversation that the model's sequence holds after n_document tokens, perhaps its texts alone."""
        sequence, cache = llama.sequence, llama.sequence.cache
        tokens = sequence.tokens[n_document:].tolist()
        if not with_rows:
            return cls(hash_tokens(sequence.tokens[:n_document]), tokens, [], unread, last, history)
        if tokens:
            llama.context.keep_state()
        start = cache.n_tail - len(tokens)
        rows = [] if cache.evicts or not tokens else [cache.rows(i, start) for i in range(len(cache.layers))]
        kept = sequence.recurrent.kept if sequence.recurrent is not None else []
        states = [state for state in kept if state.n_tokens > n_document]
        is_needed = sequence.recurrent is not None or not rows
        steps = steps_within(sequence.steps if is_needed else [], n_document, sequence.n_tokens)
        return cls(hash_tokens(sequence.tokens[:n_document]), tokens, rows, unread, last, history, states, steps)

    def resume(self, llama: Llama, n_document: int) -> None:
        """Resume the conversation after n_document tokens, where the model holds nothing else.

        Raise OctavoError if it was over another document, or does not fit the context.
        """
        if self.follows != hash_tokens(llama.input_ids[:n_document]):
            raise OtherText("This conversation was over another document, or with another prompt.")
        llama.context.check_room(len(self.tokens))
        if self.rows and not llama.context.cache.evicts and bool(self.states) == llama.context.is_hybrid:
            llama.extend(self.tokens, self.rows, self.states, self.steps)
        elif self.tokens:
            llama.prefill(self.tokens, self.steps)


def hash_tokens(tokens: np.ndarray) -> str:
    """Return the hash of tokens, in hexadecimal digits."""
    return hashlib.sha256(np.asarray(tokens, np.int32).tobytes()).hexdigest()


def write_conversation(path: Path, conversation: Conversation, source: RowSource, origin: Origin = Origin()) -> None:
    """Write a conversation to a safetensors file, in place of an older one.

    Parameters
    ----------
    source : RowSource
        What computed its keys and values.

    Raises
    ------
    OctavoError
        The file cannot be written.
    """
    last = conversation.last
    header = {
        "format_version": _VERSION,
        **source._asdict(),
        "follows": conversation.follows,
        "unread": conversation.unread,
        "steps": list(conversation.steps),
        "last": last and [last.question, last.start, last.unread],
        "origin": [origin.documents, origin.model_path, origin.kind],
        "history": conversation.history and [conversation.history.messages, conversation.history.spoken],
        "read": conversation.history and conversation.history.read,
    }
    arrays: dict[str, np.ndarray] = {
        "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
        "tokens": np.array(conversation.tokens, np.int32),
    }
    for i, (keys, values) in enumerate(conversation.rows):
        arrays |= {f"keys.{i}": keys, f"values.{i}": values}
    for state in conversation.states:
        arrays |= {f"{_STATE}{state.n_tokens}.{name}": array for name, array in state.arrays.items()}
    make_private(path.parent)
    write_arrays(path, arrays)


def read_header(path: Path) -> Header:
    """Read what a file of `write_conversation` says before its arrays. Raise OctavoError if it is not one."""
    try:
        arrays = map_arrays(path)
        header = json.loads(arrays["header"].tobytes())
        if header["format_version"] != _VERSION:
            raise OctavoError(f"The conversation {path} was saved by another version of octavo.")
        documents, model_path, kind = header.get("origin", [None, "", "named"])
        origin = Origin(None if documents is None else tuple(documents), model_path, kind)
        messages = header["history"][0] if header.get("history") else []
        n_rows = sum(name.startswith("keys.") for name in arrays)
        return Header(_source_in(header), origin, messages, n_rows, _read_in(header))
    except (DamagedError, KeyError, ValueError, TypeError, OSError) as problem:
        raise OctavoError(f"{path} is not a conversation that octavo saved, or is damaged.") from problem


def _source_in(header: dict[str, Any]) -> RowSource:
    """Return what computed the rows of a file. In files of older versions, it was a model with nothing special."""
    return RowSource(str(header["model"]), str(header["kv_type"]), header.get("numbers", _ORDINARY))


def _read_in(header: dict[str, Any]) -> list[FileVersion]:
    """Return the files that the answers of a conversation came from."""
    return [FileVersion(*version) for version in header.get("read") or ()]


def _history_in(header: dict[str, Any]) -> History | None:
    """Return the messages of a conversation; None in files of older versions."""
    if not header.get("history"):
        return None
    messages, spoken = header["history"]
    return History(messages, spoken, _read_in(header))


def read_conversation(path: Path, source: RowSource, checked: bool = True) -> Conversation:
    """Read a file of `write_conversation`.

    Parameters
    ----------
    path : Path
        File that `write_conversation` wrote.
    source : RowSource
        The model that continues it, and how it computes; rows that were computed in another way are left out.
    checked : bool
        Whether to compare the file with its checksum.

    Raises
    ------
    OctavoError
        There is no such file, or it does not hold a conversation with this model.
    """
    if not path.is_file():
        raise OctavoError(f"There is no conversation {path}.")
    try:
        arrays = map_arrays(path, checked=checked and bool(stored_checksum(path)))  # older files have none
        header = json.loads(arrays["header"].tobytes())
        if header["format_version"] != _VERSION:
            raise OctavoError(f"The conversation {path} was saved by another version of octavo.")
        if (made_by := _source_in(header)).model != source.model:
            raise OctavoError(f"The conversation {path} was with another model.")
        n_layers = sum(name.startswith("keys.") for name in arrays) if made_by == source else 0
        return Conversation(
            follows=str(header["follows"]),
            tokens=arrays["tokens"].tolist(),
            rows=[(arrays[f"keys.{i}"], arrays[f"values.{i}"]) for i in range(n_layers)],
            states=_states_in(arrays),
            steps=[int(step) for step in header.get("steps", [])] if made_by == source else [],
            unread=[int(token) for token in header["unread"]],
            last=header["last"] and Turn(*header["last"]),
            history=_history_in(header),
        )
    except (DamagedError, KeyError, ValueError, TypeError, OSError) as problem:
        raise OctavoError(f"{path} is not a conversation that octavo saved, or is damaged.") from problem


def _states_in(arrays: dict[str, np.ndarray]) -> list[KeptState]:
    """Return the recurrent states in a file. Raise ValueError for others. Older files have blobs of llama.cpp."""
    states: defaultdict[int, dict[str, np.ndarray]] = defaultdict(dict)
    for name, array in arrays.items():
        if name.startswith(_STATE):
            n_tokens, _, kind = name.removeprefix(_STATE).partition(".")
            states[int(n_tokens)][kind or BLOB] = array
    return [kept_state(n_tokens, own) for n_tokens, own in sorted(states.items())]
