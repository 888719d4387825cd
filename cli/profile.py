"""`octavo profile`: measure which layers and heads of a model matter, and write its plan."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import click

from ..library.background.computing import computing
from ..settings import ModelSettings
from . import options
from .option_types import WholeNumber
from .render import TaskProgress, notice, print_json, resumable
from .table import table

#: Headings of the columns of numbers.
_FIGURES = ("number", "similarity")
_CHECKS = ("recall, equal", "recall, by sensitivity", "prose, equal", "prose, by sensitivity")

#: Options that only --heads makes use of.
_OF_HEADS = ("texts", "rounds", "sinks", "recent", "write_gates")


@click.command()
@options.output_option("text", "json")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw the plan as a picture too.")
@click.option(
    "--write-gates",
    type=click.Path(path_type=Path),
    metavar="FILE.tsv",
    help="Write the order of the heads as gates too, in the format of DuoAttention's authors, with config.json beside "
    "them.",
)
@options.option(
    "--heads",
    env="HEADS",
    is_flag=True,
    help="Measure the heads too, for duo: hundreds of readings, hours for larger models.",
)
@options.option(
    "--texts",
    env="TEXTS",
    type=WholeNumber(1, 100),
    default=2,
    show_default=True,
    help="Texts to measure heads with.",
)
@options.option(
    "--tokens",
    env="TOKENS",
    type=WholeNumber(1, 1 << 20),
    default=4096,
    show_default=True,
    help="Tokens of a text.",
)
@options.option(
    "--rounds",
    env="ROUNDS",
    type=WholeNumber(1, 1000),
    default=20,
    show_default=True,
    help="Rounds that eliminate heads: more take longer and are more exact.",
)
@options.option(
    "--sinks",
    env="SINKS",
    type=WholeNumber(1, 256),
    default=128,
    show_default=True,
    help="First tokens that a streaming head sees.",
)
@options.option(
    "--recent",
    env="RECENT",
    type=WholeNumber(1, 1 << 20),
    default=256,
    show_default=True,
    help="Newest tokens that a streaming head sees.",
)
@options.model
@options.threads
@options.device
@options.index_dir
@options.scheduler
@options.as_settings
@computing()
def profile(
    output: str,
    plot: Path | None,
    write_gates: Path | None,
    heads: bool,
    texts: int,
    tokens: int,
    rounds: int,
    sinks: int,
    recent: int,
    settings: ModelSettings,
    scheduler: str | None,
) -> None:
    """Measure which layers of a model matter, and which heads, once.

    Layers take minutes; --heads measures the heads, too. The plan is written beside the model; --attention plan and duo
    use it. Interrupted, the same command resumes where it stopped.
    """
    from ..convert.plan.profile import ProfileSettings
    from ..convert.plan.profile import profile as measured_plan
    from ..runtime.load_model import load_model, locate_model
    from ..runtime.store.plan import check_gates
    from ..runtime.store.plan import write_gates as write_order

    if plot is not None:
        from ..evaluation.pictures import check_plot

        check_plot(plot)
    measured = ProfileSettings(tokens=tokens)
    if heads:
        measured = ProfileSettings(texts, tokens, rounds, sinks, recent, heads=True)
    elif without := [name for name in _OF_HEADS if options.is_on_command_line(name)]:
        raise click.UsageError(f"--{without[0].replace('_', '-')} is for the heads: add --heads.")
    if write_gates is not None:
        check_gates(write_gates, measured.sinks, measured.recent_in_use)
    located, library = locate_model(settings, notice)
    with resumable(), TaskProgress() as progress:
        llama, workers = load_model(located, notice, measures=True), None
        if scheduler is not None:
            from ..convert.plan.cluster_trials import trial_workers

            workers = trial_workers(scheduler, llama, library, settings, notice)
        plan = measured_plan(llama, library, measured, progress, notice, workers)
    notice(f"The plan is {library.plan_path}")
    if plot is not None:
        from ..evaluation.plan_plot import write_plot

        write_plot(plan, plot)
        notice(f"The picture is {plot}")
    if write_gates is not None:
        write_order(write_gates, library.plan().gates(llama.context.cache.layers))
        notice(f"The gates are {write_gates}")
    if output == "json":
        print_json(plan)
    else:
        show(plan)


def show(plan: dict[str, Any]) -> None:
    """Print a plan in a few lines."""
    from ..convert.plan.layer_importance import group_name

    layers, heads = plan["layers"], plan["heads"]
    groups = [group for group in layers["group"] if group is not None]
    last = max(groups, default=0)
    rows = []
    for group, number in sorted(Counter(groups).items()):
        members = [i for i, other in enumerate(layers["group"]) if other == group]
        similarity = sum(layers["similarity"][i] for i in members) / number
        rows.append(
            [
                group_name(group, last),
                str(number),
                f"{similarity:.4f}",
                spans(members),
            ]
        )
    sliding = [i for i, slides in enumerate(layers["slides"]) if slides]
    if sliding:
        rows.append(["slide", str(len(sliding)), "-", spans(sliding)])
    if rows:
        table(["layers", *_FIGURES, "which"], rows, _FIGURES, folded={"which"})
        click.echo()
    show_budgets(layers)
    if n_heads := len(heads["elimination"]):
        n_retrieval = math.ceil(plan["retrieval_heads"] * n_heads)
        click.echo(
            f"{n_retrieval} of {n_heads} KV heads are retrieval heads; the others see {heads['n_sinks']} sinks and "
            f"{heads['n_recent']} recent tokens."
        )
    else:
        click.echo("Heads were not measured: --heads measures them, for duo.")
    click.echo(
        f"Measured on {plan['task']}: with full attention the model recalls {plan['accuracy']:.1%} of the tokens."
    )


def show_budgets(layers: dict[str, Any]) -> None:
    """Print whether budgets by sensitivity are better than equal ones, and for which methods."""
    rows, checks = [], layers["checks"]
    for method, equal in checks["equal"].items():
        pairs = zip(equal, checks["by_sensitivity"][method], strict=True)
        is_equal = set(layers["budget_scale"][method]) == {1.0}
        figures = [f"{value:.4f}" for pair in pairs for value in pair]
        rows.append([method, "equal" if is_equal else "by sensitivity", *figures])
    if rows:
        click.echo(
            "KL divergence from dense attention at an eighth of the bytes, on texts that were not measured with:"
        )
        table(["method", "layers' budgets", *_CHECKS], rows, _CHECKS, folded={"method", "layers' budgets"})
        click.echo()


def spans(numbers: list[int]) -> str:
    """Write ascending numbers in short, such as "0-2, 5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
