"""Measure what docs/evaluation.md shows, and write its tables there, each below the command that makes it.

    python benchmarks/evaluation.py FOLDER [--gemma FILE.gguf] [--long FILE.gguf]

Samples are kept in FOLDER, and plans are looked for there (`octavo profile --index-dir FOLDER`). What was measured
before is not measured again. Tables of a model that is not given stay as they are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from octavo.evaluation.tasks.needle import FACTS
from octavo.runtime.models import default_model

PAGE = Path(__file__).parent.parent / "docs" / "evaluation.md"
NOVEL = Path(__file__).parent.parent / "examples" / "emma.txt"

#: What ends the place of a table, which `<!-- MODEL TASK -->` begins.
END = "<!-- end -->"

ALL = "dense,squeezed,squeezed2,quest,sparq,streaming,h2o,duo"
SOME = "dense,squeezed,squeezed2,quest,sparq,streaming"
FIVE = "dense,squeezed,quest,sparq,streaming"
BUDGETS = "0.5,0.25,0.125"

#: Documents for fixed-context at length: characters of the novel, a fact in each tenth of it.
FACT_DOCUMENTS = (30_000, 64_000)


@dataclass(frozen=True)
class Run:
    """One command.

    model : "smollm2", "gemma" or "long"    depths : empty for a task's own    picture : file beside the page
    """

    model: str
    task: str
    depths: str
    samples: int
    attention: str = ALL
    budgets: str = BUDGETS
    more: tuple[str, ...] = ()
    picture: str = ""

    @property
    def block(self) -> str:
        """The name of its place in the page."""
        return f"{self.model} {self.task}"

    @property
    def arguments(self) -> list[str]:
        """What `octavo` is called with, but for model and folder."""
        depths = ["--depths", self.depths] if self.depths else []
        chosen = ["--samples", str(self.samples), "--budgets", self.budgets, "--attention", self.attention]
        return ["eval", self.task, *depths, *chosen, *self.more]


RUNS = [
    Run("long", "passkey", "8000,16000", 20),
    Run("long", "passkey", "30000", 10, SOME),
    Run("long", "needle", "8000,16000", 20, picture="needle.png"),
    Run("long", "needle", "30000", 10, SOME),
    Run("long", "repetition", "8000,16000", 16, SOME),
    Run("long", "repetition", "30000", 8, SOME),
    Run("long", "fixed-context", "", 10, FIVE, more=("--data", "facts.json")),
    *(Run("smollm2", task, "2000,7600", 16) for task in ("agreement", "repetition")),
    Run("smollm2", "perplexity", "2000,7600", 8),
    *(Run("smollm2", task, "2000,7600", 20) for task in ("passkey", "needle")),
    Run("smollm2", "qa", "2000,7600", 40),
    Run("smollm2", "fixed-context", "", 20),
    Run("gemma", "qa", "4000", 80, FIVE, "0.5"),
    Run("gemma", "qa", "8000", 160, FIVE, "0.5"),
    Run("gemma", "needle", "8000", 20, FIVE, "0.5,0.25"),
    Run("gemma", "needle", "30000", 10, FIVE),
    Run("gemma", "perplexity", "8000", 8, FIVE, "0.5"),
    Run("gemma", "perplexity", "30000", 8, FIVE),
]


def fact_documents() -> Iterator[dict[str, object]]:
    """The novel in some lengths, each with ten facts hidden in it, and the questions."""
    novel = NOVEL.read_text("utf-8")
    for number, length in enumerate(FACT_DOCUMENTS):
        rng = np.random.default_rng(number)
        paragraphs = novel[:length].split("\n\n")
        questions = []
        for i, place in enumerate(rng.permutation(len(FACTS))):
            begin, question, words = FACTS[place]
            word = str(rng.choice(words))
            questions.append({"question": question, "answers": [word]})
            paragraphs.insert(round((i + 0.5) / len(FACTS) * len(paragraphs)), f"{begin} {word}.")
        yield {"document": "\n\n".join(paragraphs), "questions": questions}


def measure(run: Run, model: Path, folder: Path) -> str:
    """Run a command; gives the command and its table."""
    octavo = Path(sys.executable).with_name("octavo")
    command = [str(octavo), *run.arguments, "-m", str(model), "--index-dir", str(folder)]
    if run.picture:
        command += ["--plot", str(PAGE.parent / run.picture)]
    print("octavo", *run.arguments, "-m", model.name, file=sys.stderr)
    table = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder).stdout
    shown = f"\n![{run.block}]({run.picture})\n" if run.picture else ""
    return f"```\noctavo {' '.join(run.arguments)} -m {model.name}\n```\n\n{table.strip()}\n{shown}"


def main() -> None:
    """Measure everything for the models that are given, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where samples are kept, and plans are")
    parser.add_argument("--gemma", type=Path, help="Gemma 3 270M")
    parser.add_argument("--long", type=Path, help="a model that recalls what it read in 32K tokens")
    arguments = parser.parse_args()
    models = {"smollm2": default_model(), "gemma": arguments.gemma, "long": arguments.long}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "facts.json").write_text(json.dumps(list(fact_documents())), "utf-8")
    blocks: dict[str, list[str]] = {}
    for run in RUNS:
        if models[run.model]:
            measured = measure(run, Path(models[run.model]).resolve(), arguments.folder.resolve())
            blocks.setdefault(run.block, []).append(measured)
    page = PAGE.read_text("utf-8")
    for name, tables in blocks.items():
        before, found, rest = page.partition(f"<!-- {name} -->\n")
        if not found:
            raise SystemExit(f"{PAGE.name} has no place for '{name}'.")
        after = rest.partition(END)[2]
        page = "\n".join([before + found, *tables, END + after])
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
