"""Measure what share of dense attention's weight lies on the rows that an attention reads, and what it estimates.

    python benchmarks/coverage.py [-m MODEL] [--attention auto] [--tokens 8000] [--texts 4] [--steps 48] [-t THREADS]
                                  [-o FILE.json] [--plot FILE.png]

The texts are of the novel that octavo ships: of passkeys, which the model recalls after them, and of prose. The model
reads the tokens that follow one by one. Each step of each KV head is a sample. A row has the mean over the samples, the
share that is covered in 1, 5 and 50 % of them at most, the least, how many cover less than .9, and how far the estimate
is off. The picture has a histogram, and the mean of each head.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from octavo.cli.render import markdown_table
from octavo.convert.plan.allocation import prose_text
from octavo.convert.plan.recall_texts import PASSKEYS, SHIPPED_NOVEL, Haystack, RecallText, recall_text
from octavo.evaluation.coverage import covered_steps
from octavo.evaluation.pictures import new_figure, save
from octavo.evaluation.reader import Reader
from octavo.progress import Silent
from octavo.runtime.llama import Llama
from octavo.runtime.methods.attention import Attention
from octavo.runtime.models.find_model import default_model

#: Edges of the histogram.
EDGES = np.array([0, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 1.0])

PERCENTILES = (1, 5, 50)


def covered(reader: Reader, attention: Attention, text: RecallText, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the true and the estimated coverage of the steps after a text, (n_steps, n_layers, n_kv_head)."""
    [document] = reader.read(text.tokens[: text.n_read], [])
    reader.attend(document, attention)
    with covered_steps(reader.llama) as steps:
        for token in text.tokens[text.n_read : text.n_read + n_steps]:
            reader.llama.eval([token])
    true, estimated = (np.array(each) for each in zip(*steps, strict=True))
    return true, estimated


def row_of(true: np.ndarray, estimated: np.ndarray) -> dict[str, Any]:
    """Return the figures of samples."""
    off = estimated - true
    return {
        "samples": true.size,
        "mean": float(true.mean()),
        **{f"{percentile} %": float(np.percentile(true, percentile)) for percentile in PERCENTILES},
        "least": float(true.min()),
        "below .9": float((true < 0.9).mean()),
        "estimate": float(estimated.mean()),
        "off by": float(np.abs(off).mean()),
        "too high by, 95 %": float(np.percentile(off, 95)),
        "histogram": np.histogram(true, EDGES)[0].tolist(),
        "estimated histogram": np.histogram(estimated, EDGES)[0].tolist(),
        "by head": true.mean(axis=0).round(4).tolist(),
        "worst by head": true.min(axis=0).round(4).tolist(),
    }


def draw(rows: dict[str, dict[str, Any]]) -> Any:
    """Draw a histogram of each text's samples, and the mean coverage of each head."""
    figure = new_figure(9.5, 3.0 * len(rows))
    for (name, row), axes in zip(rows.items(), figure.subplots(len(rows), 2, squeeze=False), strict=True):
        places, width = np.arange(len(EDGES) - 1), 0.4
        for shift, key in ((-width / 2, "histogram"), (width / 2, "estimated histogram")):
            label = "estimated" if shift > 0 else "true"
            axes[0].bar(places + shift, np.array(row[key]) / row["samples"], width, label=label)
        axes[0].set_xticks(np.arange(len(EDGES)) - 0.5, [f"{edge:g}" for edge in EDGES], fontsize="small")
        axes[0].set(xlabel="share of dense attention's weight", ylabel="share of steps and heads", title=name)
        axes[0].legend()
        image = axes[1].imshow(np.array(row["by head"]).T, aspect="auto", cmap="RdYlBu", vmin=0.8, vmax=1)
        axes[1].set(xlabel="layer", ylabel="KV head", title=f"{name}: mean of each head")
        axes[1].set_yticks(range(len(row["by head"][0])))
        figure.colorbar(image, ax=axes[1])
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--texts", type=int, default=4)
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    sizes = {"n_threads": arguments.threads, "n_threads_batch": arguments.threads}
    llama = Llama(arguments.model or default_model(), n_ctx=arguments.tokens + 512, **sizes)
    reader, novel = Reader(llama, Silent(), arguments.threads), Haystack(llama, SHIPPED_NOVEL.read_text("utf-8"))
    attention, rows = Attention.parse(arguments.attention), {}
    makers: dict[str, Callable[..., RecallText]] = {"passkeys": partial(recall_text, PASSKEYS), "prose": prose_text}
    for name, text in makers.items():
        texts = [text(novel, arguments.tokens, seed) for seed in range(arguments.texts)]
        found = [covered(reader, attention, each, arguments.steps) for each in texts]
        rows[name] = row_of(*(np.concatenate(each) for each in zip(*found, strict=True)))
    shown = [key for key, value in rows["prose"].items() if not isinstance(value, list)]
    cells = [
        [name, *(f"{row[key]:,}" if key == "samples" else f"{row[key]:.3f}" for key in shown)]
        for name, row in rows.items()
    ]
    print(markdown_table(["text", *shown], cells))
    if arguments.output:
        arguments.output.write_text(json.dumps({"command": vars(arguments), "rows": rows}, default=str), "utf-8")
    if arguments.plot:
        save(draw(rows), arguments.plot)


if __name__ == "__main__":
    main()
