"""Measure what docs/evaluation.md discusses, and write a page of tables for each model, docs/evaluation/MODEL.md.

    python benchmarks/evaluation.py FOLDER [--gemma FILE.gguf] [--long FILE.gguf]

FOLDER keeps the samples, and has the plans (`octavo profile --index-dir FOLDER`). What was measured before is not
measured again. Pages of models that are not named stay as they are. Each table stands below the command that makes it.
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

from octavo.convert.texts import SHIPPED_NOVEL
from octavo.evaluation.tasks.needle import FACTS
from octavo.runtime.models import default_model

DOCS = Path(__file__).parent.parent / "docs"
PAGES = DOCS / "evaluation"

#: Title of each model's page, and what a reader must know of the model.
MODELS = {
    "smollm2": ("SmolLM2-135M-Instruct (Q4_1)", "The demo's model, with a context of 8K tokens."),
    "gemma": (
        "Gemma 3 270M (Q4_K_M)",
        "15 of its 18 layers slide over 512 tokens. Methods act on the other three, but the shares count all layers.",
    ),
    "long": (
        "A 32K fine-tune of SmolLM2-135M (Q8_0)",
        "Made for these measurements, because it recalls what it read anywhere in 32K tokens. It is not part of octavo."
        "\n`emma.txt` was not in its training. The documents of `facts.json` are the shipped novel in two lengths, with"
        " the\nneedles' ten facts in it (`benchmarks/evaluation.py` makes them).",
    ),
}

ALL = "dense,squeezed,squeezed2,quest,sparq,streaming,h2o,duo"
SOME = "dense,squeezed,squeezed2,quest,sparq,streaming"
FIVE = "dense,squeezed,quest,sparq,streaming"
BUDGETS = "0.5,0.25,0.125"

#: Characters of the novel in each long document for fixed-context. A fact is hidden in each tenth of a document.
FACT_DOCUMENTS = (30_000, 64_000)


@dataclass(frozen=True)
class Run:
    """One command.

    Parameters
    ----------
    model : str
        A key of MODELS.
    task, depths, attention, budgets : str
        Values of the options of `octavo eval`; empty depths for a task that has its own.
    samples : int
        Samples at each depth.
    extra_options : tuple of str
        Further options.
    picture : str
        Name of a picture to draw in docs/; empty for none.
    """

    model: str
    task: str
    depths: str
    samples: int
    attention: str = ALL
    budgets: str = BUDGETS
    extra_options: tuple[str, ...] = ()
    picture: str = ""

    @property
    def arguments(self) -> list[str]:
        """Arguments of `octavo`, without model and folder."""
        depths = ["--depths", self.depths] if self.depths else []
        chosen = ["--samples", str(self.samples), "--budgets", self.budgets, "--attention", self.attention]
        return ["eval", self.task, *depths, *chosen, *self.extra_options]


RUNS = [
    Run("long", "passkey", "8000,16000", 20),
    Run("long", "passkey", "30000", 10, SOME),
    Run("long", "needle", "8000,16000", 20, picture="needle.png"),
    Run("long", "needle", "30000", 10, SOME),
    Run("long", "repetition", "8000,16000", 16, SOME),
    Run("long", "repetition", "30000", 8, SOME),
    Run("long", "fixed-context", "", 10, FIVE, extra_options=("--data", "facts.json")),
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
    """Hide ten facts in parts of the novel of several lengths.

    Yields
    ------
    dict
        A document and its questions, as fixed-context takes them.
    """
    novel = SHIPPED_NOVEL.read_text("utf-8")
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
    """Run a command.

    Parameters
    ----------
    run : Run
        The command.
    model : Path
        GGUF file.
    folder : Path
        Where samples are kept.

    Returns
    -------
    str
        The command and its table, in Markdown.
    """
    octavo = Path(sys.executable).with_name("octavo")
    command = [str(octavo), *run.arguments, "-m", str(model), "--index-dir", str(folder)]
    if run.picture:
        command += ["--plot", str(DOCS / run.picture)]
    print("octavo", *run.arguments, "-m", model.name, file=sys.stderr)
    table = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder).stdout
    return f"```\noctavo {' '.join(run.arguments)} -m {model.name}\n```\n\n{table.strip()}\n"


def page(model: str, measured: list[tuple[str, str]]) -> str:
    """Return the text of a model's page.

    Parameters
    ----------
    model : str
        A key of MODELS.
    measured : list of (task, text)
        What `measure` returned, in the order of RUNS.
    """
    title, note = MODELS[model]
    said = "[docs/evaluation.md](../evaluation.md) says how this was measured, and what it shows."
    lines = [f"# {title}", "", note, "", said, "`python benchmarks/evaluation.py` wrote this page.", ""]
    for task in dict.fromkeys(task for task, _ in measured):
        lines += [f"## {task}", "", *(text for own, text in measured if own == task)]
    return "\n".join(lines)


def main() -> None:
    """Measure everything for the named models, and write their pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where samples are kept, and plans are")
    parser.add_argument("--gemma", type=Path, help="Gemma 3 270M")
    parser.add_argument("--long", type=Path, help="a model that recalls what it read in 32K tokens")
    arguments = parser.parse_args()
    models = {"smollm2": default_model(), "gemma": arguments.gemma, "long": arguments.long}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "facts.json").write_text(json.dumps(list(fact_documents())), "utf-8")
    for name, model in models.items():
        if model:
            runs, folder = [run for run in RUNS if run.model == name], arguments.folder.resolve()
            measured = [(run.task, measure(run, Path(model).resolve(), folder)) for run in runs]
            (PAGES / f"{name}.md").write_text(page(name, measured), "utf-8")


if __name__ == "__main__":
    main()
