"""`octavo eval`: what methods and budgets cost in quality, on the user's own model."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import click

from . import options
from .render import TaskProgress, notice, print_json, resumable

#: The tasks, for the help text.
TASKS = ("perplexity", "repetition", "passkey", "needle", "qa", "fixed-context", "agreement")

#: Columns of a table, and of CSV; the last ones where a task has them.
_COLUMNS = {
    "attention": "attention",
    "budget": "budget",
    "depth": "depth",
    "samples": "samples",
    "score": "score",
    "standard_error": "standard error",
    "difference": "to dense",
    "difference_standard_error": "standard error of that",
    "kl_divergence": "KL to dense",
    "bytes_read_share": "share read",
}
_MORE = {
    "exact_match": "exact match",
    "contains_answer": "has the answer",
    "first_token_s": "first token s",
    "seconds": "s a question",
}


@click.command()
@click.argument("task", type=click.Choice(TASKS))
@options.model_options
@click.option(
    "--attention",
    type=options.Attentions(),
    default="dense,squeezed,quest,sparq,streaming",
    show_default=True,
    help=f"Methods to compare, with dense in any case: {options.ATTENTIONS}.",
)
@click.option(
    "--budgets",
    type=options.Budgets(),
    default="0.25,0.125",
    show_default=True,
    help="Shares of the KV bytes that each method is to read: its own budget is set so that it does.",
)
@click.option(
    "--depths",
    type=options.Depths(least=1),
    default="4096",
    show_default=True,
    help="Tokens of a text. fixed-context takes its documents as they are.",
)
@click.option(
    "--samples", type=click.IntRange(1, 100_000), help="Samples at each depth.  [default: 16 or 20, as the task has]"
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Draws other samples.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="What samples are made of: a text, or JSON for qa and fixed-context.  [default: what octavo has]",
)
@click.option("--chat", is_flag=True, help="qa: ask in the model's chat template, without an example.")
@options.plan
@options.output_option("md", "json", "csv")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw score over what was read too.")
def eval(
    task: str,
    model_options: options.ModelOptions,
    attention: list[str],
    budgets: list[float],
    depths: list[int],
    samples: int | None,
    seed: int,
    data: Path | None,
    chat: bool,
    plan: Path | None,
    output: str,
    plot: Path | None,
) -> None:
    """Measure what each method and budget costs in quality.

    \b
    perplexity     bits per character of prose, the later part given the earlier
    repetition     how much of a passage the model repeats, given its beginning
    passkey        numbers hidden in prose
    needle         facts hidden in prose
    qa             questions about paragraphs among unrelated ones
    fixed-context  many questions on one indexed document
    agreement      next-token distributions and attention against dense ones

    All methods see the same samples. What is measured is kept beside the model: interrupted, the same command goes on
    where it stopped, and methods and depths can be added.
    """
    from ..evaluation.evaluate import TASKS as tasks
    from ..evaluation.evaluate import Evaluation, Settings
    from ..evaluation.tasks.qa import QA

    if options.LLAMA_CPP in attention:
        raise click.UsageError("--attention llama.cpp is for `octavo bench`: its results are dense's.")
    if chat and task != QA.name:
        raise click.UsageError(f"--chat is for qa: {task} has one way to ask.")
    chosen = QA(chat=True) if chat else tasks[task]()
    if chosen.own_depths and was_given("depths"):
        raise click.UsageError(f"{task} takes its documents as they are: leave out --depths.")
    if plot is not None:
        from ..evaluation.plan_plot import check_plot

        check_plot(plot)
    library = model_options.library()
    settings = Settings(
        attention,
        budgets,
        depths,
        samples or chosen.samples,
        seed,
        data or chosen.data,
        options.plan_for(attention, plan, library),
    )
    with resumable(), TaskProgress() as progress:
        llama = model_options.open(plan=settings.plan)
        evaluation = Evaluation(llama, library, chosen, settings, progress, notice)
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


def was_given(name: str) -> bool:
    """Whether the user gave an option."""
    return click.get_current_context().get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def _columns(result: dict[str, Any]) -> dict[str, str]:
    more = {name: title for name, title in _MORE.items() if any(name in row for row in result["results"])}
    return {**_COLUMNS, "score": result["metric"], **more}


def as_markdown(result: dict[str, Any]) -> str:
    """The rows as a table, with what they depend on above it."""
    columns, machine = _columns(result), result["machine"]
    better = "higher" if result["higher_is_better"] else "lower"
    lines = [
        f"{result['task']} ({result['metric']}: {better} is better): {result['model']['name']}, "
        f"{result['data']['name']}, seed {result['seed']}, octavo {result['octavo']}, {machine['cpu']}, "
        f"{machine['threads']} threads",
        "",
        "| " + " | ".join(columns.values()) + " |",
        "| --- |" + " ---: |" * (len(columns) - 1),
    ]
    lines += ["| " + " | ".join(_cell(name, row) for name in columns) + " |" for row in result["results"]]
    return "\n".join(lines)


def _cell(name: str, row: dict[str, Any]) -> str:
    value = row.get(name)
    if value is None or (name == "budget" and value == 1):
        return "-"
    if isinstance(value, str):
        return value
    if name in ("depth", "samples"):
        return f"{value:,}"
    return f"{value:.4g}" if name == "budget" else f"{value:.4f}" if name == "kl_divergence" else f"{value:.3f}"


def as_csv(result: dict[str, Any]) -> str:
    """The rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(_columns(result)), extrasaction="ignore", restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(result["results"])
    return text.getvalue().rstrip("\n")
