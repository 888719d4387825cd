"""The man page says what the help texts say."""

import shutil
import subprocess

import click
import pytest

from octavo.cli.main import COMMANDS, cli
from octavo.cli.man import man_page


def test_every_command_and_option_is_there():
    page = man_page().replace("\\-", "-")
    context = click.Context(cli, **cli.context_settings)
    for name in COMMANDS:
        assert f'.SS "octavo {name} ' in page
        for parameter in cli.get_command(context, name).params:
            if isinstance(parameter, click.Option):
                assert all(f"{option}" in page for option in parameter.opts)
    assert all(text.split()[0] in page for text in COMMANDS.values())


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_groff_has_nothing_to_say():
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-rLL=100n"], input=man_page(), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "chat with long documents" in done.stdout
    assert "GGUF model" in done.stdout
