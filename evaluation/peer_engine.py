"""Drive another engine, in a process of its own, as `octavo bench` drives its own engines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Timer
from typing import Any

import numpy as np

from .engines import Measured
from .peer_environments import is_installed, python_of
from .peer_table import Peer

#: The program of the process: a module of the folder `peers`, which is last on the path.
_PROGRAM = "import importlib, sys; sys.path.append(sys.argv[1]); importlib.import_module('peers.' + sys.argv[2]).main()"

#: Seconds to wait around a turn, in which the threads of the engine before stop spinning.
_SETTLES = 0.01

#: Seconds for an engine to end.
_GRACE = 10


@dataclass
class PeerEngine(Measured):
    """One way to run a peer, and its measurements at the current depth.

    What a peer cannot do is kept as a sentence in `cannot`; it is asked for nothing more.

    Parameters
    ----------
    peer : Peer
        The engine.
    way : dict
        Arguments of this way to run it.
    patience_s : float
        Seconds after which a request is given up.
    log_probs : list of float
        Log-probabilities of the text's next tokens, of a peer without logits.
    peak_resident_bytes : int
        The most memory that the process has held while it read and decoded.
    decodes_in_turn : bool
        Whether the peer computes a token while it is waited for: only then its energy is measured.
    """

    peer: Peer
    way: dict[str, Any]
    n_threads: int
    patience_s: float = 3600.0
    n_tokens: int = field(default=0, init=False)
    cannot: str | None = field(default=None, init=False)
    build: str = field(default="", init=False)
    log_probs: list[float] = field(default_factory=list, init=False)
    peak_resident_bytes: int | None = field(default=None, init=False)
    decodes_in_turn: bool = field(default=True, init=False)
    _request_joules: float = field(default=0.0, init=False)
    _process: subprocess.Popen[str] | None = field(default=None, init=False)

    def load(self, model: str, **settings: Any) -> None:
        """Start the process, and load the model with the arguments of this way."""
        if not is_installed(self.peer):
            self.cannot = f"{self.peer.package} is not installed"
            return
        self._folder = tempfile.TemporaryDirectory()
        self._errors = (Path(self._folder.name) / "errors.txt").open("w+b")
        command = [python_of(self.peer), "-P", "-c", _PROGRAM, str(Path(__file__).parent), self.peer.script]
        threads = {name: str(self.n_threads) for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS")}
        environment = {**os.environ, **threads}
        if self.peer.package is not None:
            environment.pop("PYTHONPATH", None)
        pipe = subprocess.PIPE
        # A group of its own keeps Ctrl-C away, and ends with the programs that the process started.
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True, env=environment, process_group=0
        )
        build = self._request("load", model=model, folder=self._folder.name, **settings, **self.way)
        self.build = build or ""

    @property
    def flash_attention(self) -> bool | None:
        """Whether flash attention is on; None where an engine has no choice."""
        return self.way.get("flash_attention")

    def _request(self, do: str, **arguments: Any) -> Any:
        """Return the result of a request; None from a peer that cannot."""
        if self.cannot is not None:
            return None
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        time.sleep(_SETTLES)
        before = self.meter.look()
        is_late = Event()
        patience = Timer(self.patience_s, self._give_up, [process, is_late])
        patience.start()
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
                process.stdin.flush()
            line = process.stdout.readline()
        finally:
            patience.cancel()  # interrupted, too: Python waits for the thread, and the number may be another process's
        self._request_joules = self.meter.joules_since(before)  # without the sleeps around the turn
        time.sleep(_SETTLES)
        if not line.endswith("\n"):  # it died, maybe in the middle of a line
            late = f"given up after {self.patience_s:,.0f} seconds in one turn"
            self.cannot = late if is_late.is_set() else self._last_words(process)
            return None
        reply = json.loads(line)
        if do != "scores":
            self.cannot = reply.get("cannot")
            self.peak_resident_bytes = reply.get("peak_resident_bytes", self.peak_resident_bytes)
            self.decodes_in_turn = reply.get("decodes_in_turn", self.decodes_in_turn)
        return reply.get("result", False)

    def _give_up(self, process: subprocess.Popen[str], is_late: Event) -> None:
        is_late.set()
        _kill(process)

    def _last_words(self, process: subprocess.Popen[str]) -> str:
        code = _ended(process)
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        return f"its process ended with code {code}" + (f": {last}" if last else "")

    def prefill(self, tokens: list[int], last: bool) -> None:
        """Read a batch of the text. Some peers wait for the last one, and read them all."""
        self.prefill_s += self._request("read", tokens=tokens, last=last) or 0.0
        self.n_tokens += len(tokens)

    def decode(self, token: int, warm: bool) -> None:
        """Read one token, or draw one. Of a warm engine keep time and energy."""
        seconds = self._request("decode", token=token)
        self.n_tokens += 1
        if warm and seconds is not None:
            self.decode_s.append(seconds)
            self.joules += self._request_joules

    @property
    def joules_per_token(self) -> float | None:
        return super().joules_per_token if self.decodes_in_turn else None

    def ask(self, tokens: list[int]) -> None:
        """Read a question, and keep the time, where the peer can."""
        seconds = self._request("ask", tokens=tokens)
        self.n_tokens += len(tokens)
        if seconds is not None:
            self.ask_s.append(seconds)

    def back_to(self, depth: int) -> None:
        """Forget all tokens after the first `depth`, or all."""
        self.n_tokens = self._request("back", length=depth) or 0
        if not self.n_tokens:
            self.prefill_s = 0.0
        self.forget_measurements()
        self.log_probs = []

    def score(self, tokens: list[int], lengths: list[int], n_vocab: int) -> None:
        """Keep the logits after the first `length` tokens for each length, or the next tokens' log-probabilities."""
        if self.cannot is not None:
            return
        path = Path(self._folder.name) / "scores"
        result = self._request("scores", tokens=tokens, lengths=lengths, path=str(path))
        if self.cannot is None and result is None:
            self.logits = list(np.fromfile(path, np.float32).astype(np.float64).reshape(len(lengths), n_vocab))
            path.unlink()
        elif result:
            self.log_probs = result

    def close(self) -> None:
        """End the process, if it was started."""
        if self._process is None:
            return
        process, pipe = self._process, self._process.stdin
        assert pipe is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            pipe.close()
        if process.returncode is None:  # else its number may be another process's
            _ended(process)
        process.stdout.close()
        self._errors.close()
        self._folder.cleanup()


def _ended(process: subprocess.Popen[str]) -> int:
    """Wait for a process to end, kill it if it does not, and what it started; return its code."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    _kill(process)
    return process.wait()


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the group of a process: itself, and the programs that it started."""
    with suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group that has ended
        os.killpg(process.pid, signal.SIGKILL)
