"""Print `--attention help` and `octavo eval help`: every word, its parameters and its presets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..runtime.methods.parameters import Parameters

_WIDTH, _NAMES = 100, 24


def attention_help() -> str:
    """Return the words of `--attention`, with their parameters, as text for a terminal."""
    from ..runtime.methods import words
    from ..runtime.methods.attention import parameters_of

    return explained(
        "--attention takes one of these words, or several with + between them, such as duo+quest. Parameters follow a "
        "colon: quest:tokens=1024,dense_layers=2.",
        [(word, parameters_of(word)) for word in words()],
    )


def explained(introduction: str, owners: Sequence[tuple[str, type[Parameters]]]) -> str:
    from ..runtime.methods.parameters import explain, explain_presets, summary

    text = click.HelpFormatter(width=_WIDTH)
    text.write_text(introduction)
    for word, owner in owners:
        text.write_paragraph()
        text.write_text(f"{word}: {summary(owner)}")
        lines = [(name, f"{explanation.removesuffix('.')} ({values}).") for name, values, explanation in explain(owner)]
        lines += [(name, f"Preset: {values}.") for name, values in explain_presets(owner)]
        if lines:
            with text.indentation():
                text.write_dl(lines, col_max=_NAMES)
    return text.getvalue()
