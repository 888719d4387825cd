"""Prompts on disk, with their keys and values: what was read once is not computed again, also after a restart."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...ask.conversation import Conversation, read_conversation, write_conversation
from ...errors import OctavoError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeptPrompt:
    """A prompt on disk.

    Parameters
    ----------
    path : Path
        Its file, as `write_conversation` wrote it.
    follows : str
        Hash of the tokens before it: those of a document, or of nothing.
    tokens : int32 array, shape (n_tokens,)
        Its tokens.
    n_bytes : int
        Size of the file.
    """

    path: Path
    follows: str
    tokens: np.ndarray
    n_bytes: int


class KeptPrompts:
    """The prompts of one model in a folder. Its methods may be called from any thread.

    Parameters
    ----------
    folder : Path
        Where they lie. It is made when the first one is kept.
    model : str
        Hash of the model file.
    kv_type : str
        How keys and values are stored.
    most_bytes : int
        What they may take together; those that were not used for longest go first. 0 keeps none.
    """

    def __init__(self, folder: Path, model: str, kv_type: str, most_bytes: int) -> None:
        self._folder, self._model, self._kv_type, self._most_bytes = folder, model, kv_type, most_bytes
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, "octavo-keeps-prompts")
        self._kept: list[KeptPrompt] = []  # those used last at the end
        for path in sorted(folder.glob("*.safetensors"), key=lambda path: path.stat().st_mtime):
            try:
                self._kept.append(self._described(path))
            except OctavoError:
                _log.warning("%s is no prompt of this model, or damaged: it is left alone.", path)

    def _described(self, path: Path) -> KeptPrompt:
        """Read what a file says of itself."""
        conversation = read_conversation(path, self._model, self._kv_type, checked=False)
        return KeptPrompt(path, conversation.follows, np.array(conversation.tokens, np.int32), path.stat().st_size)

    @property
    def n_bytes(self) -> int:
        """Return what they take."""
        with self._lock:
            return sum(each.n_bytes for each in self._kept)

    def longest(self, follows: str, tokens: np.ndarray) -> tuple[int, KeptPrompt | None]:
        """Find the prompt that shares most of its first tokens with these.

        Parameters
        ----------
        follows : str
            Hash of the tokens before them.
        tokens : int32 array, shape (n_tokens,)
            The tokens.

        Returns
        -------
        n_common : int
            How many tokens it shares.
        kept : KeptPrompt or None
            The prompt.
        """
        with self._lock:
            own = [each for each in self._kept if each.follows == follows]
        found = max(own, key=lambda each: n_common(each.tokens, tokens), default=None)
        return (n_common(found.tokens, tokens), found) if found else (0, None)

    def read(self, kept: KeptPrompt) -> Conversation:
        """Read a prompt from disk, and take note that it was used. A damaged one is removed.

        Raises
        ------
        OctavoError
            It is damaged, or gone.
        """
        try:
            conversation = read_conversation(kept.path, self._model, self._kv_type)
        except OctavoError:
            self._remove([kept])
            raise
        with self._lock:
            if kept in self._kept:
                self._kept.remove(kept)
                self._kept.append(kept)
        os.utime(kept.path)
        return conversation

    def keep(self, conversation: Conversation) -> None:
        """Write a prompt in the background, unless one on disk holds it. Those that it holds are removed."""
        if not self._most_bytes or not conversation.rows:
            return
        n_bytes = sum(rows.nbytes for layer in conversation.rows for rows in layer)
        if n_bytes <= self._most_bytes:
            self._writer.submit(self._write, conversation)

    def _write(self, conversation: Conversation) -> None:
        tokens = np.array(conversation.tokens, np.int32)
        if self.longest(conversation.follows, tokens)[0] == len(tokens):
            return
        name = hashlib.sha256(conversation.follows.encode() + tokens.tobytes()).hexdigest()[:32]
        path = self._folder / f"{name}.safetensors"
        try:
            write_conversation(path, conversation, self._model, self._kv_type)
        except OctavoError as problem:
            _log.warning("A prompt of %d tokens is not kept: %s", len(tokens), problem)
            return
        made = KeptPrompt(path, conversation.follows, tokens, path.stat().st_size)
        with self._lock:
            held = [each for each in self._kept if holds(made, each)]
            others = [each for each in self._kept if each not in held]
            room = self._most_bytes - made.n_bytes
            while others and sum(each.n_bytes for each in others) > room:
                held.append(others.pop(0))
            self._kept = [*others, made]
        self._remove([each for each in held if each.path != path])

    def _remove(self, gone: Sequence[KeptPrompt]) -> None:
        with self._lock:
            self._kept = [each for each in self._kept if each not in gone]
        for each in gone:
            each.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Wait until everything is written."""
        self._writer.shutdown()


def holds(kept: KeptPrompt, other: KeptPrompt) -> bool:
    """Return whether a prompt begins with all of another one."""
    return kept.follows == other.follows and n_common(kept.tokens, other.tokens) == len(other.tokens)


def n_common(tokens: np.ndarray, others: np.ndarray) -> int:
    """Return how many first tokens two sequences share."""
    n = min(len(tokens), len(others))
    differs = np.flatnonzero(tokens[:n] != others[:n])
    return int(differs[0]) if len(differs) else n
