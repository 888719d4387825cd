"""Measure reading a long question after a document: time, bytes, and what it changes of what the model then predicts.

    python benchmarks/user_input.py -m MODEL --doc TEXT.txt [--depth 8000] [--inputs 1000,4000] [--budget 0.125]
        [--attention squeezed,squeezed:batch=mean,...] [-o md|json]

The document is the text's beginning, read once with full attention, and the input is what follows. Each attention reads
the input in batches, as `octavo ask` reads a question, and then 64 more tokens one at a time. The table shows the
seconds that the input took, the bytes that attention read meanwhile as a share of what full attention read, and the
mean KL divergence of the next 64 predictions from those of full attention.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo.cli.option_types import AttentionListType
from octavo.cli.render import markdown_table
from octavo.convert.calibrate import calibrate
from octavo.convert.clusters import settings_for
from octavo.convert.pipeline import cluster, read
from octavo.evaluation.measures import kl_divergence, log_softmax
from octavo.progress import Silent
from octavo.runtime.document.index import Index
from octavo.runtime.llama import Llama
from octavo.runtime.methods import DENSE
from octavo.runtime.methods.compose import parse

#: Tokens that are read one at a time after the input.
N_AFTER = 64

ATTENTIONS = "squeezed,squeezed:batch=union,squeezed:batch=mean"
COLUMNS = {
    "attention": "attention",
    "input": "input tokens",
    "seconds": "s",
    "bytes_read_share": "share read",
    "kl_divergence": "KL after",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, type=Path)
    parser.add_argument("--doc", required=True, type=Path, help="a text, longer than document and input together")
    parser.add_argument("--depth", type=int, default=8000, help="tokens of the document")
    parser.add_argument("--inputs", default="1000,4000", help="tokens of the input")
    parser.add_argument("--budget", type=float, default=0.125)
    parser.add_argument("--attention", default=ATTENTIONS)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    arguments = parser.parse_args()
    inputs = [int(n) for n in arguments.inputs.split(",")]
    threads = {"n_threads": arguments.threads, "n_threads_batch": arguments.threads}
    llama = Llama(arguments.model, n_ctx=arguments.depth + max(inputs) + N_AFTER, attention=DENSE, **threads)
    tokens = llama.tokenize(arguments.doc.read_bytes())
    attentions = AttentionListType().convert(arguments.attention, None, None)
    rows = measure(llama, tokens, arguments.depth, inputs, attentions, arguments.budget)
    print(
        json.dumps(rows)
        if arguments.output == "json"
        else markdown_table(COLUMNS.values(), [[str(row[key]) for key in COLUMNS] for row in rows])
    )


def measure(
    llama: Llama, tokens: Sequence[int], depth: int, inputs: Sequence[int], attentions: Sequence[str], budget: float
) -> list[dict[str, Any]]:
    """Measure attentions on inputs of some lengths.

    Parameters
    ----------
    llama : Llama
        The model, attending densely.
    tokens : sequence of int
        Document, input and what comes after it, for the longest input.
    depth : int
        Tokens of the document.
    inputs : sequence of int
        Tokens of the inputs.
    attentions : sequence of str
        In the words of `--attention`; dense attention is measured in any case.
    budget : float
        Share of the KV bytes that a step may read.

    Returns
    -------
    list of dict
        A row for each length and attention.
    """
    documents = read_document(llama, list(tokens[:depth]), attentions)
    rows: list[dict[str, Any]] = []
    for n_input in inputs:
        dense: dict[str, Any] = {}
        for attention in [DENSE, *attentions]:
            llama.reset()
            llama.set_attention(attention, budget)
            llama.attach(documents[clustering(attention)])
            found = read_input(llama, list(tokens[depth : depth + n_input + N_AFTER]), n_input)
            dense = dense or found
            rows.append(
                {
                    "attention": attention,
                    "input": n_input,
                    "seconds": round(found["seconds"], 2),
                    "bytes_read_share": round(found["bytes"] / dense["bytes"], 4),
                    "kl_divergence": round(float(kl_divergence(dense["log_probs"], found["log_probs"]).mean()), 5),
                }
            )
    return rows


def clustering(attention: str) -> tuple[tuple[str, Any], ...]:
    """Return how an attention wants the document's keys clustered, where that is not as usual."""
    return tuple(parse(attention).clustering.items())


def read_document(llama: Llama, tokens: list[int], attentions: Sequence[str]) -> dict[Any, Index]:
    """Read the document with full attention, and cluster its keys in each way that an attention wants."""
    usual, cache, progress = settings_for(llama.context.kv_type), llama.context.cache, Silent()
    queries = read(llama, tokens, progress, usual.n_queries(len(tokens)))
    documents = {}
    for wanted in dict.fromkeys([(), *map(clustering, attentions)]):
        settings = settings_for(llama.context.kv_type, dict(wanted))
        layers = list(cluster(cache, settings, progress, llama.context_params.n_threads))
        documents[wanted] = calibrate(llama, layers, queries, tokens)
    return documents


def read_input(llama: Llama, tokens: list[int], n_input: int) -> dict[str, Any]:
    """Read n_input tokens in batches, and the others one at a time."""
    llama.context.bytes_read, start = 0, time.perf_counter()
    llama.read(tokens[:n_input])
    seconds, n_bytes, log_probs = time.perf_counter() - start, llama.context.bytes_read, []
    for token in tokens[n_input:]:
        llama.eval([token])
        log_probs.append(log_softmax(llama.logits()))
    return {"seconds": seconds, "bytes": n_bytes, "log_probs": np.stack(log_probs)}


if __name__ == "__main__":
    main()
