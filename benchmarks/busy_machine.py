"""Time answers beside busy processes: with octavo's own choice of threads, and with given numbers, in turns.

    python benchmarks/busy_machine.py DOCUMENT [--busy 0,1,2] [--threads 1,2] [-n 5] [-m MODEL]

Each busy process computes without end. Each answer is a process of its own; the first one indexes the document.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from statistics import median

from octavo.cli.render import markdown_table

QUESTION = "What is the name of the latest epoch?"

COLUMNS = ("busy processes", "threads", "s in all", "s to the first token", "tokens/s")


def answered(document: str, options: list[str]) -> tuple[float, float, float]:
    """Ask; return the seconds in all, those to the first token, and the tokens per second."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "octavo", "ask", document, QUESTION, "--temp", "0", "--read", "document"]
    run = subprocess.run([*command, "-o", "json", *options], check=True, stdout=subprocess.PIPE)
    timing = json.loads(run.stdout)["timing"]
    return time.perf_counter() - start, timing["first_token_s"], timing["decode_tokens_per_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document")
    parser.add_argument("--busy", default="0,1,2")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("-n", "--repeats", type=int, default=5)
    parser.add_argument("-m", "--model")
    arguments = parser.parse_args()
    model = ["-m", arguments.model] if arguments.model else []
    ways = {"default": model} | {each: [*model, "-t", each] for each in arguments.threads.split(",")}
    answered(arguments.document, model)
    rows = []
    for n_busy in map(int, arguments.busy.split(",")):
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_busy)]
        try:
            turns = [[answered(arguments.document, way) for way in ways.values()] for _ in range(arguments.repeats)]
        finally:
            for process in busy:
                process.kill()
        for name, figures in zip(ways, zip(*turns, strict=True), strict=True):
            medians = (median(each) for each in zip(*figures, strict=True))
            rows.append([str(n_busy), name, *(f"{each:.2f}" for each in medians)])
    print(markdown_table(COLUMNS, rows))


if __name__ == "__main__":
    main()
