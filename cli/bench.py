"""`octavo bench`: time octavo against llama.cpp in one run, or the attention kernels alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..library.background.computing import computing
from ..runtime.methods import LLAMA_CPP
from ..settings import ModelSettings
from . import options
from .option_types import AttentionListType, DepthListType, DraftLength
from .render import TaskProgress, markdown_table, notice

#: Columns of the tables: a key of the rows, and its heading.
_COLUMNS = {
    "attention": "attention",
    "depth": "depth",
    "prefill_tokens_per_s": "prefill tokens/s",
    "decode_ms": "decode ms",
    "decode_tokens_per_s": "decode tokens/s",
    "tokens_per_step": "tokens a step",
    "bytes_read_per_token": "MB read a token",
    "kv_bytes": "KV MB",
    "kl_divergence": "KL to dense",
    "top1_agreement": "same top token",
}
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

#: Ways to fill the caches, and their words in the table's heading.
_FILLS = {
    "prefill": "",
    "copy": "; llama.cpp's keys and values are a copy of octavo's",
    "random": "; text, keys and values are random",
}


@click.command()
@options.model
@options.threads
@options.cache_type
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
    type=click.IntRange(min=1),
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
@click.option("--kernels", is_flag=True, help="Time the attention kernels alone, without a model.")
@options.output_option("md", "json")
@options.as_settings
@computing()
def bench(
    settings: ModelSettings,
    doc: Path | None,
    depths: list[int],
    fill: str,
    attention: list[str],
    budget: float | None,
    plan: Path | None,
    retrieval_heads: float | None,
    n_decode: int,
    draft: int | None,
    kernels: bool,
    output: str,
) -> None:
    """Time octavo against llama.cpp on a real text."""
    if kernels:
        from ..system.processors import default_threads

        time_kernels(settings.n_threads or default_threads(), output)
        return
    from ..convert.plan.recall_texts import SHIPPED_NOVEL
    from ..documents.extract import extract_document
    from ..evaluation.bench import Bench, BenchSettings
    from ..runtime.load_model import locate_model
    from ..runtime.methods.attention import Attention, plan_for

    if fill == "random" and doc is not None:
        raise click.UsageError("--fill random reads no text: leave out --doc.")
    cache_type = settings.cache_type
    if fill != "prefill" and cache_type != "f16":
        raise click.UsageError(f"--fill {fill} gives engines f16 keys and values: leave out --cache-type {cache_type}.")
    text = None if fill == "random" else extract_document(doc or SHIPPED_NOVEL).text
    located, library = locate_model(settings, notice)
    attentions = [Attention.parse(words, budget=budget, retrieval_heads=retrieval_heads) for words in attention]
    model_plan = plan_for(attentions, library, plan)
    attentions = [one.with_plan(model_plan) for one in attentions]
    measured = BenchSettings(depths, attentions, n_decode, fill, draft)
    with TaskProgress() as progress:
        result = Bench(located, text, measured, progress).run()
    click.echo(json.dumps(result, indent=1) if output == "json" else as_markdown(result))


def time_kernels(threads: int, output: str) -> None:
    """Time the kernels alone, and print the result. Raise click.UsageError for options about a model or a text."""
    from ..evaluation.kernel_bench import KernelBench

    context = click.get_current_context()
    named = {parameter.name: parameter for parameter in context.command.params}
    for name in context.params:
        if name not in ("kernels", "threads", "output") and options.is_on_command_line(name):
            raise click.UsageError(f"--kernels runs no model: leave out {named[name].opts[-1]}.")
    with TaskProgress() as progress:
        result = KernelBench(threads, progress).run()
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
    """Write the result of `Bench.run` as a table, with the machine above it."""
    machine, model = result["machine"], result["model"]
    stored_as = f"; keys and values are {result['cache_type']}" if result["cache_type"] != "f16" else ""
    heading = (
        f"{model['file']}, {machine['cpu']}, {machine['threads']} threads, "
        f"reads {machine['read_bandwidth_gb_s']} GB/s from memory{_FILLS[result['fill']]}{stored_as}"
    )
    rows = [[_cell(name, row) for name in _COLUMNS] for row in result["results"]]
    return f"{heading}\n\n{markdown_table(_COLUMNS.values(), rows)}"


def _cell(name: str, row: dict[str, Any]) -> str:
    if name == "attention" and row["budget"] < 1:
        return f"{row['attention']}, budget {row['budget']:g}"
    if name == "attention" and row["attention"] == LLAMA_CPP:
        return f"llama.cpp, flash attention {'on' if row['flash_attention'] else 'off'}"
    if name == "attention" and row["chosen"] != row["attention"]:
        return f"{row['attention']} ({row['chosen']})"
    if row[name] is None:
        return "-"
    if name in ("kv_bytes", "bytes_read_per_token"):
        return f"{row[name] / 1e6:.1f}"
    return f"{row[name]:,}" if isinstance(row[name], int) else str(row[name])
