"""Time steps of a token and its draft on one thread, over texts of several lengths, and what a drafted token adds.

    python benchmarks/drafted_steps.py MODEL.gguf [--text 64 2500 8000] [--tokens 1 2 4 8 16] [--repeats 9]

All drafts are right. It prints milliseconds of the process's CPU time, the median of interleaved runs: of a whole step
until its last token is taken, of llama.cpp's graph in it, and the share of a step of one token that each drafted token
adds. The text is octavo's documentation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

import octavo
from octavo.cli.render import markdown_table, say
from octavo.cpu_kernels.numba_support.machine import cpu_name
from octavo.runtime.drafting import drafting
from octavo.runtime.sequences.drafter import Drafter

_DOCS = Path(__file__).resolve().parents[1] / "docs"
_HEADS = ["tokens of the text", "of a step", "ms", "of the graph", "steps of one", "for each drafted token"]


class _Known(Drafter):
    """Draft a text that is known: all that there is room for, and at most `length` tokens."""

    def __init__(self, tokens: list[int]) -> None:
        super().__init__()
        self._tokens, self.length = tokens, 0

    def draft(self, tokens: np.ndarray, room: int) -> list[int]:
        return self._tokens[len(tokens) : len(tokens) + min(self.length, room)]


class _Timed:
    """Add up the processor time in calls of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.seconds = function, 0.0

    def __call__(self, *arguments: Any) -> Any:
        began = time.process_time()
        result = self._function(*arguments)
        self.seconds += time.process_time() - began
        return result


def milliseconds(llama: octavo.Llama, tokens: list[int], drafter: _Known, length: int) -> tuple[float, float]:
    """Return the time of a step with a draft of so many tokens, and of the graph in it."""
    n_text = llama.n_tokens
    drafter.length = 0
    llama.eval(tokens[n_text : n_text + 1])
    drafter.length, graph = length, _Timed(llama_cpp.llama_decode)
    llama_cpp.llama_decode, before = graph, llama_cpp.llama_decode
    began = time.process_time()
    for token in tokens[n_text + 1 : n_text + 2 + length]:
        llama.eval([token])
    took = time.process_time() - began
    llama_cpp.llama_decode = before
    llama.rewind(n_text)
    return 1e3 * took, 1e3 * graph.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", type=int, nargs="+", default=[64, 2500, 8000], help="tokens before the steps")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="of steps")
    parser.add_argument("--repeats", type=int, default=9, help="runs of each (9)")
    arguments = parser.parse_args()
    sizes = sorted({1, *arguments.tokens})
    n_most = max(arguments.text) + sizes[-1] + 1
    llama = octavo.Llama(arguments.model, attention="auto", n_ctx=n_most, n_threads=1, device="cpu")
    texts = "".join(path.read_text(encoding="utf-8") for path in sorted(_DOCS.glob("*.md")))
    tokens, rows = llama.tokenize(texts.encode())[:n_most], []
    if len(tokens) < n_most:
        parser.error(f"octavo's docs have {len(tokens):,} tokens, and this takes {n_most:,}: give a smaller --text.")
    for n_text in arguments.text:
        say(f"reading {n_text:,} tokens")
        llama.reset()
        llama.prefill(tokens[:n_text])
        with drafting(llama, drafter := _Known(tokens)):
            runs = [[milliseconds(llama, tokens, drafter, n - 1) for n in sizes] for _ in range(arguments.repeats + 1)]
        medians = np.median(runs[1:], axis=0)
        for n, (took, of_graph) in zip(sizes, medians, strict=True):
            ratio = took / medians[0, 0]
            added = f"{(ratio - 1) / (n - 1):.2f}" if n > 1 else ""
            rows.append([f"{n_text:,}", str(n), f"{took:.1f}", f"{of_graph:.1f}", f"{ratio:.2f}", added])
    print(f"{cpu_name()}, 1 thread, {Path(arguments.model).name}\n")
    print(markdown_table(_HEADS, rows))


if __name__ == "__main__":
    main()
