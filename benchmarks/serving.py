"""Measure answers to many conversations at once over one document: octavo's server, and llama.cpp's.

    python benchmarks/serving.py [--llama-server PATH] [--at-once 1,4,16] [-m MODEL] [-t THREADS]

Each conversation asks another question, and all are sent at the same time. octavo has read the document before, and
requests name it. llama.cpp's server has the document in each of its slots before anything is timed, from a file of its
own, and requests send the whole text. Servers take turns; each figure is the median of the rounds.

A second table tells how long a stream stands still while another client's prompt of some thousand tokens is read, which
no server has seen before.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from servers import MODES, Server, first_tokens, llama_server, octavo_server

from octavo.cli.render import markdown_table
from octavo.convert.plan.recall_texts import SHIPPED_NOVEL
from octavo.cpu_kernels.numba_support.machine import cpu_name
from octavo.documents.text.plain_text import read_utf8
from octavo.runtime.models.find_model import default_model

#: Subjects of the questions.
_SUBJECTS = (
    "Emma", "Mr. Woodhouse", "Miss Taylor", "Mr. Weston", "Mr. Knightley", "Isabella", "Harriet", "Frank Churchill",
    "Hartfield", "Randalls", "Highbury", "the wedding", "the carriage", "the weather", "London", "the ball",
)  # fmt: skip

#: Tokens of the context, for each conversation.
_N_CTX = 8192


@dataclass(frozen=True)
class DocumentServer(Server):
    """A running server that has read the document.

    Parameters
    ----------
    body : callable
        Returns the body of a request with a question about it.
    """

    body: Callable[[str], dict[str, Any]]


@dataclass(frozen=True)
class Answer:
    """When an answer's tokens came: seconds after the request was sent, and the longest time between two of them."""

    first_s: float
    last_s: float
    n_tokens: int
    longest_gap_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--at-once", default="1,4,16")
    parser.add_argument("--tokens", type=int, default=7500)
    parser.add_argument("--answer", type=int, default=48)
    parser.add_argument("--prompt", type=int, default=6000, help="tokens of the prompt that streams wait for")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=2)
    arguments = parser.parse_args()
    model = arguments.model or default_model()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for n_at_once in map(int, arguments.at_once.split(",")):
            with ExitStack() as stack:
                servers = dict(_servers(stack, model, Path(folder), n_at_once, arguments))
                rounds: dict[str, list[list[Answer]]] = {name: [] for name in servers}
                for server in servers.values():
                    ask_all(server, n_at_once, 4, -1)
                for number in range(arguments.rounds):
                    for name, server in servers.items():
                        rounds[name].append(ask_all(server, n_at_once, arguments.answer, number))
                made = [row(name, servers[name], rounds[name]) for name in servers]
            rows += made
            print(*made, sep="\n", file=sys.stderr, flush=True)
    print(f"{cpu_name()}, {arguments.threads} threads")
    names = ["conversations", "server", "tokens/s, all", "tokens/s, each", "first token s", "last first token s"]
    print(markdown_table([*names, "peak MB"], rows))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        gaps = [gap_row(*each, arguments) for each in _servers(stack, model, Path(folder), 2, arguments)]
    names = ["server", "longest gap s, alone", "longest gap s", "prompt's first token s", "prompt's alone s"]
    print(markdown_table(names, gaps))


def _servers(
    stack: ExitStack, model: Path, folder: Path, n_at_once: int, arguments: argparse.Namespace
) -> Iterator[tuple[str, DocumentServer]]:
    """Start the servers."""
    yield "octavo", stack.enter_context(octavo_with_document(model, folder, n_at_once, arguments))
    for mode in MODES if arguments.llama_server else ():
        server = stack.enter_context(llama_with_document(model, folder, n_at_once, mode, arguments))
        yield f"llama.cpp, flash attention {mode}", server


@contextmanager
def octavo_with_document(
    model: Path, folder: Path, n_at_once: int, arguments: argparse.Namespace
) -> Iterator[DocumentServer]:
    """Start octavo's server, which reads the document if it has not read it before."""
    text = first_tokens(model, folder, arguments.tokens)
    with octavo_server(model, folder, _N_CTX, arguments.threads, "--parallel", n_at_once) as server:
        form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="novel.txt"\r\n\r\n'
        body = form + text.encode() + b"\r\n--b--\r\n"
        file = server.call("POST", "/v1/files", body, "multipart/form-data; boundary=b")
        while file["status"] == "processing":
            time.sleep(1)
            file = server.call("GET", f"/v1/files/{file['id']}")
        assert file["status"] == "processed", file
        asks = {"document": file["id"]}
        yield DocumentServer(**vars(server), body=lambda question: {**asks, "messages": _said(question)})


@contextmanager
def llama_with_document(
    model: Path, folder: Path, n_at_once: int, mode: str, arguments: argparse.Namespace
) -> Iterator[DocumentServer]:
    """Start llama.cpp's server, with the document in each slot."""
    text, n_ctx = first_tokens(model, folder, arguments.tokens), _N_CTX * n_at_once
    further = ["-np", n_at_once, "--cache-reuse", 256, "--slot-save-path", folder]
    program, threads = arguments.llama_server, arguments.threads
    with llama_server(program, model, folder, n_ctx, threads, mode, *further) as started:
        server = DocumentServer(
            **vars(started), body=lambda question: {"cache_prompt": True, "messages": _said(text, question)}
        )
        saved = f"slot-{mode}"
        if not (folder / saved).exists():
            server.send("/v1/chat/completions", {**server.body("Why?"), "id_slot": 0, "max_tokens": 1})
            server.send("/slots/0?action=save", {"filename": saved})
        for slot in range(n_at_once):
            server.send(f"/slots/{slot}?action=restore", {"filename": saved})
        yield server


def _said(*parts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "\n\n".join(parts)}]


def ask_all(server: DocumentServer, n_at_once: int, n_answer: int, number: int) -> list[Answer]:
    """Ask this round's questions, all at once."""
    questions = [f"What does the text say of {_SUBJECTS[i % 16]} in chapter {number + 2}?" for i in range(n_at_once)]
    with ThreadPoolExecutor(n_at_once) as pool:
        return list(pool.map(lambda question: ask(server, question, n_answer), questions))


def gap_row(name: str, server: DocumentServer, arguments: argparse.Namespace) -> list[str]:
    """Return a line of the second table."""
    novel, n_characters = read_utf8(SHIPPED_NOVEL), 4 * arguments.prompt
    alone, gaps, together, only = [], [], [], []
    for number in range(arguments.rounds):
        prompts = [novel[(2 * number + i + 1) * n_characters :][:n_characters] for i in range(2)]
        only.append(ask(server, "", 1, _said(prompts[0], "Who?")).first_s)
        alone.append(ask(server, f"Who is {_SUBJECTS[number]}?", 48).longest_gap_s)
        with ThreadPoolExecutor(2) as pool:
            stream = pool.submit(ask, server, f"What does {_SUBJECTS[number]} say?", 600)
            time.sleep(1)
            together.append(ask(server, "", 1, _said(prompts[1], "Who?")).first_s)
            gaps.append(stream.result().longest_gap_s)
    return [name, *(f"{statistics.median(values):.2f}" for values in (alone, gaps, together, only))]


def ask(server: DocumentServer, question: str, n_answer: int, messages: list[dict[str, str]] | None = None) -> Answer:
    """Ask a question, or send messages; the answer has at least n_answer tokens."""
    asked = {"messages": messages} if messages else server.body(question)
    body = {**asked, "model": "any", "max_tokens": n_answer, "temperature": 0, "stream": True}
    body |= {"logit_bias": {"0": -100, "2": -100}, "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    times, n_tokens, start = [], 0, time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    for line in connection.getresponse():
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line.removeprefix(b"data: "))
        if chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
            times.append(time.perf_counter() - start)
        if chunk.get("usage"):
            n_tokens = chunk["usage"]["completion_tokens"]
    connection.close()
    gaps = [after - before for before, after in pairwise(times)]
    return Answer(times[0], times[-1], n_tokens, max(gaps, default=0.0))


def row(name: str, server: Server, rounds: Sequence[Sequence[Answer]]) -> list[str]:
    """Return one line of the table."""
    each = [answer for answers in rounds for answer in answers]
    together = [sum(a.n_tokens for a in answers) / max(a.last_s for a in answers) for answers in rounds]
    alone = [(answer.n_tokens - 1) / (answer.last_s - answer.first_s) for answer in each]
    last = [max(answer.first_s for answer in answers) for answers in rounds]
    figures = [statistics.median(values) for values in (together, alone, [a.first_s for a in each], last)]
    shown = [f"{figures[0]:.1f}", f"{figures[1]:.1f}", f"{figures[2]:.2f}", f"{figures[3]:.2f}"]
    return [str(len(rounds[0])), name, *shown, f"{server.peak_mb:,.0f}"]


if __name__ == "__main__":
    main()
