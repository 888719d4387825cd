"""Measure what docs/evaluation.md discusses, and write pages of tables, docs/evaluation/PAGE.md.

    python benchmarks/evaluation.py FOLDER [--gemma FILE.gguf] [--long FILE.gguf] [--pages PAGE,...]
                                    [--jobs N --threads N [--split]]

FOLDER keeps the samples, and has the plans (`octavo profile --heads --index-dir FOLDER`). Samples that are there are
not measured again: interrupted, the same command continues. Pages of models that are not named stay as they are. Each
table stands below the command that makes it.

A page's tables are those of `octavo eval`, with a column for each depth and without repetitions.

With --jobs, several pieces are measured at once: each is one depth of one command or, with --split, one attention of
it, which reads the texts densely once more. Each piece has a log in FOLDER/logs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from octavo.runtime.methods import DENSE, DUO, METHODS, PLAN
from octavo.runtime.methods.attention import parameters_of
from octavo.runtime.models.find_model import default_model

DOCS = Path(__file__).parent.parent / "docs"
PAGES = DOCS / "evaluation"

_GEMMA = "15 of its 18 layers slide over 512 tokens. Methods act on the other three,"
_LONG = "Made for these measurements, because it recalls what it read anywhere in 32K tokens. It is not part of octavo."
_PAPERS = "\nEach paper's preset (`NAME:paper`) is beside our defaults; presets of fixed sizes take no budget."
_AUTO = "`--attention auto` chooses what to read; the methods beside it have budgets."

#: Title of each page, and its introduction. The first word of a page's name is that of the model.
MODELS = {
    "smollm2-papers": (
        "The papers' rules and ours: SmolLM2-135M-Instruct (Q4_1)",
        f"Full attention in all layers.{_PAPERS}",
    ),
    "gemma-papers": (
        "The papers' rules and ours: Gemma 3 270M (Q4_K_M)",
        f"A sliding-window hybrid: {_GEMMA} and shares count only those.{_PAPERS}",
    ),
    "smollm2-auto": ("auto beside the methods: SmolLM2-135M-Instruct (Q4_1)", _AUTO),
    "long-papers": ("The papers' rules and ours: a 32K fine-tune of SmolLM2-135M (Q8_0)", f"{_LONG}{_PAPERS}"),
}

THREE = "dense,quest,sparq"
BUDGETS = "0.5,0.25,0.125"

#: Attentions beside the default, over budgets.
FRONTIER, SMALL_BUDGETS = "dense,auto,sketch,squeezed,squeezed2,sparq,quest", "0.25,0.125,0.0625"

#: Methods that are not a paper's own.
OURS = ("sketch", "topk")


def side_by_side() -> str:
    """Return every paper's method as it is by default and by its presets, for --attention."""
    names = [name for name in METHODS if name not in OURS]
    for word in (*METHODS, DUO, PLAN):
        joined = f"+{SCALED}" if word == PLAN else ""  # a plan's layers need a method to scale
        presets = [f"{word}:{preset}" for preset in parameters_of(word).presets]
        names += [name + joined for name in ([word] if word not in METHODS else []) + presets]
    return ",".join(names)


#: The method whose budget a plan's layers scale.
SCALED = "h2o"

#: Squeezed Attention stands on the pages of `auto`, which uses it. Attentions that need a plan, except `plan+h2o`, are
#: measured below.
PAPERS = ",".join(name for name in side_by_side().split(",") if not name.startswith("squeezed"))


def planned(methods: str) -> str:
    """Return methods alone and with a plan's layer budgets, for --attention."""
    return ",".join(f"{name},{PLAN}+{name}" for name in methods.split(","))


#: Tasks that test a plan's layer budgets.
PLAN_TASKS = ("agreement", "repetition")

#: Methods that each model's plan scales, and budgets.
PLANNED = {
    "long-papers": ("quest,h2o,window", "0.25,0.125"),
    "smollm2-papers": ("streaming,quest,window", "0.25,0.125"),
    "gemma-papers": ("streaming,sparq", "0.5,0.25"),
}

#: RULER's tasks that the long model does not fail with dense attention, too.
RULER_TASKS = ("niah-single", "niah-multivalue", "niah-multiquery", "frequent-words")


@dataclass(frozen=True)
class Run:
    """One command.

    Parameters
    ----------
    page : str
        A key of MODELS.
    task, depths, attention, budgets : str
        Values of the options of `octavo eval`.
    samples : int
        Samples at each depth.
    picture : str
        Name of a picture to draw in docs/; empty for none.
    """

    page: str
    task: str
    depths: str
    samples: int
    attention: str
    budgets: str = BUDGETS
    picture: str = ""

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of `octavo`, without model and folder."""
        chosen = ["--samples", str(self.samples), "--budgets", self.budgets, "--attention", self.attention]
        return ["eval", self.task, "--depths", self.depths, *chosen]

    @property
    def model(self) -> str:
        """Return the name of the model: the first word of the page's name."""
        return self.page.partition("-")[0]

    def pieces(self, split: bool) -> list[Run]:
        """Return runs that measure parts of the same: each depth or, split, each attention at each depth."""
        names = re.split(r",(?!\w+=)", self.attention)
        attentions = [name for name in names if name != DENSE] if split else [self.attention]
        return [replace(self, depths=d, attention=a, picture="") for d in self.depths.split(",") for a in attentions]


RUNS = [
    *(Run("long-papers", task, "4000", 10, THREE) for task in RULER_TASKS),
    Run("long-papers", "niah-multikey", "4000", 20, THREE),
    Run("long-papers", "passkey", "8000,16000", 20, PAPERS),
    Run("long-papers", "passkey", "30000", 10, PAPERS),
    Run("smollm2-papers", "needle", "2000,7600", 20, PAPERS),
    Run("smollm2-papers", "agreement", "2000,7600", 16, PAPERS),
    Run("gemma-papers", "needle", "8000", 20, PAPERS),
    Run("gemma-papers", "agreement", "8000", 8, PAPERS),
    Run("smollm2-auto", "agreement", "2000,7600", 16, FRONTIER, SMALL_BUDGETS, picture="frontier.png"),
    *(
        Run(page, task, "4000", 16, planned(methods), budgets)
        for page, (methods, budgets) in PLANNED.items()
        for task in PLAN_TASKS
    ),
]


def compact(table: str) -> str:
    """Return a table of `octavo eval` with a row for each attention and budget, and columns for each depth.

    Left out are the number of samples, which the command has; differences to dense attention, of which only the largest
    standard error is kept; and the share read, unless it differs from the budget by .01: then it stands with the score.

    Parameters
    ----------
    table : str
        Output of `octavo eval`, in Markdown.
    """
    title, *lines = (line for line in table.splitlines() if line)
    heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    measure = heads[4]
    cells: dict[tuple[str, str], dict[str, list[str]]] = {}
    errors = []
    for values in rows:
        row = dict(zip(heads, values, strict=True))
        error = row["standard error of that"]
        errors += [] if error == "-" else [float(error)]
        share, budget = row["share read"], row["budget"]
        exact = abs(float(share) - (1 if budget == "-" else float(budget))) < 0.01
        score = row[measure] if exact else f"{row[measure]} at {float(share):.2f}"
        cells.setdefault((row["attention"], budget), {})[row["depth"]] = [score, row["KL to dense"]]
    depths = list(dict.fromkeys(depth for by_depth in cells.values() for depth in by_depth))
    columns = [name for depth in depths for name in (f"{depth}: {measure}", "KL")]
    written = [["attention", "budget", *columns], ["---", *["---:"] * (1 + len(columns))]]
    for (attention, budget), by_depth in cells.items():
        written.append([attention, budget, *(cell for depth in depths for cell in by_depth.get(depth, ["", ""]))])
    largest = f" The largest standard error of a difference to dense is {max(errors):.3f}." if errors else ""
    return "\n".join([f"{title}.{largest}", "", *(f"| {' | '.join(row)} |" for row in written)])


def command(run: Run, model: Path, folder: Path) -> list[str]:
    """Return a run's command, with model and folder."""
    octavo = Path(sys.executable).with_name("octavo")
    return [str(octavo), *run.arguments, "-m", str(model), "--index-dir", str(folder)]


def measure_pieces(runs: list[tuple[Run, Path]], folder: Path, jobs: int, threads: int, split: bool) -> None:
    """Measure the parts of runs, several at once and the longest first, so that the runs themselves find all measured.

    Parameters
    ----------
    runs : list of (Run, Path)
        Runs, and the model's GGUF file.
    folder : Path
        Where samples and logs are kept.
    jobs, threads : int
        Pieces at once, and threads of each.
    split : bool
        Whether each attention is a piece of its own.
    """
    pieces = [(piece, model) for run, model in runs for piece in run.pieces(split)]
    pieces.sort(key=lambda each: -int(each[0].depths) * each[0].samples)
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)

    def measure_piece(number: int) -> tuple[float, int]:
        run, model = pieces[number]
        start = time.monotonic()
        with (logs / f"{number:03}-{run.page}-{run.task.partition(':')[0]}-{run.depths}.txt").open("w") as log:
            arguments = [*command(run, model, folder), "-t", str(threads)]
            done = subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=log, cwd=folder)
        print(f"{time.monotonic() - start:6.0f} s, exit code {done.returncode}: {log.name}", file=sys.stderr)
        return time.monotonic() - start, done.returncode

    with ThreadPoolExecutor(jobs) as pool:
        done = list(pool.map(measure_piece, range(len(pieces))))
    failed = sum(code != 0 for _, code in done)
    print(f"{len(pieces)} pieces took {sum(seconds for seconds, _ in done):.0f} s together", file=sys.stderr)
    if failed:
        sys.exit(f"{failed} pieces failed: see {logs}. The same command continues.")


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
    arguments = command(run, model, folder)
    if run.picture:
        arguments += ["--plot", str(DOCS / run.picture)]
    print("octavo", *run.arguments, "-m", model.name, file=sys.stderr)
    table = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True, cwd=folder).stdout
    return f"```\noctavo {' '.join(run.arguments)} -m {model.name}\n```\n\n{compact(table)}\n"


def page(name: str, measured: list[tuple[str, str]]) -> str:
    """Return the text of a page.

    Parameters
    ----------
    name : str
        A key of MODELS.
    measured : list of (task, text)
        Results of `measure`, in the order of RUNS.
    """
    title, note = MODELS[name]
    said = "[docs/evaluation.md](../evaluation.md) explains how this was measured, and what it shows."
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
    parser.add_argument("--pages", help="pages to write, with commas between them; by default all of the named models")
    parser.add_argument("--jobs", type=int, default=1, help="pieces to measure at once")
    parser.add_argument("--threads", type=int, default=2, help="threads of each piece")
    parser.add_argument("--split", action="store_true", help="measure each attention as a piece of its own")
    arguments = parser.parse_args()
    models = {"smollm2": default_model(), "gemma": arguments.gemma, "long": arguments.long}
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    pages = arguments.pages.split(",") if arguments.pages else list(MODELS)
    runs = [(run, Path(path).resolve()) for run in RUNS if run.page in pages and (path := models[run.model])]
    measure_pieces(runs, folder, arguments.jobs, arguments.threads, arguments.split)
    for name in dict.fromkeys(run.page for run, _ in runs):
        measured = [(run.task, measure(run, model, folder)) for run, model in runs if run.page == name]
        (PAGES / f"{name}.md").write_text(page(name, measured), "utf-8")


if __name__ == "__main__":
    main()
