"""Run llama.cpp's server by its `/completion`: one of xllamacpp's, in this process, or a program that the user built.

The prompt grows by the tokens of `octavo bench`, and the server keeps its sequence. So each request computes the new
tokens alone, and the server's own clock measures that. It would keep the tokens that were decoded, too, which come next
in the text: it forgets them by a request that ends before them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from array import array
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from .peer_process import Cannot, EvaluatingPeer, peak_resident_bytes, serve

Complete = Callable[[dict[str, Any]], dict[str, Any]]

#: Seconds for a server to load its model, and to answer a request.
_STARTS, _ANSWERS = 600, 3600


class Completions(EvaluatingPeer):
    """A server with one slot.

    Parameters
    ----------
    complete : callable
        Send the body of a request, and return the answer.
    n_vocab : int
        Tokens of the vocabulary: a request for as many probabilities gets them all.
    """

    def __init__(self, complete: Complete, build: str, n_vocab: int) -> None:
        self.complete, self.build, self.n_vocab = complete, build, n_vocab
        self.tokens: list[int] = []

    def _request(self, prompt: list[int], n_probs: int = 0, known: bool = True) -> dict[str, Any]:
        body = {"prompt": prompt, "n_predict": 1, "cache_prompt": known, "n_probs": n_probs, "temperature": 0.0}
        answer = self.complete({**body, "samplers": ["temperature"], "ignore_eos": True})
        if "timings" not in answer:
            raise Cannot(f"it answers {json.dumps(answer)[:200]}")
        return answer

    def evaluate(self, tokens: list[int]) -> float:
        known = bool(self.tokens)
        self.tokens += tokens
        timings = self._request(self.tokens, known=known)["timings"]
        if timings["prompt_n"] != len(tokens):
            raise Cannot(f"it read {timings['prompt_n']:,} tokens where {len(tokens):,} were new")
        return float(timings["prompt_ms"]) / 1e3

    def back(self, length: int) -> int:
        del self.tokens[length:]
        if self.tokens:
            self._request(self.tokens)
        return length

    def scores(self, tokens: list[int], lengths: list[int], path: str) -> None:
        with Path(path).open("wb") as file:
            for length in lengths:
                [scored] = self._request(tokens[:length], self.n_vocab)["completion_probabilities"]
                row = array("f", [float("-inf")]) * self.n_vocab
                for each in scored["top_logprobs"]:
                    row[each["id"]] = each["logprob"]
                row.tofile(file)


def load(model: str, n_vocab: int, program: str | None = None, **settings: Any) -> Completions:
    """Start a program, or the server of xllamacpp."""
    if program is not None:
        return Program(program, model, n_vocab, **settings)
    return Completions(*_xllamacpp(model, **settings), n_vocab)


def _xllamacpp(
    model: str, n_ctx: int, n_batch: int, n_threads: int, cache_type: str, flash_attention: bool, **_: Any
) -> tuple[Complete, str]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel, params.n_batch, params.n_ubatch = n_ctx, 1, n_batch, n_batch
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = n_threads
    params.cache_type_k = params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{cache_type.upper()}")
    params.flash_attn_type = xllamacpp.llama_flash_attn_type(int(flash_attention))
    params.cache_ram_mib = 0  # which keeps copies of the cache in memory
    server = xllamacpp.Server(params)

    def complete(body: dict[str, Any]) -> dict[str, Any]:
        answer = dict(server.handle_completions(body))
        if answer.get("choices"):  # in OpenAI's form
            probabilities = answer["choices"][0]["logprobs"] or {}
            answer["completion_probabilities"] = probabilities.get("content")
        return answer

    return complete, str(xllamacpp.get_system_info()).strip()


class Program(Completions):
    """A program that takes the options of llama-server, on a port of this machine."""

    def __init__(
        self,
        program: str,
        model: str,
        n_vocab: int,
        n_ctx: int,
        n_batch: int,
        n_threads: int,
        cache_type: str,
        flash_attention: bool,
        **_: Any,
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._address = f"http://127.0.0.1:{port}"
        command = [program, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-c", str(n_ctx), "-np", "1"]
        command += ["-b", str(n_batch), "-ub", str(n_batch), "-t", str(n_threads), "-tb", str(n_threads)]
        command += ["-ctk", cache_type, "-ctv", cache_type, "-fa", "on" if flash_attention else "off"]
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        self._process = subprocess.Popen(command, stdout=2, env=environment)
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        ends = time.monotonic() + _STARTS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > ends:
                raise Cannot(f"{Path(program).name} does not start with this model")
            time.sleep(0.1)
        super().__init__(self._post, program, n_vocab)

    def _is_ready(self) -> bool:
        with suppress(urllib.error.URLError, OSError), self._open(f"{self._address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._address}/completion", json.dumps(body).encode(), headers)
        try:
            with self._open(request, timeout=_ANSWERS) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as problem:
            raise Cannot(f"it answers {problem.read().decode(errors='replace')[:200]}") from problem

    def peak_resident_bytes(self) -> int | None:
        return peak_resident_bytes(self._process.pid)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def main() -> None:
    """Serve requests."""
    serve(load)
