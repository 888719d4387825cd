"""Measure how long kernels compile, on an empty kernel cache: `make compile-times`.

    python benchmarks/compile_times.py

Each row runs a program in a process of its own, with an empty cache of kernels and then with the full one. What the
first run takes longer, it compiles: as the user waits for it, and as the CPU works for it, which includes what compiles
in the background meanwhile.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from write_random_llama import LLAMA_3_2_1B, write_model

from octavo.cli.render import markdown_table
from octavo.cpu_kernels.numba_support.machine import cpu_name
from octavo.runtime.models.find_model import default_model

#: A short chat: a prompt, and the first token of the answer.
CHAT = """
from octavo.runtime.load_model import load_model
from octavo.settings import ModelSettings
llama = load_model(ModelSettings({model!r}, n_threads=2), print)
llama.eval(llama.tokenize(b"What is the capital of France?"))
llama.sample()
"""

#: A document, read, and the beginning of an answer over it.
DOCUMENT = """
import octavo
settings = octavo.ModelSettings({model!r}, n_threads=2, index_dir={folder!r})
with octavo.open_document({document!r}, settings, sampling=octavo.Sampling(max_tokens=8)) as document:
    document.ask("What is this about?")
from octavo.cpu_kernels.numba_support import background_compile
background_compile.wait()
"""

#: Another shape than the default model's: 8 query heads on 2 KV heads of 128.
OTHER = replace(LLAMA_3_2_1B, n_layer=2, n_embd=512, n_ff=1024, n_head=8, n_kv_head=2, head_dim=128, n_vocab=512)

#: Characters of the documents: about 6,000 tokens for the default model, and as many for one that knows bytes only.
_LENGTH, _BYTES = 24_000, 6_000


class Took(NamedTuple):
    """Seconds of a program."""

    wall: float
    cpu: float


def run(program: list[str], cache: Path) -> Took:
    """Run a program with a cache folder; return its seconds, those of its child processes included."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(program, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(time.perf_counter() - start, after.ru_utime - before.ru_utime)


def compiling(program: list[str], cache: Path, folder: Path) -> Took:
    """Return how much longer a program takes with a cache that lacks kernels than with them; fill the cache.

    A document takes longer to read than its kernels to compile, and never equally long: the least of two runs counts.
    """
    cold, warm = list[Took](), list[Took]()
    for number in ("first", "second"):
        own = folder / f"{number}-cache"
        shutil.rmtree(own, ignore_errors=True)
        if cache.exists():
            shutil.copytree(cache, own)
        for state, times in (("cold", cold), ("warm", warm)):
            indexes = folder / f"{cache.name}-{number}-{state}"
            times.append(run([each.replace("FOLDER", str(indexes)) for each in program], own))
    shutil.rmtree(cache, ignore_errors=True)
    own.rename(cache)
    least_cold, least_warm = (Took(*map(min, zip(*times, strict=True))) for times in (cold, warm))
    return Took(least_cold.wall - least_warm.wall, least_cold.cpu - least_warm.cpu)


def rows(folder: Path) -> Iterator[tuple[str, Took]]:
    """Measure; yield what was measured, and its seconds of compiling."""
    other, model, cache = folder / "other.gguf", str(default_model()), folder / "cache"
    example = (Path(__file__).parents[1] / "examples" / "encyclopedia.md").read_text("utf-8")
    write_model(other, OTHER)

    def python(script: str, model: str, n_characters: int) -> list[str]:
        text = folder / f"{n_characters}.txt"
        text.write_text((example * 9)[:n_characters], "utf-8")
        return [sys.executable, "-c", script.format(document=str(text), folder="FOLDER", model=model)]

    yield "the first token of a short chat", compiling(python(CHAT, model, 0), folder / "chat", folder)
    yield (
        "a document of 6,000 tokens, and an answer with auto",
        compiling(python(DOCUMENT, model, _LENGTH), cache, folder / "index"),
    )
    yield (
        "the same for a second model, of another shape",
        compiling(python(DOCUMENT, str(other), _BYTES), cache, folder / "other-index"),
    )
    bench = [sys.executable, "-m", "octavo", "bench", "--kernels", "-o", "json"]
    yield "octavo bench --kernels, all of it", run(bench, folder / "bench")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = [[name, f"{took.wall:.1f}", f"{took.cpu:.1f}"] for name, took in rows(Path(folder))]
    print(f"{cpu_name()}, {os.cpu_count()} cores\n")
    print(markdown_table(["what", "seconds to wait", "CPU seconds"], table))


if __name__ == "__main__":
    main()
