"""octavo's commands, run by tests: in this process, or in one of their own."""

import signal
import subprocess
import sys
import time

from click.testing import CliRunner, Result

from octavo.cli import main as cli_main

#: A document's text, repeated.
SENTENCES = "The keeper of the island lighthouse wrote down each ship that passed. One was called Petrel.\n"

SHORT_ANSWER = ["--temp", "0", "-n", "5"]


def cut(n_tokens: int) -> str:
    """The line on stderr about an answer that has as many tokens as -n allows."""
    return f"(The answer was cut after {n_tokens} tokens: -n sets the limit, -1 is none.)\n"


def octavo(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli_main.cli, [str(argument) for argument in arguments], input=stdin, prog_name="octavo")


def start(*arguments: object, **settings) -> subprocess.Popen:
    """The same in a process of its own."""
    command = [sys.executable, "-c", "from octavo.cli.main import main; main()", *map(str, arguments)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **{**pipes, **settings})


def interrupt_when(process: subprocess.Popen, happened) -> tuple[str, str]:
    """Press Ctrl-C in a process once `happened()`; its output and errors."""
    deadline = time.monotonic() + 120
    while not happened() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    return output.decode(), errors.decode()


def fails(result: Result, code: int, message: str) -> None:
    """Nothing but one error message that holds `message`, on stderr."""
    lines = result.stderr.strip().splitlines()
    assert (result.exit_code, result.stdout) == (code, "")
    assert lines[-1].startswith("Error: ")
    assert message in lines[-1]
    assert "Traceback" not in result.stderr
