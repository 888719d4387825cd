"""Keep prompts on disk with their keys and values, so that they are not computed again, even after a restart."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...ask.chats.chat_file import Conversation, read_conversation, write_conversation
from ...convert.identity import RowSource
from ...errors import OctavoError
from ...runtime.sequences.sequence import n_common
from ...system.files import by_age

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CachedPrompt:
    """A prompt on disk.

    Parameters
    ----------
    path : Path
        A file of `write_conversation`.
    follows : str
        Hash of the tokens before it: those of a document, or of nothing.
    tokens : int32 array
        Its tokens; none if its rows were computed in another way, so that they do not serve.
    n_bytes : int
        Size of the file.
    state_ends : list of int
        In a hybrid model, the numbers of tokens after which its recurrent state was kept.
    """

    path: Path
    follows: str
    tokens: np.ndarray
    n_bytes: int
    state_ends: list[int]

    @classmethod
    def of(cls, path: Path, conversation: Conversation) -> CachedPrompt:
        """Describe the file of a prompt."""
        ends = [state.n_tokens for state in conversation.states]
        tokens = np.array(conversation.tokens if conversation.rows else [], np.int32)
        return cls(path, conversation.follows, tokens, path.stat().st_size, ends)


class PromptCache:
    """The prompts of one model in a folder. Any thread may call its methods.

    Parameters
    ----------
    folder : Path
        The folder of their files. The first prompt creates it.
    source : RowSource
        The model, and how it computes.
    most_bytes : int
        Limit of all files together; the least recently used ones go first. 0 keeps none.
    """

    def __init__(self, folder: Path, source: RowSource, most_bytes: int) -> None:
        self._folder, self._source, self._most_bytes = folder, source, most_bytes
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, "octavo-keeps-prompts")
        self._prompts: list[CachedPrompt] = []  # least recently used first
        for path in by_age(folder.glob("*.safetensors")):
            try:
                self._prompts.append(self._described(path))
            except (OctavoError, FileNotFoundError):
                _log.warning("%s is not a prompt of this model, or is damaged: octavo leaves it alone.", path)

    def _described(self, path: Path) -> CachedPrompt:
        """Read a file's description of its prompt."""
        return CachedPrompt.of(path, read_conversation(path, self._source, checked=False))

    @property
    def n_bytes(self) -> int:
        """Return the bytes of all files."""
        with self._lock:
            return sum(prompt.n_bytes for prompt in self._prompts)

    def longest(self, follows: str, tokens: np.ndarray) -> tuple[int, CachedPrompt | None]:
        """Find the prompt with the longest common prefix with some tokens; return the length of the prefix, too.

        Parameters
        ----------
        follows : str
            Hash of the tokens before them.
        """
        with self._lock:
            following = [prompt for prompt in self._prompts if prompt.follows == follows]
        found = max(following, key=lambda prompt: n_common(prompt.tokens, tokens), default=None)
        return (n_common(found.tokens, tokens), found) if found else (0, None)

    def read(self, prompt: CachedPrompt) -> Conversation:
        """Read a prompt from disk, and note its use. Remove a damaged one.

        Raise OctavoError if it is damaged, or gone.
        """
        try:
            conversation = read_conversation(prompt.path, self._source)
        except OctavoError:
            self._remove([prompt])
            raise
        with self._lock:
            if prompt in self._prompts:
                self._prompts.remove(prompt)
                self._prompts.append(prompt)
        with suppress(OSError):  # another server of this library has removed it just now
            os.utime(prompt.path)
        return conversation

    def keep(self, conversation: Conversation) -> None:
        """Write a prompt in the background, unless a prompt on disk contains it. Remove those that it contains."""
        if not self._most_bytes or not conversation.rows:
            return
        n_bytes = sum(rows.nbytes for layer in conversation.rows for rows in layer)
        n_bytes += sum(state.n_bytes for state in conversation.states)
        if n_bytes <= self._most_bytes:
            self._writer.submit(self._write, conversation)

    def _write(self, conversation: Conversation) -> None:
        tokens = np.array(conversation.tokens, np.int32)
        if self.longest(conversation.follows, tokens)[0] == len(tokens):
            return
        name = hashlib.sha256(conversation.follows.encode() + tokens.tobytes()).hexdigest()[:32]
        path = self._folder / f"{name}.safetensors"
        try:
            write_conversation(path, conversation, self._source)
            written = CachedPrompt.of(path, conversation)
        except (OctavoError, FileNotFoundError) as problem:
            _log.warning("A prompt of %d tokens is not kept: %s", len(tokens), problem)
            return
        with self._lock:
            superseded = [prompt for prompt in self._prompts if holds(written, prompt)]
            others = [prompt for prompt in self._prompts if prompt not in superseded]
            room = self._most_bytes - written.n_bytes
            while others and sum(prompt.n_bytes for prompt in others) > room:
                superseded.append(others.pop(0))
            self._prompts = [*others, written]
        self._remove([prompt for prompt in superseded if prompt.path != path])

    def _remove(self, gone: Sequence[CachedPrompt]) -> None:
        with self._lock:
            self._prompts = [prompt for prompt in self._prompts if prompt not in gone]
        for prompt in gone:
            prompt.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Wait until all prompts are written."""
        self._writer.shutdown()


def holds(prompt: CachedPrompt, other: CachedPrompt) -> bool:
    """Return whether a prompt begins with all of another one."""
    n_others = len(other.tokens)
    return prompt.follows == other.follows and 0 < n_others == n_common(prompt.tokens, other.tokens)
