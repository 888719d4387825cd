"""Declare the options of sampling, named and set as in llama.cpp, except for the length of an answer."""

from __future__ import annotations

import click

from ..settings import OVER_DOCUMENTS, TEMPERATURE, THINK_BUDGET, Sampling
from .option_types import DraftLength, Number, TokenLimit, WholeNumber
from .options import gathered, option

#: The values of --think.
THINKS = SHOW, HIDE, OFF = "show", "hide", "off"

predict = option(
    "-n",
    "--predict",
    env="PREDICT",
    type=TokenLimit(min=-1),
    default=1024,
    show_default=True,
    help="Most tokens of an answer, without thoughts; -1 is as many as fit.",
)
temp = option(
    "--temp",
    env="TEMP",
    type=Number(min=0),
    show_default=f"{OVER_DOCUMENTS} over documents, else {TEMPERATURE}",
    help="Temperature.",
)
top_p = option("--top-p", env="TOP_P", type=Number(0, 1), default=0.95, show_default=True, help="Nucleus sampling.")
top_k = option(
    "--top-k",
    env="TOP_K",
    type=WholeNumber(min=0),
    default=40,
    show_default=True,
    help="Draw from the k likeliest tokens; 0 is off.",
)
min_p = option(
    "--min-p",
    env="MIN_P",
    type=Number(0, 1),
    default=0.05,
    show_default=True,
    help="Draw from tokens with at least this share of the likeliest one's probability; 0 is off.",
)
repeat_penalty = option(
    "--repeat-penalty",
    env="REPEAT_PENALTY",
    type=Number(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Makes the last 64 tokens less likely; 1 is off.",
)
system_prompt = option(
    "-sys",
    "--system-prompt",
    env="SYSTEM_PROMPT",
    default="",
    help="What the model reads first; over a document, after the document.",
)
seed = option(
    "--seed",
    env="SEED",
    type=WholeNumber(-1, 2**32 - 2),
    default=-1,
    show_default=True,
    help="Makes answers repeatable; -1 draws a new one each time.",
)


think_option = option(
    "--think",
    env="THINK",
    type=click.Choice(THINKS),
    help="How a model thinks before it answers: show and hide turn thinking on where the chat template has a switch, "
    "off turns it off.  [default: as the template does, shown on a terminal]",
)
think_budget = option(
    "--think-budget",
    env="THINK_BUDGET",
    type=WholeNumber(min=-1),
    default=THINK_BUDGET,
    show_default=True,
    help="Most tokens of a thought, which then ends; -1 is as many as leave room for the answer.",
)


draft = option(
    "--draft",
    env="DRAFT",
    type=DraftLength(),
    metavar="auto|off|N",
    default="auto",
    show_default=True,
    help="Most tokens that are drafted from the text so far, and checked in one step; auto is the number that pays, "
    "off is none. Answers stay the same.",
)


def thinks(think: str | None) -> bool | None:
    """Return whether a model should think, by a value of --think."""
    return None if think is None else think != OFF


def _sampling(
    predict: int,
    temp: float | None,
    top_p: float,
    top_k: int,
    min_p: float,
    repeat_penalty: float,
    seed: int,
    think_budget: int,
    draft: int | None,
) -> Sampling:
    """Gather the options of these names."""
    most, budget = (limit if limit >= 0 else None for limit in (predict, think_budget))
    chosen = seed if seed >= 0 else None
    return Sampling(most, temp, top_p, top_k, min_p, repeat_penalty, chosen, think_budget=budget, draft=draft)


#: Add -n, --temp, --top-p, --top-k, --min-p, --repeat-penalty, --seed, --think-budget and --draft, as one `sampling`.
sampling_options = gathered(
    "sampling", _sampling, predict, temp, top_p, top_k, min_p, repeat_penalty, seed, think_budget, draft
)
