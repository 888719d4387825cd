"""Run the commands of README.md as a newcomer does: top to bottom, from a clean clone, beside earlier documents.

    python tests/readme/run_readme.py FOLDER

FOLDER, which must not exist yet, gets the clone, the environments and a home of their own. What a command prints must
be what README shows; a line of "..." stands for any lines. pip may use its cache, so that it does not build llama.cpp
anew.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

#: The commands that end when they are interrupted, and what they print when they are ready.
LASTING = {"octavo serve": "http://127.0.0.1", "--watch": "Watching"}

#: What a user types into a conversation.
TYPED = "What is the name of the latest epoch?\n/quit\n"

#: A word of the answer to each question of README, which every door is to give.
ANSWERS = {
    "latest epoch": "Holocene",
    "sang the national anthem": "Gaga",
    "governess of Emma": "Taylor",
}

#: What octavo says of an answer that it stopped.
STOPPED = "the model repeated itself"

#: Documents that the library has before README's own.
EARLIER = {
    "harbour.md": "# Harbour\n\n" + "The harbour master notes each ship in a ledger. " * 60,
    "bread.md": "# Bread\n\n" + "The baker lets the dough rest for a night. " * 60,
}

#: README's other way to install, in an environment of one's own.
OWN = 'pip install -e ".[demo]"'

#: Longest time of a command, in seconds: the first one builds llama.cpp.
MOST_SECONDS = 3000


class Command(NamedTuple):
    """A command of README, and the lines that README shows below it; none are shown of most."""

    line: str
    shown: Sequence[str] = ()


class Outcome(NamedTuple):
    """What became of a command: its exit code, and what it printed on stdout and on stderr."""

    code: int
    out: str
    err: str


def commands(page: str) -> Iterator[Command]:
    """Yield the commands of a page in order: lines of blocks, scripts of `sh` and `python`, and lines after "$ "."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        if language == "sh":
            yield Command(block)
        elif language == "python":
            yield Command(f"python - <<'END'\n{block}END")
        elif block.startswith("$ "):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                line, *shown = part.rstrip("\n").split("\n")
                yield Command(line, shown)
        else:
            yield from (Command(line.split("  #")[0].rstrip()) for line in block.splitlines() if line.strip())


def fits(shown: Sequence[str], printed: str) -> bool:
    """Return whether a command printed what README shows; `...` is anything, or nothing."""
    lines = (r"(\n.*)?" if line == "..." else r"\n" + re.escape(line.rstrip()) for line in shown)
    wanted = "".join(lines) + r"\n*"
    stripped = "".join(f"\n{line.rstrip()}" for line in printed.splitlines())
    return not shown or re.fullmatch(wanted, stripped, re.DOTALL) is not None


def misses_answer(line: str, outcome: Outcome) -> bool:
    """Return whether a command asks a question of README, and its answer is another one or was stopped."""
    asked = f"{line}\n{TYPED}" if line.startswith("octavo chat") else line
    wanted = [answer for question, answer in ANSWERS.items() if question in asked]
    return any(answer not in outcome.out for answer in wanted) or STOPPED in outcome.out + outcome.err


class Shell:
    """A user's shell: what a command does to the environment holds for the next one.

    Parameters
    ----------
    folder : Path
        Gets the files of the user.
    place : Path
        Where commands run.
    """

    def __init__(self, folder: Path, place: Path) -> None:
        self._folder, self._place = folder, place
        self.environment = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
        self.environment["HOME"] = str(folder / "home")
        (folder / "home").mkdir()
        self._lasting: list[subprocess.Popen[str]] = []

    def run(self, line: str) -> Outcome:
        """Run a command to its end, or until it is ready if it lasts."""
        for name, ready in LASTING.items():
            if name in line:
                return self._start(line, ready)
        if line.startswith("octavo chat"):
            line = f"script -qec '{line}' /dev/null"  # a terminal
        kept = self._folder / "environment"
        script = f"{line}\ncode=$?\nenv -0 > '{kept}'\nexit $code"
        given = TYPED if line.startswith("script ") else ""
        ended = subprocess.run(["bash", "-c", script], input=given, timeout=MOST_SECONDS, **self._settings())
        pairs = (pair.partition("=") for pair in kept.read_text().split("\0") if pair)
        self.environment = {name: value for name, _, value in pairs if name not in ("_", "SHLVL", "PWD")}
        return Outcome(ended.returncode, ended.stdout, ended.stderr)

    def _start(self, line: str, ready: str) -> Outcome:
        """Start a command that lasts; end it at once if it only watches."""
        log = self._folder / "lasting.log"
        with log.open("w") as file:
            settings = {**self._settings(), "stdout": file, "stderr": file}
            process = subprocess.Popen(["bash", "-c", f"exec {line}"], stdin=subprocess.DEVNULL, **settings)
        end = time.monotonic() + MOST_SECONDS
        while ready not in log.read_text() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
        self._lasting.append(process)
        code = process.poll() or int(ready not in log.read_text())
        if "serve" not in line:
            code = code or self.close()
        return Outcome(code, log.read_text(), "")

    def close(self) -> int:
        """Interrupt what lasts, as Ctrl-C does; return the exit code of the last one that failed, else 0."""
        codes = []
        while self._lasting:
            process = self._lasting.pop()
            process.send_signal(signal.SIGINT)
            codes.append(process.wait(60))
        return next((code for code in codes if code not in (0, 130)), 0)

    def _settings(self) -> dict[str, object]:
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return {"cwd": self._place, "env": self.environment, "text": True, **piped}


def run_page(page: str, shell: Shell, prepare: Sequence[Command] = ()) -> list[str]:
    """Run the commands of a page; return a line for each that failed.

    Parameters
    ----------
    prepare : sequence of Command
        Commands that run before the first one of octavo's own.
    """
    problems = []
    todo = list(commands(page))
    first = next((i for i, command in enumerate(todo) if command.line.startswith("octavo")), len(todo))
    for command in [*todo[:first], *prepare, *todo[first:]]:
        begin = time.monotonic()
        title = command.line.splitlines()[0]
        outcome = shell.run(command.line)
        problem = f"exit code {outcome.code}" if outcome.code else ""
        if not problem and not fits(command.shown, outcome.out):
            problem = "prints something else than README shows"
        if not problem and misses_answer(command.line, outcome):
            problem = "does not give the answer"
        print(f"{time.monotonic() - begin:7.1f} s  {title}{f': {problem}' if problem else ''}", flush=True)
        if problem:
            problems.append(f"{title}: {problem}")
            print(outcome.out[-3000:], outcome.err[-3000:], sep="\n", flush=True)
    if code := shell.close():
        problems.append(f"what lasted ended with code {code}")
    return problems


def main() -> None:
    """Run README.md of the last commit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs this in the background ignores Ctrl-C
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, folder / "octavo"], check=True)
    earlier = folder / "earlier"
    earlier.mkdir()
    for name, text in EARLIER.items():
        (earlier / name).write_text(text)
    shell = Shell(folder, folder / "octavo")
    pip_cache = subprocess.run(["pip", "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    shell.environment["PIP_CACHE_DIR"] = pip_cache
    page = (folder / "octavo" / "README.md").read_text("utf-8")
    other = f"python3 -m venv {folder}/own && {folder}/own/bin/{OWN} && {folder}/own/bin/octavo --version"
    problems = run_page(page, shell, [Command(f"octavo index {earlier}"), Command(other)])
    print(*problems or ["README runs as it stands."], sep="\n")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
