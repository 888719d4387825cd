"""Time a layer of GLM-4.7-Flash's latent attention against llama.cpp's, in CPU time of one thread.

    python benchmarks/latent_attention.py [--depth 32000] [--steps 10] [--attention dense,squeezed,squeezed2,quest]

The model has random weights (write_random_latent.py) and random keys. All engines decode in turn, as in `octavo bench`;
llama.cpp runs with flash attention on and off, and the better counts. CPU time leaves out what other programs take of a
shared machine. A layer's time is that of a step at the depth, less that of a step after a few tokens.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from write_random_latent import KV_RANK, N_HEAD, N_ROTATED, write_model

from octavo.cpu_kernels.numba_support.machine import cpu_name
from octavo.evaluation import engines
from octavo.evaluation.bench import Bench, BenchSettings
from octavo.progress import Silent
from octavo.runtime.methods import DENSE, LLAMA_CPP
from octavo.runtime.methods.attention import Attention
from octavo.settings import ModelSettings

_N_LAYER, _SHALLOW = 2, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=32_000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--attention", default="dense,squeezed,squeezed2,quest")
    arguments = parser.parse_args()
    names = [LLAMA_CPP, *arguments.attention.split(",")]
    attentions = [Attention.parse(name, budget=None if name in (LLAMA_CPP, "auto") else 0.125) for name in names]
    settings = BenchSettings([_SHALLOW, arguments.depth], attentions, arguments.steps, "random")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.gguf"
        write_model(path, _N_LAYER)
        with patch.object(engines, "working_time", time.thread_time):
            rows = Bench(ModelSettings(path, n_threads=1, device="cpu"), None, settings, Silent()).run()
    ms = {(row["attention"], row["depth"]): row["decode_ms"] for row in rows}
    own = {name: (ms[name, arguments.depth] - ms[name, _SHALLOW]) / _N_LAYER for name in names}
    operations = 2 * arguments.depth * N_HEAD * (2 * KV_RANK + N_ROTATED)
    print(f"{cpu_name()}, one thread, {arguments.depth:,} tokens")
    print("| attention | ms a layer | times dense | GFLOP/s |\n| --- | ---: | ---: | ---: |")
    for name, layer_ms in own.items():
        speed = f"{operations / layer_ms / 1e6:.0f}" if name in (LLAMA_CPP, DENSE) else "-"
        print(f"| {name} | {layer_ms:.1f} | {own[DENSE] / layer_ms:.2f} | {speed} |")


if __name__ == "__main__":
    main()
