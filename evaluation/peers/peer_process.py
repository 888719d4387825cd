"""Let another engine do what `octavo bench` asks for, turn by turn, in a process of its own.

The modules of this folder run in the environment of the engine that they drive, which has neither octavo nor NumPy. A
request is a line of JSON on standard input, with the name of a method of `Peer` as `do` and its arguments; the first
one is `load`. A reply is a line on standard output, with `result` or, in a sentence, what the engine `cannot` do.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class Cannot(Exception):
    """The engine cannot do this; the message is a sentence without its full stop."""


class Peer(ABC):
    """An engine with a model and one sequence of tokens. It measures its own seconds.

    Parameters
    ----------
    build : str
        What is known of the engine's version and build.
    decodes_in_turn : bool
        Whether `decode` computes while it is waited for, and not before: else its energy is unknown.
    """

    build: str
    decodes_in_turn = True

    @abstractmethod
    def read(self, tokens: list[int], last: bool) -> float:
        """Read a batch of a text, and return the seconds: 0 if the engine waits for the last batch to read them all."""

    @abstractmethod
    def decode(self, token: int) -> float:
        """Decode a token, and return the seconds. An engine that takes none decodes one of its own."""

    @abstractmethod
    def back(self, length: int) -> int:
        """Forget all tokens after the first `length`, or more, and return how many it still knows."""

    @abstractmethod
    def scores(self, tokens: list[int], lengths: list[int], path: str) -> list[float] | None:
        """Score the tokens that follow the first `length` tokens of a text, for each length.

        An engine with logits writes them to a file, float32, (lengths, n_vocab), and returns None. Another one returns
        the log-probability of each next token. One that has neither raises `Cannot`.
        """

    def ask(self, tokens: list[int]) -> float | None:
        """Read a question, and return the seconds; None if that would read the whole text again."""
        return None

    def peak_resident_bytes(self) -> int | None:
        """Return the most memory that the engine has held; None if the system does not say it."""
        return peak_resident_bytes()

    def close(self) -> None:  # noqa: B027 - most engines start nothing
        """End the programs that the engine started."""


class EvaluatingPeer(Peer):
    """An engine that reads, asks and decodes in the same way: it evaluates tokens after those before."""

    @abstractmethod
    def evaluate(self, tokens: list[int]) -> float:
        """Evaluate tokens, and return the seconds."""

    def read(self, tokens: list[int], last: bool) -> float:
        return self.evaluate(tokens)

    def decode(self, token: int) -> float:
        return self.evaluate([token])

    def ask(self, tokens: list[int]) -> float | None:
        return self.evaluate(tokens)


def peak_resident_bytes(process: int | str = "self") -> int | None:
    """Return the most memory that this process has held, or another one by its number; None if that is not known."""
    with suppress(OSError):  # Linux counts from the program's start; `getrusage` counts the memory of its parent, too
        status = Path(f"/proc/{process}/status").read_text("utf-8", "replace")
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if process != "self":
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, others KiB


def serve(load: Callable[..., Peer]) -> None:
    """Answer requests until standard input ends. What engines print goes to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)
        peer: Peer | None = None
        for line in sys.stdin:
            request = json.loads(line)
            method = request.pop("do")
            try:
                if peer is None:
                    peer = load(**request)
                    result = peer.build
                else:
                    result = getattr(peer, method)(**request)
                reply = {"result": result, "peak_resident_bytes": peer.peak_resident_bytes()}
                reply["decodes_in_turn"] = peer.decodes_in_turn
            except Exception as problem:  # whatever the engine raises is its answer
                reply = {"cannot": _sentence(problem)}
            replies.write(json.dumps(reply) + "\n")
            replies.flush()
    if peer is not None:
        peer.close()


def _sentence(problem: Exception) -> str:
    """Return what went wrong in one line: engines append the places in their source to it, or put them before."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    if isinstance(problem, Cannot) or not lines:
        return str(problem) or type(problem).__name__
    return lines[-1].removesuffix(".")
