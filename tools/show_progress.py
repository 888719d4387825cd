"""Run a command that says a lot, and show how far it is: a bar on a terminal, else a line now and then.

    python tools/show_progress.py LOG TASK COMMAND...

TASK says what the command does. The command's output goes to the file LOG, and its end is shown if the command fails.
Parts of the work are found in that output: pip's steps, and what CMake, ninja or octavo count, as in "[12/193]" or
"[ 6%]". This runs before anything is installed, so it needs nothing but Python.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

#: What begins a part of the work, and how it is called.
PARTS = (
    (re.compile(r"Running command Building wheel for llama.cpp.python"), "Building llama.cpp"),
    (re.compile(r"Running command Building (?:wheel|editable) for (\S+)"), r"Building \1"),
    (re.compile(r"^Installing collected packages"), "Installing packages"),
    (re.compile(r"^(?:Collecting|Obtaining) "), "Collecting packages"),
)
COUNT = re.compile(r"\s*\[\s*(\d+)(?:/(\d+)|%)\]")

#: Seconds between pictures on a terminal, and between lines elsewhere.
BETWEEN_PICTURES, BETWEEN_LINES = 0.5, 10.0

#: Columns of a bar; share of the work from which on the rest can be estimated; lines of a log that are shown.
WIDTH, TELLS, SHOWN = 24, 0.05, 25


class Shown:
    """What is shown of a command."""

    def __init__(self, task: str, out: TextIO) -> None:
        self.out, self.began = out, time.monotonic()
        self.ended, self.told = threading.Event(), 0.0
        self.begin(task)

    def begin(self, part: str) -> None:
        """Begin a part of the work."""
        self.part, self.count, self.total, self.part_began = part, 0, 0, time.monotonic()

    def read(self, line: str) -> None:
        """Take a line of the command's output."""
        if found := COUNT.match(line):
            self.count, self.total = int(found[1]), int(found[2] or 100)
            return
        for pattern, part in PARTS:
            if found := pattern.search(line):
                name = found.expand(part)
                if name != self.part:
                    self.begin(name)
                return

    def picture(self) -> str:
        """Return the part of the work, how far it is, and the time."""
        seconds = time.monotonic() - self.part_began
        words = [self.part]
        if self.total:
            share = self.count / self.total
            n_full = round(share * WIDTH)
            words += ["#" * n_full + "." * (WIDTH - n_full), f"{self.count}/{self.total}"]
            if TELLS < share < 1:
                words.append(f"about {clock(seconds * (1 - share) / share)} left,")
        return " ".join([*words, clock(time.monotonic() - self.began), "so far"])

    def show(self) -> None:
        """Show the picture again and again, until the command ends."""
        drawn = self.out.isatty()
        while not self.ended.wait(BETWEEN_PICTURES):
            if drawn:
                width = shutil.get_terminal_size().columns - 1
                self.out.write(f"\r{self.picture()[:width]:{width}}")
                self.out.flush()
            elif time.monotonic() > max(self.told, self.began) + BETWEEN_LINES:
                self.told = time.monotonic()
                self.out.write(f"{self.picture()}\n")
                self.out.flush()
        if drawn:
            self.out.write(f"\r{'':{shutil.get_terminal_size().columns - 1}}\r")


def clock(seconds: float) -> str:
    """Write a duration as minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def main(log: str, task: str, *command: str) -> int:
    """Run the command; return its exit status."""
    shown = Shown(task, sys.stderr)
    drawing = threading.Thread(target=shown.show, daemon=True)
    with Path(log).open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        drawing.start()
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            file.flush()
            shown.read(line)
        status = process.wait()
    shown.ended.set()
    drawing.join()
    if status:
        last = Path(log).read_text("utf-8").splitlines()[-SHOWN:]
        print(*last, f"{task}: this failed. All of the output is in {log}.", sep="\n", file=sys.stderr)
    else:
        print(f"{task}: done in {clock(time.monotonic() - shown.began)}.", file=sys.stderr)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:  # the command has received it, too
        sys.exit(130)
