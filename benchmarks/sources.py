"""Measure what it costs to say where answers come from, as a share of the answers' steps.

    python benchmarks/sources.py DOCUMENT [-m MODEL.gguf] [--question TEXT] [--answers 10]

Answers whose queries are kept and others take turns. Sources are looked for right after an answer, as commands do.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import octavo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", type=Path)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("--question", default="Write down what Mr. Knightley says to Emma, word by word, and why.")
    parser.add_argument("--answers", type=int, default=10)
    arguments = parser.parse_args()
    with octavo.open_document(
        arguments.document, model=arguments.model, sources=True, temperature=0, max_tokens=64
    ) as document:
        document.ask(arguments.question)
        document.sources()  # the text is put together once
        ratios, shares = [], []
        for _ in range(arguments.answers):
            kept, others = (_step_s(document, arguments.question, keep) for keep in (True, False))
            document.clear()
            answer = document.ask(arguments.question)
            start = time.perf_counter()
            document.sources()
            shares.append((time.perf_counter() - start) / answer.timing.answer_tokens / others)
            ratios.append(kept / others)
        print(f"{document.n_document:,} tokens, an answer of {answer.timing.answer_tokens}")
        print(f"steps whose queries are kept: {statistics.median(ratios):.3f} times as long")
        print(f"finding the sources: {statistics.median(shares):.1%} of the steps")


def _step_s(document: octavo.Document, question: str, keep: bool) -> float:
    """Return the seconds of an answer's step, with or without its queries being kept."""
    document.clear()
    recorder, context = document._recorder, document.llama.context
    if not keep:
        document._recorder = None
        context.record(None)
    timing = document.ask(question).timing
    document._recorder = recorder
    context.record(recorder)
    return timing.decode_s / (timing.answer_tokens - 1)


if __name__ == "__main__":
    main()
