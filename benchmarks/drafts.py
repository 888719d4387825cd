"""Measure what drafts save: the same answers with drafts and without, in turns, and print a table.

    python benchmarks/drafts.py [-m MODEL] [--rows repetition,qa,fixed-context,chat,stream,streams] [-n ANSWERS]

The tasks are those of `octavo eval`, on the data that it uses by default, and greedy; a passage of `repetition` has 200
tokens here. Answers of `chat` have a temperature of .8, a seed, and no text before them. `stream` is the server's
engine with one answer after another over a text of `qa`, `streams` with four answers of `chat` at once. Logits may
differ by rounding where llama.cpp multiplies, so the table counts the answers that are the same. A second table replays
the answers of the tasks and of `chat` without the model: how many times as fast they would be if each drafted token
prolonged a step by a given share of a step of one token. On one thread processor time counts where there is no server.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np

from octavo import Attention, Llama
from octavo.cli.render import markdown_table, say
from octavo.cpu_kernels.numba_support.machine import cpu_name
from octavo.evaluation.samples import Text
from octavo.evaluation.tasks import task_class
from octavo.library.reading_job import ReadingJob
from octavo.runtime.drafting import drafting
from octavo.runtime.load_model import load
from octavo.runtime.models.find_model import default_model
from octavo.runtime.sequences.drafter import Drafter, Experience
from octavo.runtime.store.model_library import Library
from octavo.serve.app import Limits, open_server
from octavo.serve.engine.request import AnswerPart, End, Generation, Request
from octavo.settings import ModelSettings, Sampling
from octavo.system.working_time import working_time

_PASSAGE = {"n_tokens": 200, "per_text": 4}

#: Tokens of each task's texts; `fixed-context` has texts of its own. No answer of `repetition` comes to 8,224 tokens,
#: where codebooks are made anew, which takes as long as 30 steps. The number of answers of each row.
_DEPTHS = {"repetition": 8300, "qa": 2500, "fixed-context": 8000}
_ANSWERS = {"repetition": 4, "qa": 20, "fixed-context": 40, "chat": 20, "stream": 10, "streams": 12}

#: What a drafted token adds to a step in the second table, in steps of one token.
_COSTS = 0.0, 0.05, 0.1, 0.2, 0.3, 0.4

_HEADS = ["row", "same answers", "tokens", "tokens a step", "accepted", "tokens/s without", "with", "ratio"]
_LONGEST = 9000
_TOPICS = (
    *("a lighthouse keeper", "bread", "the sea in winter", "an old bicycle", "learning to swim", "rain", "mathematics"),
    *("a lost letter", "a garden", "trains", "a violin", "the moon", "my grandmother", "mushrooms", "chess", "maps"),
    *("a market", "sleep", "glass", "a journey on foot"),
)


@dataclass
class Totals:
    """What all answers of a row took, without drafts and with them."""

    n_answers: int = 0
    n_turns: int = 0
    n_same: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_tokens: list[int] = field(default_factory=lambda: [0, 0])
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0])
    answers: list[tuple[list[int], list[int]]] = field(default_factory=list)

    def turns(self) -> Iterator[bool]:
        """Yield whether to draft, in another order each time."""
        self.n_turns += 1
        yield from (False, True) if self.n_turns % 2 else (True, False)

    def row(self, name: str) -> list[str]:
        """Return the row of the table."""
        speeds = [n / max(seconds, 1e-9) for n, seconds in zip(self.n_tokens, self.seconds, strict=True)]
        n_tokens = self.n_tokens[True]
        return [
            name,
            f"{self.n_same} of {self.n_answers}",
            f"{n_tokens / self.n_answers:.0f}",
            f"{n_tokens / max(n_tokens - self.n_accepted, 1):.2f}",
            f"{self.n_accepted / self.n_drafted:.2f}" if self.n_drafted else "-",
            *(f"{speed:.1f}" for speed in speeds),
            f"{speeds[True] / speeds[False]:.2f}",
        ]


def replayed(answers: Sequence[tuple[list[int], list[int]]], cost: float) -> float:
    """Return how many times as fast answers after their texts are with drafts, if a drafted token costs so much."""
    experience, n_tokens, total = Experience(), 0, 0.0
    for before, answer in answers:
        drafter, tokens, place = Drafter(experience=experience), np.array([*before, *answer], np.intc), len(before)
        drafter.note(before[-1])
        while place < len(tokens):
            draft = drafter.draft(tokens[:place], len(tokens) - place - 1)
            took = 1 + cost * len(draft)
            drafter.note_step(1 + len(draft), took)
            for drafted in [*draft, None]:
                drafter.note(token := int(tokens[place]))
                place += 1
                if token != drafted:
                    break
            total += took
        n_tokens += len(answer)
    return n_tokens / total


def drawn(llama: Llama, prompt: Sequence[int], most: int, drafter: Drafter, how: dict[str, float]) -> list[int]:
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
    """Draw an answer in both ways."""
    n_before, answers = llama.n_tokens, dict[bool, list[int]]()
    clock = process_time if llama.n_threads == 1 else working_time
    for drafts in totals.turns():
        llama.prefill(prompt[:-1])
        text = [*llama.sequence.tokens.tolist(), prompt[-1]]
        drafter = Drafter(experience=llama.drafts_so_far) if drafts else Drafter(0)
        began = clock()
        answers[drafts] = drawn(llama, prompt[-1:], most, drafter, how)
        totals.seconds[drafts] += clock() - began
        totals.n_tokens[drafts] += len(answers[drafts])
        totals.n_drafted += drafter.n_drafted
        totals.n_accepted += drafter.n_accepted
        llama.rewind(n_before)
    totals.n_answers += 1
    totals.n_same += answers[False] == answers[True]
    totals.answers.append((text, answers[False]))


def topics(llama: Llama) -> list[list[int]]:
    """Return prompts to write about many things."""
    prompt = llama.prompt(has_document=False)
    return [prompt.head() + prompt.first_question(f"Write a short paragraph about {topic}.") for topic in _TOPICS]


def chat(llama: Llama, n: int) -> Totals:
    """Write about many things."""
    totals = Totals()
    llama.reset()
    for prompt in topics(llama)[:n]:
        measure(llama, prompt, 96, totals, {"temp": 0.8})
    return totals


def texts_of(llama: Llama, name: str, n: int) -> list[Text]:
    """Return a task's texts with n questions."""
    chosen = task_class(name)(**(_PASSAGE if name == "repetition" else {}))
    assert chosen.data is not None
    texts: list[Text] = chosen.texts(llama, chosen.data, _DEPTHS[name], n, 0)
    return texts


def task(llama: Llama, name: str, n: int) -> Totals:
    """Answer a task's questions."""
    totals = Totals()
    for text in texts_of(llama, name, n):
        say(f"{name}: reading {len(text.tokens):,} tokens")
        llama.reset()
        llama.prefill(text.tokens)
        for sample in text.samples[: n - totals.n_answers]:
            measure(llama, sample.prompt, sample.n_predict or len(sample.continuation), totals, {"temp": 0.0})
        if totals.n_answers == n:
            break
    return totals


class Streams:
    """Measure answers of the server's engine."""

    def __init__(self, model: Path, n_threads: int, folder: Path) -> None:
        job = ReadingJob(
            ModelSettings(model, n_ctx=_LONGEST, n_threads=n_threads, index_dir=folder), Attention.parse("auto")
        )
        library = Library.of(model, folder)
        self.llama = load(job.settings, library, job.attention, say, 4)
        limits = Limits(n_parallel=4, n_waiting=4, timeout=600.0, kept_bytes=0)
        self.server = open_server(self.llama, library, job, limits, Sampling(), name=model.name, notice=say)

    async def _answer(self, prompt: Sequence[int], sampling: Sampling) -> tuple[str, End]:
        request = Request(tokens=prompt, generation=Generation(sampling=sampling))
        *parts, end = [part async for part in self.server.engine.stream(request)]
        assert isinstance(end, End)
        return "".join(part.text for part in parts if isinstance(part, AnswerPart)), end

    async def _together(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> list[tuple[str, End]]:
        return await asyncio.gather(*(self._answer(prompt, sampling) for prompt in prompts))

    def measure(self, prompts: Sequence[Sequence[int]], sampling: Sampling, totals: Totals) -> None:
        """Draw answers at once, in both ways, once their prompts are read: that would interrupt the first answers."""
        texts = dict[bool, list[str]]()
        asyncio.run(self._together(prompts, replace(sampling, max_tokens=1)))
        for drafts in totals.turns():
            how = replace(sampling, draft=None if drafts else 0)
            answered = asyncio.run(self._together(prompts, how))
            usages = [end.usage for _, end in answered]
            totals.seconds[drafts] += max(usage.answer_s for usage in usages)
            totals.n_tokens[drafts] += sum(usage.answer_tokens for usage in usages)
            totals.n_drafted += sum(usage.drafted_tokens for usage in usages)
            totals.n_accepted += sum(usage.accepted_tokens for usage in usages)
            texts[drafts] = [text for text, _ in answered]
        totals.n_answers += len(prompts)
        totals.n_same += sum(one == other for one, other in zip(*texts.values(), strict=True))

    def stream(self, n: int) -> Totals:
        """Answer questions over a text one after another."""
        totals, text = Totals(), texts_of(self.llama, "qa", n)[0]
        say(f"stream: reading {len(text.tokens):,} tokens")
        for sample in text.samples[:n]:
            most = sample.n_predict or len(sample.continuation)
            self.measure([[*text.tokens, *sample.prompt]], Sampling(max_tokens=most, temperature=0), totals)
        return totals

    def streams(self, n: int) -> Totals:
        """Write about many things, four of them at once."""
        totals, prompts = Totals(), topics(self.llama)[:n]
        for first in range(0, len(prompts), 4):
            self.measure(prompts[first : first + 4], Sampling(max_tokens=96, temperature=0.8, seed=1), totals)
        return totals


def measured(model: Path, n_threads: int, answers: dict[str, int]) -> Iterator[tuple[str, Totals]]:
    """Measure rows, each with a number of answers; yield each at once."""
    llama = Llama(model, n_threads=n_threads, attention=Attention.parse("auto"), n_ctx=_LONGEST)
    for name, n in answers.items():
        if name in _DEPTHS:
            yield name, task(llama, name, n)
        if name == "chat":
            yield name, chat(llama, n)
    llama.close()
    if {"stream", "streams"} & answers.keys():
        with TemporaryDirectory() as folder:
            engine = Streams(model, n_threads, Path(folder))
            with closing(engine.server):
                if "stream" in answers:
                    yield "stream", engine.stream(answers["stream"])
                if "streams" in answers:
                    yield "streams", engine.streams(answers["streams"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-n", "--answers", type=int, help="of each row; by default 4 to 40")
    parser.add_argument("--rows", default=",".join(_ANSWERS))
    arguments = parser.parse_args()
    model = arguments.model or default_model()
    answers = {name: arguments.answers or _ANSWERS[name] for name in arguments.rows.split(",")}
    print(f"{cpu_name()}, {arguments.threads} threads, {Path(model).name}\n")
    print(markdown_table(_HEADS, []), flush=True)
    replays = []
    for name, totals in measured(model, arguments.threads, answers):
        print("| " + " | ".join(totals.row(name)) + " |", flush=True)
        if totals.answers:
            replays.append([name, *(f"{replayed(totals.answers, cost):.2f}" for cost in _COSTS)])
    print("\n" + markdown_table(["row", *map(str, _COSTS)], replays))


if __name__ == "__main__":
    main()
