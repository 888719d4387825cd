"""Write octavo's man page from its help texts: `make man` puts it where `man octavo` finds it."""

from __future__ import annotations

import re

import click

from ..version import __version__
from .main import SECTIONS, cli


def man_page() -> str:
    """Return the man page, in roff."""
    context = click.Context(cli, info_name="octavo", **cli.context_settings)
    lines = [
        f'.TH OCTAVO 1 "" "octavo {__version__}"',
        ".SH NAME",
        r"octavo \- chat with long documents on a laptop",
    ]
    lines += [".SH SYNOPSIS", r".B octavo", r"COMMAND [OPTIONS] [ARGUMENTS]", ".SH DESCRIPTION", *_paragraphs(cli.help)]
    for section, commands in SECTIONS.items():
        lines.append(f".SH {section.upper()}")
        for name in commands:
            command = cli.get_command(context, name)
            assert command is not None
            with click.Context(command, info_name=name, parent=context) as own:
                usage = " ".join(command.collect_usage_pieces(own))
                lines += [f'.SS "octavo {name} {_escaped(usage)}"', *_paragraphs(command.help)]
                for parameter in command.get_params(own):
                    if isinstance(parameter, click.Option) and (record := parameter.get_help_record(own)):
                        lines += [".TP", f".B {_escaped(record[0])}", *_paragraphs(record[1])]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str | None) -> list[str]:
    """Return the lines of a text; keep those after click's backspace mark as they are."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", (text or "").strip()):
        as_it_is = paragraph.startswith("\b")
        escaped = [_escaped(line.strip()) for line in paragraph.replace("\b", "").strip().splitlines()]
        lines += [*([".PP"] if lines else []), *([".nf", *escaped, ".fi"] if as_it_is else escaped)]
    return lines


def _escaped(text: str) -> str:
    """Escape the signs that roff would act on."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    return rf"\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    print(man_page(), end="")
