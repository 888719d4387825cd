"""Measure what drafts save: the same greedy answers with drafts and without, in turns.

    python benchmarks/drafts.py [-m MODEL] [--tasks repetition,qa,fixed-context] [-n 20] [--depth 8000]

The tasks are those of `octavo eval`, on the data that it uses by default; a passage of `repetition` has 200 tokens
here. Answers of `chat` have a temperature of .8, a seed, and no text before them. Logits may differ by rounding where
llama.cpp multiplies, so the table counts the answers that are the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from octavo import Attention, Llama
from octavo.cli.render import markdown_table
from octavo.cpu_kernels.numba_support.machine import cpu_name
from octavo.evaluation.samples import Text
from octavo.evaluation.tasks import task_class
from octavo.runtime.drafting import drafting
from octavo.runtime.models.find_model import default_model
from octavo.runtime.sequences.drafter import Drafter
from octavo.system.working_time import working_time

_PASSAGE = {"n_tokens": 200, "per_text": 4}
_TOPICS = (
    *("a lighthouse keeper", "bread", "the sea in winter", "an old bicycle", "learning to swim", "rain", "mathematics"),
    *("a lost letter", "a garden", "trains", "a violin", "the moon", "my grandmother", "mushrooms", "chess", "maps"),
    *("a market", "sleep", "glass", "a journey on foot"),
)


class Totals:
    """What all answers of a task took."""

    def __init__(self) -> None:
        self.n_answers = self.n_same = self.n_tokens = 0
        self.seconds, self.drafters = [0.0, 0.0], list[Drafter]()

    def row(self, name: str) -> list[str]:
        """Return the row of the table."""
        steps, drafted, accepted = (
            sum(getattr(each, field) for each in self.drafters) for field in ("n_steps", "n_drafted", "n_accepted")
        )
        speeds = [self.n_tokens / max(seconds, 1e-9) for seconds in self.seconds]
        return [
            name,
            f"{self.n_same} of {self.n_answers}",
            f"{self.n_tokens / self.n_answers:.0f}",
            f"{(steps + accepted) / max(steps, 1):.2f}",
            f"{accepted / drafted:.2f}" if drafted else "-",
            *(f"{speed:.1f}" for speed in speeds),
            f"{speeds[1] / speeds[0]:.2f}",
        ]


def drawn(llama: Llama, prompt: Sequence[int], most: int, drafter: Drafter | None, how: dict[str, float]) -> list[int]:
    """Draw an answer."""
    tokens = []
    llama.set_seed(1)
    with drafting(llama, drafter):
        for token in islice(llama.generate(prompt, reset=False, **how), most):
            if llama.ends(token):
                break
            tokens.append(token)
    return tokens


def measure(llama: Llama, prompt: Sequence[int], most: int, totals: Totals, how: dict[str, float]) -> None:
    """Draw an answer in both ways, in another order each time."""
    n_before, answers = llama.n_tokens, [[], []]
    for drafts in (0, 1) if totals.n_answers % 2 else (1, 0):
        llama.prefill(prompt[:-1])
        if drafts:
            totals.drafters.append(Drafter(experience=llama.drafts_so_far))
        began = working_time()
        answers[drafts] = drawn(llama, prompt[-1:], most, totals.drafters[-1] if drafts else None, how)
        totals.seconds[drafts] += working_time() - began
        llama.rewind(n_before)
    totals.n_answers += 1
    totals.n_same += answers[0] == answers[1]
    totals.n_tokens += len(answers[0])


def chat(llama: Llama, n: int) -> Totals:
    """Write about many things."""
    totals = Totals()
    llama.reset()
    for topic in _TOPICS[:n]:
        prompt = llama.prompt(has_document=False)
        asked = prompt.head() + prompt.first_question(f"Write a short paragraph about {topic}.")
        measure(llama, asked, 96, totals, {"temp": 0.8})
    return totals


def task(llama: Llama, name: str, depth: int, n: int, say: Callable[[str], None]) -> Totals:
    """Answer a task's questions."""
    totals, chosen = Totals(), task_class(name)(**(_PASSAGE if name == "repetition" else {}))
    texts: list[Text] = chosen.texts(llama, chosen.data, depth, n, 0)
    for text in texts:
        say(f"{name}: reading {len(text.tokens):,} tokens")
        llama.reset()
        llama.prefill(text.tokens)
        for sample in text.samples:
            if totals.n_answers < n:
                measure(llama, sample.prompt, sample.n_predict or len(sample.continuation), totals, {"temp": 0.0})
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-n", "--samples", type=int, default=20)
    parser.add_argument("--tasks", default="repetition,qa,fixed-context,chat")
    parser.add_argument("--depth", type=int, default=8000)
    arguments = parser.parse_args()
    model = arguments.model or default_model()
    llama = Llama(model, n_threads=arguments.threads, attention=Attention.parse("auto"), n_ctx=arguments.depth + 1024)
    rows = []
    for name in arguments.tasks.split(","):
        found = (
            chat(llama, arguments.samples)
            if name == "chat"
            else task(llama, name, arguments.depth, arguments.samples, print)
        )
        rows.append(found.row(name))
    print(f"{cpu_name()}, {arguments.threads} threads, {Path(model).name}")
    heads = ["task", "same answers", "tokens", "tokens a step", "accepted", "tokens/s without", "with", "ratio"]
    print(markdown_table(heads, rows))


if __name__ == "__main__":
    main()
