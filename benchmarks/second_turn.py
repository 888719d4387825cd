"""Measure what the second turn of a long conversation computes: octavo's server, and llama.cpp's.

    python benchmarks/second_turn.py [--llama-server PATH] [-m MODEL] [-t THREADS] [--tokens 8000]

The first turn is a long text and a question; the second one adds the answer and another question. A hybrid model's
recurrent state cannot be cut, so a server that kept none computes the whole prompt again. `write_random_qwen35.py`
writes such a model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from servers import MODES, Server, first_tokens, llama_server, octavo_server

from octavo.cli.render import markdown_table
from octavo.cpu_kernels.numba_support.machine import cpu_name
from octavo.runtime.models.find_model import default_model

_ANSWER = 32


def turns(server: Server, text: str) -> list[str]:
    """Have a conversation of two turns; return the second one's prompt tokens, computed tokens, and seconds of both."""
    messages, seconds = [{"role": "user", "content": f"{text}\n\nWho is Emma?"}], []
    for question in ("And who is Harriet?", ""):
        body = {"model": "any", "messages": messages, "max_tokens": _ANSWER, "temperature": 0, "cache_prompt": True}
        start = time.perf_counter()
        answer = server.send("/v1/chat/completions", body)
        seconds.append(f"{time.perf_counter() - start:.1f}")
        messages += [answer["choices"][0]["message"], {"role": "user", "content": question}]
    usage = answer["usage"]
    n_cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    n_computed = answer["timings"]["prompt_n"] if "timings" in answer else usage["prompt_tokens"] - n_cached
    return [f"{usage['prompt_tokens']:,}", f"{n_computed:,}", *seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=2)
    arguments = parser.parse_args()
    model, n_ctx, rows = arguments.model or default_model(), 2 * arguments.tokens, []
    with tempfile.TemporaryDirectory() as folder:
        told = model, Path(folder), n_ctx, arguments.threads
        text = first_tokens(model, Path(folder), arguments.tokens)
        with octavo_server(*told) as server:
            rows.append(["octavo", *turns(server, text)])
        for mode in MODES if arguments.llama_server else ():
            with llama_server(arguments.llama_server, *told, mode, "-np", 1) as server:
                rows.append([f"llama.cpp, flash attention {mode}", *turns(server, text)])
    print(f"{cpu_name()}, {arguments.threads} threads")
    print(markdown_table(["server", "second prompt", "computed", "first turn s", "second turn s"], rows))


if __name__ == "__main__":
    main()
