"""What `--attention help` prints: every word, its parameters and its presets."""

from __future__ import annotations

import click

_WIDTH, _NAMES = 100, 24


def attention_help() -> str:
    """Return the words that `--attention` is made of, with their parameters, as text for a terminal."""
    from ..runtime.methods import words
    from ..runtime.methods.compose import parameters_of
    from ..runtime.methods.parameters import explain, explain_presets, summary

    text = click.HelpFormatter(width=_WIDTH)
    text.write_text(
        "--attention takes one of these words, or several with + between them, such as duo+quest. Parameters follow a "
        "colon: quest:tokens=1024,dense_layers=0."
    )
    for word in words():
        owner = parameters_of(word)
        text.write_paragraph()
        text.write_text(f"{word}: {summary(owner)}")
        lines = [(name, f"{said.removesuffix('.')} ({values}).") for name, values, said in explain(owner)]
        lines += [(name, f"Preset: {values}.") for name, values in explain_presets(owner)]
        if lines:
            with text.indentation():
                text.write_dl(lines, col_max=_NAMES)
    return text.getvalue()
