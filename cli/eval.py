"""`octavo eval`: measure what methods and budgets cost in quality, on the user's own model."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ..errors import OctavoError
from ..evaluation.folders import FOLDER_TASKS, folder_task_class
from ..evaluation.tasks import TASKS, task_class
from ..library.background.computing import computing
from ..runtime.methods import DEFAULT_ATTENTION, LLAMA_CPP
from ..settings import ModelSettings
from . import options
from .option_types import (
    HELP,
    AttentionListType,
    DepthListType,
    ListOf,
    Number,
    WholeNumber,
    completions,
    explained,
    guessed,
)
from .render import TaskProgress, csv_table, markdown_table, notice, print_json, resumable
from .reports import measure_suite

if TYPE_CHECKING:
    from ..evaluation.folders.folder_task import FolderTask
    from ..evaluation.tasks.task import Task

#: Columns of a table and of CSV: a key of the rows, and its heading.
_COLUMNS = {
    "attention": "attention",
    "budget": "budget",
    "depth": "depth",
    "samples": "samples",
    "score": "score",
    "standard_error": "standard error",
    "difference": "to dense",
    "difference_standard_error": "standard error of that",
    "at_least": "at least",
    "verdict": "at most .02 lost",
    "kl_divergence": "KL to dense",
    "bytes_read_share": "share read",
}
#: Columns that only tasks with scores from 0 to 1 have.
_JUDGED = ("at_least", "verdict")

#: Columns that only some tasks have.
_TASK_COLUMNS = {
    "exact_match": "exact match",
    "first_three": "one of three is",
    "none_named": "none named",
    "right_answers": "right answers",
    "right_marks": "marks that are right",
    "marked_facts": "facts with a mark",
    "contains_answer": "has the answer",
    "first_token_s": "first token s",
    "seconds": "s a question",
}


#: Columns of tasks over folders.
_FOLDER_COLUMNS = {
    "way": "read for an answer",
    "documents": "documents",
    "depth": "depth",
    "samples": "samples",
    "score": "score",
    "standard_error": "standard error",
    "first_half": "in the first half",
    "second_half": "in the second half",
    "found": "answer in what is read",
    "held": "tokens read",
    "first_token_s": "first token s",
}

#: The word for the tasks of a report, all together.
SUITE = "suite"

_ALL_TASKS = {**TASKS, **FOLDER_TASKS}
_WIDTH = max(map(len, _ALL_TASKS))
_TASK_LINES = "\n".join(f"{name:<{_WIDTH}}  {entry.summary}" for name, entry in _ALL_TASKS.items())
_HELP = f"""Measure what each method and budget costs in quality.

\b
{_TASK_LINES}

Tasks over folders compare no attentions but what is read for an answer: the document that the question is about,
excerpts of all documents, and what others do. first-answer compares answers before a document is read, while it is,
and after.

`octavo eval suite --report FILE.json` measures fifteen tasks with dense, auto, squeezed and quest, in about an hour,
and keeps each in FILE.json. `octavo bench --report` adds speed to the same file.

A task takes parameters as --attention does, such as niah-multikey:haystack=needles; `octavo eval
help` prints them all.

All methods see the same samples. What is measured is kept beside the model: interrupted, the same command resumes
where it stopped, and methods and depths can be added.
"""


#: The beginning of `octavo eval help`.
_INTRODUCTION = (
    "octavo eval takes one of these tasks. Parameters follow a colon: niah-multikey:haystack=needles,key=uuid."
)


class TaskType(click.ParamType):  # type: ignore[type-arg]
    """A task of `octavo eval`, with parameters."""

    name = "TASK[:KEY=VALUE,...]"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return completions([*_ALL_TASKS, SUITE, HELP], incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..runtime.methods.parameters import read_settings

        if value == HELP:
            click.echo(explained(_INTRODUCTION, [(name, _class_of(name)) for name in _ALL_TASKS]), nl=False)
            raise click.exceptions.Exit(0)
        if value == SUITE:
            return SUITE
        name, colon, text = str(value).partition(":")
        if name not in _ALL_TASKS:
            guess = guessed(name, _ALL_TASKS)
            self.fail(f"There is no task named '{name}': choose from {', '.join(_ALL_TASKS)}.{guess}", param, ctx)
        try:
            task = _class_of(name)
            return task(**read_settings(task, text) if colon else {})
        except OctavoError as problem:
            self.fail(str(problem), param, ctx)


def _class_of(task: str) -> type[Task] | type[FolderTask]:
    return task_class(task) if task in TASKS else folder_task_class(task)


@click.command(help=_HELP)
@click.argument("task", type=TaskType(), metavar=TaskType.name)
@options.model_options
@click.option(
    "--attention",
    type=AttentionListType(),
    default="dense,auto,squeezed,quest,sparq,streaming",
    show_default=True,
    help=f"Methods to compare, always with dense: {options.ATTENTIONS}.",
)
@click.option(
    "--budgets",
    type=ListOf(Number(0, 1, min_open=True), "SHARE"),
    default="0.25,0.125",
    show_default=True,
    help="Shares of the KV bytes that each method is to read: its own budget is set so that it does.",
)
@click.option(
    "--depths",
    type=DepthListType(least=1),
    default="4096",
    show_default=True,
    help="Tokens of a text. fixed-context and longbench take theirs as they are.",
)
@click.option(
    "--samples", type=WholeNumber(1, 100_000), help="Samples at each depth.  [default: 16 to 100, as the task has]"
)
@click.option("--seed", type=WholeNumber(0, 2**32 - 1), default=0, show_default=True, help="Draws other samples.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="What samples are made of: a text; JSON for qa, fixed-context and longbench, in the forms that "
    "docs/evaluation.md shows.  [default: what octavo has]",
)
@options.plan
@options.scheduler
@options.output_option("md", "json", "csv")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw score over what was read too.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.json",
    help="With suite: keep each task's result in FILE.json.",
)
@computing()
def eval(
    task: Task | FolderTask | str,
    settings: ModelSettings,
    attention: list[str],
    budgets: list[float],
    depths: list[int],
    samples: int | None,
    seed: int,
    data: Path | None,
    plan: Path | None,
    scheduler: str | None,
    output: str,
    plot: Path | None,
    report: Path | None,
) -> None:
    from ..ask.context.whole.drawn_together import TOGETHER
    from ..evaluation.evaluate import Evaluation, Settings
    from ..evaluation.folders.evaluate_folder import FolderEvaluation, FolderSettings
    from ..evaluation.folders.folder_task import FolderTask
    from ..runtime.load_model import load_model, locate_model
    from ..runtime.methods.attention import Attention, plan_for

    if isinstance(task, str):
        given = depths if options.is_on_command_line("depths") else []
        measure_suite(settings, report, samples, given, output)
        return
    if report is not None:
        raise click.UsageError("--report keeps all tasks: octavo eval suite --report FILE.json.")
    if LLAMA_CPP in attention:
        raise click.UsageError("--attention llama.cpp is for `octavo bench`: its results are dense's.")
    if task.own_depths and options.is_on_command_line("depths"):
        raise click.UsageError(f"{task.name} takes its texts as they are: leave out --depths.")
    if (made_of := data or task.data) is None:
        raise click.UsageError(f"{task.name} has no data of its own: name a file with --data.")
    if plot is not None:
        from ..evaluation.pictures import check_plot

        check_plot(plot)
    located, library = locate_model(settings, notice)
    n_samples = samples or task.samples
    evaluation: Evaluation | FolderEvaluation
    with resumable(), TaskProgress() as progress, ExitStack() as stack:
        if isinstance(task, FolderTask):
            _refuse_for_folders(task.name, scheduler)
            together = TOGETHER if task.is_whole else 1
            llama = load_model(located, notice, measures=True, attention=DEFAULT_ATTENTION, n_parallel=together)
            folders = FolderSettings(depths, n_samples, seed, made_of)
            evaluation = FolderEvaluation(llama, library, task, folders, progress, notice)
        else:
            attentions = [Attention.parse(words) for words in attention]
            model_plan = plan_for(attentions, library, plan)
            attentions = [one.with_plan(model_plan) for one in attentions]
            measured = Settings(attentions, budgets, depths, n_samples, seed, made_of)
            llama = load_model(located, notice, measures=True, plan=model_plan)
            workers = None
            if scheduler is not None:
                from ..evaluation.cluster_evaluation import text_workers

                plan_path = (plan or library.plan_path) if model_plan else None
                workers = stack.enter_context(text_workers(scheduler, llama, library, task, settings, plan_path))
            evaluation = Evaluation(llama, library, task, measured, progress, notice, workers)
        result = evaluation.run()
    notice(f"The samples are kept in {evaluation.results.path}")
    if plot is not None:
        from ..evaluation.plot import write_plot

        write_plot(result, plot)
        notice(f"The picture is {plot}")
    if output == "json":
        print_json(result)
    else:
        click.echo(as_csv(result) if output == "csv" else as_markdown(result))


def _refuse_for_folders(task: str, scheduler: str | None) -> None:
    """Refuse options without a meaning for tasks over folders."""
    if scheduler is not None:
        raise click.UsageError(f"{task} runs on this machine: leave out --scheduler.")
    for name in ("attention", "budgets", "plan", "plot"):
        if options.is_on_command_line(name):
            raise click.UsageError(f"{task} compares no attentions: leave out --{name}.")


def _columns(result: dict[str, Any]) -> dict[str, str]:
    """Return the columns of a result: those of all tasks, and those of its task."""
    if result["task"] in FOLDER_TASKS:
        without = () if "first_half" in result["results"][0] else ("first_half", "second_half")
        columns = {key: title for key, title in _FOLDER_COLUMNS.items() if key not in without}
        return {**columns, "score": result["metric"]}
    found = {key for row in result["results"] for key in row}
    columns = {key: title for key, title in _COLUMNS.items() if key in found or key not in _JUDGED}
    of_task = {key: title for key, title in _TASK_COLUMNS.items() if key in found}
    return {**columns, "score": result["metric"], **of_task}


def as_markdown(result: dict[str, Any]) -> str:
    """Write the result of `Evaluation.run` as a table, with its settings above it."""
    from ..evaluation.header import not_default

    columns, machine = _columns(result), result["machine"]
    better = "higher" if result["higher_is_better"] else "lower"
    heading = (
        f"{_titled(result)} ({result['metric']}: {better} is better): "
        f"{', '.join([result['model']['name'], *not_default(result)])}, {result['data']['name']}, "
        f"seed {result['seed']}, octavo {result['octavo']}, {machine['cpu']}, {machine['threads']} threads"
    )
    rows = [[_cell(name, row) for name in columns] for row in result["results"]]
    return f"{heading}\n\n{markdown_table(columns.values(), rows)}"


def _titled(result: dict[str, Any]) -> str:
    """Return the task with all parameters that differ from their defaults, as the command line takes them."""
    from ..runtime.methods.parameters import written

    return f"{result['task']}:{written(result['parameters'])}".removesuffix(":")


def _cell(name: str, row: dict[str, Any]) -> str:
    value = row.get(name)
    if value is None or (name == "budget" and value == 1):
        return "-"
    if isinstance(value, str):
        return value
    if name in ("depth", "samples", "documents", "held"):
        return f"{value:,}"
    return f"{value:.4g}" if name == "budget" else f"{value:.4f}" if name == "kl_divergence" else f"{value:.3f}"


def as_csv(result: dict[str, Any]) -> str:
    """Write the result of `Evaluation.run` as CSV, without a line end after the last line."""
    return csv_table(_columns(result), result["results"])
