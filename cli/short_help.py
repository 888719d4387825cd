"""Help that fits a screen: the options that most users need, in groups, with examples; `--help-all` has the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import click

#: Where a context notes that all options are to be shown.
_ALL = "octavo.help_all"

#: The first sentence of a help text.
_FIRST_SENTENCE = re.compile(r".*?\.(?=\s|$)", re.DOTALL)

#: What replaces a hyphen while lines are filled: a line may end after a plain one.
_HYPHEN = "\N{NON-BREAKING HYPHEN}"

#: Paragraphs of a command's text that the short help has: what the command does, and what its arguments are.
_PARAGRAPHS = 2


class WholeWords(click.HelpFormatter):
    """Help whose lines never end within a word: a name with a hyphen can be copied and searched for."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _HYPHEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(name, text.replace("-", _HYPHEN)) for name, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(_HYPHEN, "-")


class ShortHelp(click.Command):
    """A command whose `--help` is short.

    Parameters
    ----------
    groups : mapping of str to sequence of str
        Titles, and the options below each, by one of their names.
    examples : sequence of str
        Commands to start from.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], examples: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups, self.examples = groups, examples
        show_all = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help="Show all options, with their variables, and exit.",
        )
        self.params.append(show_all)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        is_short, text = _ALL not in ctx.meta, self.help
        if is_short and text:
            self.help = "\n\n".join(text.split("\n\n")[:_PARAGRAPHS])
        super().format_help_text(ctx, formatter)
        self.help = text
        if is_short:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if _ALL in ctx.meta:
            super().format_options(ctx, formatter)
            return
        options = {name: option for option in self.params for name in option.opts}
        for title, names in self.groups.items():
            with formatter.section(title):
                formatter.write_dl([record for name in names if (record := _brief_record(options[name], ctx))])
        formatter.write_paragraph()
        formatter.write_text("--help-all shows all options, and the variables that set them.")


def _brief_record(option: click.Parameter, ctx: click.Context) -> tuple[str, str] | None:
    """Return an option's names and the first sentence of its help, without its variable and its range."""
    brief = copy(option)
    assert isinstance(brief, click.Option)
    if isinstance(brief.type, click.IntRange | click.FloatRange):
        brief.type, brief.metavar = click.FLOAT, "N"
    first = _FIRST_SENTENCE.match(brief.help or "")
    brief.help = first[0] if first else brief.help
    brief.show_envvar = False
    return brief.get_help_record(ctx)


def _show_all(ctx: click.Context, _parameter: click.Parameter, shows_all: bool) -> None:
    if shows_all and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()
