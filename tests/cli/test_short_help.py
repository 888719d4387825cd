"""`--help` fits a screen, and `--help-all` leaves nothing out."""

import re

import click
import pytest
from helpers.command_line import octavo

from octavo.cli.main import COMMANDS, cli
from octavo.cli.short_help import ShortHelp

SHORT = [name for name in COMMANDS if isinstance(cli.get_command(None, name), ShortHelp)]

#: Lines of a terminal that one can scroll back to at a glance.
MOST_LINES = 64

#: Commands that people ask with. Those that measure have their own readers.
FOR_ALL = [name for name in COMMANDS if name not in ("eval", "bench", "profile")]


@pytest.mark.parametrize("name", FOR_ALL)
def test_the_help_of_a_command_fits_two_screens(name):
    shown = octavo(name, "--help").stdout
    assert len(shown.splitlines()) <= MOST_LINES
    assert max(map(len, shown.splitlines())) <= 80


def test_commands_with_many_options_have_short_help():
    assert {"ask", "chat", "index", "serve"} <= set(SHORT)


@pytest.mark.parametrize("name", SHORT)
def test_short_help_has_twelve_options_in_groups_and_two_examples(name):
    command = cli.get_command(None, name)
    shown = octavo(name, "-h").stdout
    assert sum(map(len, command.groups.values())) == 12
    assert len(command.groups) == 4
    assert all(f"\n{title}:\n" in shown for title in command.groups)
    assert all(f"\n  {example}\n" in shown for example in command.examples)
    assert [example.split()[:2] for example in command.examples] == [["octavo", name]] * 2
    assert "OCTAVO_" not in shown
    assert "--help-all" in shown


@pytest.mark.parametrize("name", SHORT)
def test_all_help_has_every_option_and_variable(name):
    command, shown = cli.get_command(None, name), octavo(name, "--help-all").stdout
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert len(options) > 14
    for option in options:
        assert re.search(rf"(^|[ /]){re.escape(option.opts[-1])}\b", shown, re.MULTILINE)
        assert not option.envvar or option.envvar in shown
    assert "".join(command.help.split()) in "".join(shown.split())


@pytest.mark.parametrize("name", SHORT)
def test_examples_are_commands_that_parse(name):
    import shlex

    command = cli.get_command(None, name)
    for example in command.examples:
        context = command.make_context(name, shlex.split(example)[2:])
        assert not context.args


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_of_help_ends_within_a_word(name, width):
    shown = cli.get_command(None, name).get_help(click.Context(cli.get_command(None, name), terminal_width=width))
    assert not re.findall(r"\S-$", shown, re.MULTILINE)
    assert "\N{NON-BREAKING HYPHEN}" not in shown
