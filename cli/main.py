"""The `octavo` command: list subcommands from a table, import the one that runs, and turn errors into sentences.

Importing this module is cheap: `octavo --help` imports click, and nothing of llama.cpp, Numba or NumPy.
"""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from importlib import import_module
from typing import IO, Any

import click

import octavo

from ..errors import OctavoError, naming
from .option_names import OPTIONS
from .short_help import WholeWords
from .words_of_others import advice, harmless

#: Each command's one-line help, by purpose. Command NAME is the object NAME of the module octavo.cli.NAME, but
#: for those in _LIBRARY: they are NAME_indexes of octavo.cli.library.
SECTIONS = {
    "Documents": {
        "ask": "Answer a question about documents.",
        "chat": "Talk about documents, or about anything.",
        "chats": "List, show or remove conversations that are kept.",
        "index": "Read documents once, so that later questions start at once.",
        "read": "Print the text of a document, as the model sees it.",
        "list": "List the documents that are indexed, and those that are being read.",
        "stop": "Stop reading documents in the background.",
        "remove": "Remove the indexes of documents; the documents stay.",
        "prune": "Remove indexes that are out of date.",
        "verify": "Compare indexes with their checksums.",
        "serve": "Serve OpenAI's API over documents, and a page for the browser.",
        "mcp": "Give documents to Claude and other programs, as tools.",
        "models": "List the models on this disk.",
    },
    "Measuring": {
        "profile": "Measure which layers of a model matter, and which heads, once.",
        "inspect": "Say what a model or an index holds.",
        "eval": "Measure what each method and budget costs in quality.",
        "bench": "Time octavo against other engines on a real text.",
        "doctor": "Check that octavo can run on this machine, and how well.",
    },
}
COMMANDS = {name: text for section in SECTIONS.values() for name, text in section.items()}
_LIBRARY = ("list", "stop", "remove", "prune", "verify")

#: Descriptors that a process wants: the most that macOS grants.
_DESCRIPTORS = 10_240


class Failure(click.ClickException):
    """An error that a sentence explains, wrapped as notices are."""

    def show(self, file: IO[Any] | None = None) -> None:
        from .render import say

        say(f"Error: {self.message}")


class LazyGroup(click.Group):
    """A group whose commands are imported when they run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in _LIBRARY:
            module, name = "library", f"{cmd_name}_indexes"
        else:
            module = name = cmd_name
        command: click.Command = getattr(import_module(f"octavo.cli.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "help":
            args = [*args[1:2], "--help"]
        if args == ["--help"]:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as problem:
            raise click.UsageError(f"{problem.message}{advice(args[0], COMMANDS)}", ctx) from problem

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(list(commands.items()))

    def invoke(self, ctx: click.Context) -> Any:
        with naming(OPTIONS):
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as problem:  # click prints arguments as they are
            from .fitting import plain

            shown: click.UsageError = problem
            if isinstance(problem, click.NoSuchOption):
                shown = click.NoSuchOption(problem.option_name, possibilities=harmless(problem.possibilities or ()))
            raise click.UsageError(plain(shown.format_message()), problem.ctx) from problem
        except OctavoError as problem:
            raise Failure(str(problem)) from problem
        except MemoryError as problem:
            raise Failure("Memory ran out: close other programs, or give a smaller model.") from problem
        except KeyboardInterrupt as interrupt:
            click.echo(str(interrupt) or "Interrupted.", err=True)
            raise click.exceptions.Exit(130) from None
        except Exception:
            if not any(timer.is_alive() for timer in _interrupts):
                raise
            for timer in _interrupts:
                timer.cancel()
            click.echo("Interrupted.", err=True)  # the callback's unfinished work has failed
            raise click.exceptions.Exit(130) from None


click.Context.formatter_class = WholeWords


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(octavo.__version__, prog_name="octavo")
@click.pass_context
def cli(context: click.Context) -> None:
    """Chat with long documents on a laptop.

    A document is read once and kept as an index; questions about it then read only the part of it that matters.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False


def main() -> None:
    """Run the `octavo` command; its entry point."""
    sys.unraisablehook = _interrupt_later
    _raise_limit_of_descriptors()
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # a debugger's output would hide llama.cpp's messages
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # for terminals that lack a character
    try:
        cli(prog_name="octavo")
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemExit as end:
        if end.code == 130:
            sys.unraisablehook = lambda problem: None  # half-built objects cannot be torn down in order
        raise


def _raise_limit_of_descriptors() -> None:
    """Let this process, and all that it starts, open all files and connections that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # the system knows another limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


#: Raises a Ctrl-C that a callback swallowed.
_interrupts: list[Any] = []


def _interrupt_later(problem: Any) -> None:
    """Keep a Ctrl-C that arrived in a callback of llama.cpp or LLVM, where ctypes swallows it: raise it a bit later."""
    if not issubclass(problem.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(problem)
        return
    import _thread
    import threading

    timer = threading.Timer(0.05, _thread.interrupt_main)
    timer.daemon = True
    timer.start()
    _interrupts.append(timer)
