"""`octavo bench`: time octavo against other engines in one run, or the attention kernels alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..evaluation.peer_table import PEERS, Peer, peer_at
from ..library.background.computing import computing
from ..runtime.methods import LLAMA_CPP, words
from ..settings import CACHE_TYPES, MOST_THREADS, ModelSettings
from . import options
from .option_types import AttentionListType, DepthListType, DraftLength, ListOf, Number, WholeNumber
from .render import TaskProgress, csv_table, markdown_table, notice
from .reports import measure_speed_of_report, refuse_with_report

#: Columns of the tables: a key of the rows, and its heading. Those of a sweep are left out without one.
_COLUMNS = {
    "attention": "attention",
    "depth": "depth",
    "prefill_tokens_per_s": "prefill tokens/s",
    "first_token_ms": "first token ms",
    "decode_ms": "decode ms",
    "decode_ms_min": "min",
    "decode_ms_p10": "p10",
    "decode_ms_p90": "p90",
    "decode_tokens_per_s": "decode tokens/s",
    "tokens_per_step": "tokens a step",
    "attention_share": "time in attention",
    "attention_gb_s": "attention GB/s",
    "bytes_read_per_token": "MB read a token",
    "kv_bytes": "KV MB",
    "peak_resident_bytes": "peak MB",
    "kl_divergence": "KL to dense",
    "top1_agreement": "same top token",
    "loss": "loss",
}
#: Columns that are left out where no row has them.
_IF_MEASURED = ("first_token_ms", "attention_gb_s", "peak_resident_bytes")
_SWEPT = {"threads": "threads", "cache_type": "keys, values"}
_KERNEL_COLUMNS = {
    "kernel": "kernel",
    "kv_type": "keys, values",
    "head_dim": "head_dim",
    "group": "group",
    "rows": "rows",
    "tokens": "tokens",
    "ms": "ms",
    "gb_per_s": "GB/s",
    "share_of_read_bandwidth": "of read bandwidth",
    "gflop_per_s": "GFLOP/s",
    "times_dense": "times dense",
}

#: Parameters that say how a report is measured, and their names in the report.
_IN_A_REPORT = {
    "n_decode": "predict",
    "n_question": "question",
    "repetitions": "repetitions",
    "delay_s": "delay_s",
    "alone": "alone",
    "peer_names": "peers",
}

#: Ways to fill the caches, and their words in the table's heading.
_FILLS = {
    "prefill": "; KL is of the steps alone, not of a sparse reading",
    "copy": "; llama.cpp's keys and values are a copy of octavo's",
    "random": "; text, keys and values are random",
}


class PeerProgram(click.ParamType):  # type: ignore[type-arg]
    """A program of llama.cpp that the user built, and a name for it."""

    name = "NAME=PATH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Peer]:
        label, _, path = str(value).partition("=")
        program = Path(path).expanduser()
        taken = label.partition(":")[0] in (*PEERS, *words())
        if not label or taken or not os.access(program, os.X_OK) or program.is_dir():
            self.fail(f"'{value}' is not a name with a program, such as mine=build/bin/llama-server.", param, ctx)
        return label, peer_at(program.resolve())


@click.command()
@options.model
@options.option(
    "-t",
    "--threads",
    "threads_of_runs",
    env="THREADS",
    type=ListOf(WholeNumber(1, MOST_THREADS), "N"),
    help="Numbers of threads, each measured in a run of its own.  [default: (physical cores)]",
)
@options.option(
    "--cache-type",
    "cache_types",
    env="CACHE_TYPE",
    type=ListOf(click.Choice(CACHE_TYPES), "TYPE"),
    default="f16",
    show_default=True,
    help=f"How keys and values are stored, each type in a run of its own: {', '.join(CACHE_TYPES)}.",
)
@options.device
@click.option("--doc", type=click.Path(path_type=Path), help="Text to read, longer than the deepest measurement.")
@click.option(
    "--depths",
    type=DepthListType(least=0),
    default="2048,8000",
    show_default=True,
    help="Tokens in the cache before decoding.",
)
@click.option(
    "--fill",
    type=click.Choice(list(_FILLS)),
    default="prefill",
    show_default=True,
    help="How the caches get there: every engine reads the text; octavo reads it, and llama.cpp gets a copy of its "
    "keys and values; or nothing is read, and text, keys and values are random.",
)
@click.option(
    "--attention",
    type=AttentionListType(),
    default="llama.cpp,dense,auto",
    show_default=True,
    help=f"Methods to compare: llama.cpp (the better of flash attention on and off; q8_0 needs it on), "
    f"{options.ATTENTIONS}.",
)
@options.budget
@options.plan
@options.retrieval_heads
@click.option(
    "-n",
    "--predict",
    "n_decode",
    type=WholeNumber(min=1),
    default=48,
    show_default=True,
    help="Tokens decoded at each depth.",
)
@click.option(
    "--draft",
    type=DraftLength(),
    metavar="auto|off|N",
    default="off",
    show_default=True,
    help="Drafts of octavo's engines; the text decides what they are worth.",
)
@click.option(
    "--question",
    "n_question",
    type=WholeNumber(min=0),
    default=32,
    show_default=True,
    help="Tokens of a question over what was read, for the time until the first token of an answer.",
)
@click.option(
    "-r",
    "--repetitions",
    type=WholeNumber(min=1),
    default=1,
    show_default=True,
    help="How often tokens are decoded and a question is read at each depth, one after another in the text.",
)
@click.option(
    "--delay",
    "delay_s",
    type=Number(min=0),
    default=0,
    show_default=True,
    metavar="SECONDS",
    help="Pause before each repetition but the first.",
)
@click.option(
    "--peers",
    "peer_names",
    type=ListOf(click.Choice(list(PEERS)), "NAME"),
    help=f"Other engines to measure in the same run, each in processes of its own: {', '.join(PEERS)}. Packages are "
    "installed from PyPI, after asking, in environments under the cache folder.",
)
@click.option(
    "--peer",
    "programs",
    type=PeerProgram(),
    multiple=True,
    help="A llama-server or llama-bench that you built, and a name for it; repeat it for more.",
)
@click.option("--yes", is_flag=True, help="Install packages of peers without asking.")
@click.option("--alone", is_flag=True, help="Run engines one after another, in place of in turns, token by token.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw time over depth and over bytes, as a PNG file.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.json",
    help="Measure all methods at three depths that take about an hour, and keep each depth in FILE.json: interrupted, "
    "the same command continues. `octavo eval suite` adds quality to the same file.",
)
@click.option("--kernels", is_flag=True, help="Time the attention kernels alone, without a model.")
@options.output_option("md", "json", "csv")
@options.as_settings
@computing()
def bench(
    settings: ModelSettings,
    threads_of_runs: list[int] | None,
    cache_types: list[str],
    doc: Path | None,
    depths: list[int],
    fill: str,
    attention: list[str],
    budget: float | None,
    plan: Path | None,
    retrieval_heads: float | None,
    n_decode: int,
    draft: int | None,
    n_question: int,
    repetitions: int,
    delay_s: float,
    peer_names: list[str] | None,
    programs: Sequence[tuple[str, Peer]],
    yes: bool,
    alone: bool,
    plot: Path | None,
    report: Path | None,
    kernels: bool,
    output: str,
) -> None:
    """Time octavo against other engines on a real text.

    Threads run on any core that this process may use; `taskset` chooses others.
    """
    if kernels:
        from ..system.processors import default_threads

        time_kernels(threads_of_runs or [default_threads()], output)
        return
    from ..convert.plan.recall_texts import SHIPPED_NOVEL
    from ..documents.extract import extract_document
    from ..evaluation.bench import BenchSettings, sweep
    from ..runtime.load_model import locate_model
    from ..runtime.methods.attention import Attention, plan_for

    attentions = [
        Attention.parse(words, budget=budget, retrieval_heads=retrieval_heads)
        for words in attention
        if words != LLAMA_CPP or LLAMA_CPP not in (peer_names or [])  # which is measured in its own process, not twice
    ]
    _refuse_twice("--attention", [str(one) for one in attentions])
    _refuse_twice("-t", threads_of_runs or [])
    _refuse_twice("--cache-type", cache_types)
    _refuse_twice("--peer", [name for name, _ in programs])
    if fill == "random" and doc is not None:
        raise click.UsageError("--fill random reads no text: leave out --doc.")
    if report is not None:
        refuse_with_report(threads_of_runs or [], cache_types, output)
    peers = {**{name: PEERS[name] for name in peer_names or []}, **dict(programs)}
    if fill != "prefill" and peers:
        raise click.UsageError(f"Peers read the text themselves: leave out --fill {fill}, or the peers.")
    if fill != "prefill" and cache_types != ["f16"]:
        raise click.UsageError(
            f"--fill {fill} gives engines f16 keys and values: leave out --cache-type {','.join(cache_types)}."
        )
    if plot is not None:
        from ..evaluation.pictures import check_plot

        check_plot(plot)
    novel = doc or SHIPPED_NOVEL
    text = None if fill == "random" else (novel.name, extract_document(novel).text)
    located, library = locate_model(settings, notice)
    install_peers(peers, yes)
    if report is not None:
        one_run = replace(located, n_threads=threads_of_runs[0] if threads_of_runs else None, cache_type=cache_types[0])
        how: dict[str, Any] = {"predict": n_decode, "question": n_question, "repetitions": repetitions}
        how |= {"delay_s": delay_s, "alone": alone, "peers": list(peers)}
        given = {name: how[name] for option, name in _IN_A_REPORT.items() if options.is_on_command_line(option)}
        given_depths = depths if options.is_on_command_line("depths") else []
        measure_speed_of_report(report, one_run, library, how, given, given_depths, output)
        return
    model_plan = plan_for(attentions, library, plan)
    attentions = [one.with_plan(model_plan) for one in attentions]
    measured = BenchSettings(depths, attentions, n_decode, fill, draft, n_question, repetitions, delay_s, alone, peers)
    with TaskProgress() as progress:
        result = sweep(located, library, text, measured, threads_of_runs or [None], cache_types, progress)
    written = {"json": lambda: json.dumps(result, indent=1), "csv": lambda: as_csv(result)}
    click.echo(written.get(output, lambda: as_markdown(result))())
    if plot is not None:
        from ..evaluation.bench_plot import write_plot

        write_plot(result, plot)
        notice(f"The picture is {plot}")


def _refuse_twice(option: str, values: Sequence[Any]) -> None:
    """Refuse values of an option that are the same: they would be measured twice, or one would hide the other."""
    for i, value in enumerate(values):
        if value in values[:i]:
            raise click.UsageError(f"{option} names {value} twice: name it once.")


def install_peers(peers: Mapping[str, Peer], yes: bool) -> None:
    """Install the packages of peers that lack, after asking unless `yes`. The run reports a peer without a package."""
    from ..errors import OctavoError
    from ..evaluation.peer_environments import environment_of, install, is_installed

    missing = list({peer.package: peer for peer in peers.values() if not is_installed(peer)}.values())
    if missing and not yes:
        packages = ", ".join(str(peer.package) for peer in missing)
        folder = environment_of(missing[0])
        click.confirm(f"Install {packages} from PyPI into {folder and folder.parent}?", abort=True, err=True)
    for peer in missing:
        notice(f"Installing {peer.package}")
        try:
            install(peer)
        except OctavoError as problem:
            notice(str(problem))


def time_kernels(threads: list[int], output: str) -> None:
    """Time the kernels alone, and print the result. Raise click.UsageError for options about a model or a text."""
    from ..evaluation.kernel_bench import KernelBench

    context = click.get_current_context()
    named = {parameter.name: parameter for parameter in context.command.params}
    for name in context.params:
        if name not in ("kernels", "threads_of_runs", "output") and options.is_on_command_line(name):
            raise click.UsageError(f"--kernels runs no model: leave out {named[name].opts[-1]}.")
    if len(threads) > 1 or output == "csv":
        raise click.UsageError("--kernels takes one number of threads, and prints -o md or json.")
    with TaskProgress() as progress:
        result = KernelBench(threads[0], progress).run()
    click.echo(json.dumps(result, indent=1) if output == "json" else kernels_as_markdown(result))


def kernels_as_markdown(result: dict[str, Any]) -> str:
    """Write the result of `KernelBench.run` as a table, with the machine above it."""
    machine = result["machine"]
    heading = (
        f"{machine['cpu']}, {machine['threads']} threads, reads {machine['read_bandwidth_gb_s']} GB/s from memory; "
        f"one layer of {result['kv_heads']} KV heads"
    )
    rows = [[_kernel_cell(name, row) for name in _KERNEL_COLUMNS] for row in result["kernels"]]
    return f"{heading}\n\n{markdown_table(_KERNEL_COLUMNS.values(), rows, n_left=2)}"


def _kernel_cell(name: str, row: dict[str, Any]) -> str:
    return f"{row[name]:.0%}" if name == "share_of_read_bandwidth" else str(row.get(name, "-"))


def as_markdown(result: dict[str, Any]) -> str:
    """Write the result of `sweep` as a table, with what its figures depend on above it."""
    machine, model, software, rows = result["machine"], result["model"], result["software"], result["results"]
    swept = {key: title for key, title in _SWEPT.items() if len({row[key] for row in rows}) > 1}
    first = rows[0]
    said = [model["file"], machine["cpu"]]
    if "threads" not in swept:
        said += [f"{first['threads']} threads", f"reads {first['read_bandwidth_gb_s']} GB/s from memory"]
    said += [f"octavo {software['octavo']}", f"llama-cpp-python {software['llama_cpp_python']}", software["date"][:10]]
    differs = first["cache_type"] != "f16" and "cache_type" not in swept
    stored_as = f"; keys and values are {first['cache_type']}" if differs else ""
    unmeasured = {key for key in _IF_MEASURED if all(row[key] is None for row in rows)}
    columns = {key: title for key, title in {**swept, **_COLUMNS}.items() if key not in unmeasured}
    cells = [[_cell(name, row) for name in columns] for row in rows]
    heading = f"{', '.join(said)}{_FILLS[result['settings']['fill']]}{stored_as}"
    return f"{heading}\n\n{markdown_table(columns.values(), cells)}"


def as_csv(result: dict[str, Any]) -> str:
    """Write the result of `sweep` as CSV, each row with all that it depends on, without a line end after the last."""
    conditions = {
        **_flat("software", result["software"]),
        **_flat("machine", result["machine"]),
        **_flat("model", result["model"]),
        **_flat("text", result["text"] or {}),
        **_flat("settings", result["settings"]),
        "device": result["device"],
    }
    rows = [{**conditions, **_flat("", row)} for row in result["results"]]
    names = dict.fromkeys(name for row in rows for name in row)
    return csv_table(names, rows)


def _flat(prefix: str, value: dict[str, Any]) -> dict[str, Any]:
    """Name nested values by their path; a list is one value, parted by blanks."""
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(inner, dict):
            flat |= _flat(path, inner)
        else:
            flat[path] = " ".join(map(str, inner)) if isinstance(inner, list) else inner
    return flat


def _cell(name: str, row: dict[str, Any]) -> str:
    if name == "attention" and row["cannot"]:
        return f"{row['attention']}: {row['cannot']}"
    if name == "attention" and row["budget"] < 1:
        return f"{row['attention']}, budget {row['budget']:g}"
    if name == "attention" and row.get("flash_attention") is not None:
        return f"{row['attention']}, flash attention {'on' if row['flash_attention'] else 'off'}"
    if name == "attention" and row.get("chosen", row["attention"]) != row["attention"]:
        return f"{row['attention']} ({row['chosen']})"
    if row[name] is None:
        return "-"
    if name == "attention_share":
        return f"{row[name]:.0%}"
    if name in ("kv_bytes", "bytes_read_per_token", "peak_resident_bytes"):
        return f"{row[name] / 1e6:.1f}"
    return f"{row[name]:,}" if isinstance(row[name], int) else str(row[name])
