"""Run a llama-bench that the user built, which reads and decodes random tokens, and says how long that takes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from .peer_process import Cannot, Peer, serve


class LlamaBench(Peer):
    """A program that measures one length after another, each in a process.

    Parameters
    ----------
    program : str
        Path of llama-bench.
    n_decode : int
        Tokens to decode after a text.
    """

    decodes_in_turn = False

    def __init__(
        self,
        program: str,
        model: str,
        n_batch: int,
        n_threads: int,
        cache_type: str,
        flash_attention: bool,
        n_decode: int,
        **_: Any,
    ) -> None:
        self.command = [program, "-m", model, "-t", str(n_threads), "-b", str(n_batch), "-ub", str(n_batch)]
        self.command += ["-ctk", cache_type, "-ctv", cache_type, "-fa", str(int(flash_attention)), "-r", "1"]
        self.command += ["-o", "json"]
        self.n_decode, self.length = n_decode, 0
        self.token_s: float | None = None
        self.build = program

    def _seconds(self, *arguments: int | str) -> float:
        command = [*self.command, *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        try:
            [result] = json.loads(done.stdout)
        except ValueError as problem:
            raise Cannot(f"{Path(command[0]).name} ends with code {done.returncode} and without a result") from problem
        self.build = f"llama.cpp {result.get('build_number', '')}, {result.get('cpu_info', '')}"
        return float(result["avg_ns"]) / 1e9

    def read(self, tokens: list[int], last: bool) -> float:
        self.length += len(tokens)
        return self._seconds("-p", self.length, "-n", 0) if last else 0.0

    def decode(self, token: int) -> float:
        if self.token_s is None:
            self.token_s = self._seconds("-p", 0, "-n", self.n_decode, "-d", self.length) / self.n_decode
        return self.token_s

    def back(self, length: int) -> int:
        self.length, self.token_s = 0, None
        return 0

    def peak_resident_bytes(self) -> None:
        return None  # of processes that have ended

    def scores(self, tokens: list[int], lengths: list[int], path: str) -> None:
        raise Cannot("it reads random tokens, which have no loss")


def main() -> None:
    """Serve requests."""
    serve(LlamaBench)
