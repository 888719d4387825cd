"""Kill octavo at random moments of long work, and check that nothing is lost, and that all of it resumes.

    python benchmarks/kill_and_resume.py [--rounds 40] [--seed 0] [index] [profile] [background] [chat] [serve]

Each kind of work, by default all kinds, is killed (SIGKILL) that many times, at a moment that is drawn evenly from the
seconds that undisturbed work takes. The same command then continues; work that has ended begins anew. The model is tiny
and random. What must hold:

- index, background: no piece of a text is read twice, and the index is an undisturbed build's, byte by byte.
- profile: no measurement is made twice, and the plan is an undisturbed profile's.
- chat: each answer is kept once the next question is asked.
- serve: each upload that was accepted is listed with its bytes, and a question is answered as before.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from servers import Server
from write_random_llama import Sizes, write_model

from octavo.ask.chats.saved_chats import saved_chats
from octavo.cli.render import markdown_table
from octavo.convert.plan.recall_texts import SHIPPED_NOVEL
from octavo.library.background.reading_queue import ReadingQueue
from octavo.runtime.store.model_library import Library
from octavo.system.files import PARTIAL

#: A model that reads a novel of so many characters, each a token, in some seconds.
_SIZES = Sizes(4, 256, 512, 4, 2, 64, 512, 65_536, 10_000.0)
_CHARACTERS = 8_000

#: Lines of a chat, and seconds after which a command that should have ended has failed.
_QUESTIONS = [f"Who is number {number}?" for number in range(20)]
_PATIENCE = 600


def demand(holds: bool, sentence: str) -> None:
    """Stop with a sentence unless something holds."""
    if not holds:
        raise SystemExit(sentence)


class Index:
    """`octavo index`, and what all kinds of work share.

    Parameters
    ----------
    folder : Path
        Receives the model, the documents, and two libraries: of undisturbed work, "alone", and of killed work.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.model, self.novel = folder, folder / "random.gguf", folder / "novel.txt"
        self.n_done = self.n_whole = 0
        self.killed, self.alone = (Library.of(self.model, folder / place) for place in ("killed", "alone"))

    def command(self, library: Library) -> list[str]:
        """Return the arguments of the command."""
        return ["index", str(self.novel), *self.settings(library)]

    def settings(self, library: Library) -> list[str]:
        """Return the options of all commands."""
        return ["-m", str(self.model), "--index-dir", str(library.folder.parent), "-t", "1"]

    def run(self, library: Library, seconds: float | None = None, typed: str = "") -> str:
        """Run the command to its end, or kill it after some seconds. Return its output."""
        errors = self.folder / "errors.txt"
        with open(self.folder / "output.txt", "w+") as output, errors.open("w") as told:
            command = [sys.executable, "-m", "octavo", *self.command(library)]
            process = subprocess.Popen(
                command, text=True, stdin=subprocess.PIPE, stdout=output, stderr=told, process_group=0
            )
            try:
                process.communicate(typed, _PATIENCE if seconds is None else seconds)
                demand(process.returncode == 0, f"{command} ends with {process.returncode}: {errors.read_text()}")
            except subprocess.TimeoutExpired:
                demand(seconds is not None, f"{command} does not end: {errors.read_text()}")
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            return output.read()

    def rounds(self, n_rounds: int, draw: random.Random) -> float:
        """Kill the work so many times, and check it each time. Return the seconds of undisturbed work."""
        began = time.monotonic()
        self.run(self.alone)
        seconds = time.monotonic() - began
        for _ in range(n_rounds):
            self.run(self.killed, draw.uniform(0, seconds))
            self.check()
        self.run(self.killed)
        self.check()
        return seconds

    def check(self) -> None:
        """Check what a command left; begin anew if it had ended."""
        n_done, found = self.pieces(), [path for path, _ in self.killed.indexes()]
        if not found:
            demand(n_done >= self.n_done, f"{self.n_done} pieces were read, and {n_done} are left")
            self.n_done = n_done
            return
        arrays, expected = self.arrays(self.killed), self.arrays(self.alone)
        demand(arrays == expected, f"the index differs in {sorted(arrays.keys() ^ expected.keys()) or 'bytes'}")
        shutil.rmtree(found[0])
        self.n_done, self.n_whole = 0, self.n_whole + 1

    def pieces(self) -> int:
        """Return how many pieces of the text are read, or more once all are."""
        folders = list(self.killed.folder.glob(f"*{PARTIAL}"))
        is_read = any(list(folder.glob("layer-*")) for folder in folders)
        return 1 << 20 if is_read else sum(len(list(folder.glob("prefill-*"))) for folder in folders)

    def arrays(self, library: Library) -> dict[str, bytes]:
        """Return the files of the only index that have arrays."""
        [[folder, _]] = library.indexes()
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*.safetensors"))}


class Profile(Index):
    """`octavo profile`."""

    def command(self, library: Library) -> list[str]:
        return ["profile", *self.settings(library), "--heads", "--texts", "1", "--tokens", "2048", "--rounds", "4"]

    def check(self) -> None:
        path = self.killed.plan_path
        if path.exists():
            plan, expected = (json.loads(library.plan_path.read_text()) for library in (self.killed, self.alone))
            demand(_timeless(plan) == _timeless(expected), "the plan is not an undisturbed profile's")
            path.unlink()
            self.n_whole += 1


def _timeless(plan: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plan.items() if name not in ("created", "seconds")}


class Background(Index):
    """The reader in the background, which `octavo ask` starts."""

    def command(self, library: Library) -> list[str]:
        if library is self.alone:
            return super().command(library)
        return ["ask", str(self.novel), "Who?", *self.settings(library), "-n", "1", "--first-answer", "0s"]

    def rounds(self, n_rounds: int, draw: random.Random) -> float:
        began = time.monotonic()
        self.run(self.alone)
        seconds = time.monotonic() - began
        for _ in range(n_rounds):
            self.run(self.killed)
            time.sleep(draw.uniform(0, seconds))
            is_read = bool(list(self.killed.indexes()))
            for process in self.readers():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            queued = [document.path for document in ReadingQueue().documents() if not document.problem]
            is_read = is_read or bool(list(self.killed.indexes()))
            demand(is_read or queued == [str(self.novel)], f"the queue has {queued}")
            self.check()
        self.run(self.killed)
        until = time.monotonic() + _PATIENCE
        while ReadingQueue().documents() and time.monotonic() < until:
            time.sleep(0.2)
        self.check()
        return seconds

    def readers(self) -> list[psutil.Process]:
        """Return the processes that read in the background."""
        return [
            process
            for process in psutil.process_iter(["cmdline", "environ"])
            if any(".background_reader" in word for word in process.info["cmdline"] or ())
            and (process.info["environ"] or {}).get("XDG_STATE_HOME") == os.environ["XDG_STATE_HOME"]
            for process in (process, *process.children(recursive=True))
        ]


class Chat(Index):
    """`octavo chat --continue`, with its questions through a pipe."""

    def command(self, library: Library) -> list[str]:
        kind = ["chat", "--continue"] if self.n_done else ["ask"]
        words = [] if self.n_done else ["Who?"]
        limits = ["-n", "6", "--temp", "0", "-o", "jsonl"]
        return [kind[0], str(self.novel), *words, *kind[1:], *self.settings(library), *limits]

    def rounds(self, n_rounds: int, draw: random.Random) -> float:
        typed = "".join(f"{question}\n" for question in _QUESTIONS)
        self.run(self.killed)
        self.n_done, began = 1, time.monotonic()
        self.run(self.killed, typed=typed)
        seconds, n_before = time.monotonic() - began, self.n_kept()
        for _ in range(n_rounds):
            printed = self.run(self.killed, draw.uniform(0, seconds), typed)
            n_answers = sum('"answer"' in line for line in printed.splitlines())
            n_kept = self.n_kept()
            demand(n_kept >= n_before + n_answers - 1, f"{n_before} + {n_answers} answers, and {n_kept} are kept")
            n_before, self.n_whole = n_kept, self.n_whole + (n_answers == len(_QUESTIONS))
        return seconds

    def n_kept(self) -> int:
        """Return the number of answers in the last conversation."""
        chats = saved_chats([self.killed.folder])
        demand(not any(chat.problem for chat in chats), f"a conversation is damaged: {chats[0].problem}")
        return max(sum(said["role"] == "assistant" for said in chat.messages) for chat in chats)


class Serve(Index):
    """`octavo serve`, with uploads and a question."""

    def command(self, library: Library) -> list[str]:
        return ["serve", *self.settings(library), "-c", "8192", "--port", "0"]

    def rounds(self, n_rounds: int, draw: random.Random) -> float:
        sent, said, seconds = dict[str, bytes](), set[str](), 4.0
        for number in range(n_rounds + 1):
            log = self.folder / "server.txt"
            with log.open("w") as told:
                command = [sys.executable, "-m", "octavo", *self.command(self.killed)]
                process = subprocess.Popen(command, stdout=told, stderr=told, process_group=0)
            until = time.monotonic() + _PATIENCE
            while not (found := re.search(r"Serving .* at http://[\w.]+:(\d+)", log.read_text())):
                demand(process.poll() is None and time.monotonic() < until, f"the server ends: {log.read_text()}")
                time.sleep(0.1)
            server = Server(int(found[1]), process)
            listed = {file["id"]: file for file in server.call("GET", "/v1/files")["data"]}
            for name, content in sent.items():
                demand(name in listed, f"the upload {name} is lost")
                demand(self.content(server, name) == content, f"the upload {name} has other bytes")
            if number % 10 == 9 and sent:
                said.add(self.answer(server, next(iter(sent))))
                demand(len(said) == 1, f"one question has several answers: {said}")
            stop = time.monotonic() + draw.uniform(0, seconds)
            killer = subprocess.Popen(
                [sys.executable, "-c", f"import os, time; time.sleep({max(stop - time.monotonic(), 0)});"
                 f"os.killpg({process.pid}, 9)"]
            )  # fmt: skip
            with suppress(OSError, http.client.HTTPException, json.JSONDecodeError):
                while True:
                    content = draw.randbytes(300).hex().encode() * 4
                    sent[self.upload(server, content)] = content
            killer.wait()
            process.wait()
            while len(sent) > 12:  # so that rounds stay short
                sent.pop(next(reversed(sent)))
        self.n_whole = len(said)
        return seconds

    def upload(self, server: Server, content: bytes) -> str:
        """Upload a document. Return its id, once the server has accepted it."""
        head = '--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        body = head.encode() + content + b"\r\n--x--\r\n"
        return str(server.call("POST", "/v1/files", body, "multipart/form-data; boundary=x")["id"])

    def content(self, server: Server, name: str) -> bytes:
        """Return the bytes of an upload."""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_PATIENCE)
        connection.request("GET", f"/v1/files/{name}/content")
        return connection.getresponse().read()

    def answer(self, server: Server, name: str) -> str:
        """Return the answer to a question about an upload."""
        body = {"messages": [{"role": "user", "content": "Who?"}], "documents": [name], "max_tokens": 8}
        return str(server.send("/v1/chat/completions", {**body, "temperature": 0})["choices"][0]["message"]["content"])


KINDS: dict[str, type[Index]] = {
    "index": Index,
    "profile": Profile,
    "background": Background,
    "chat": Chat,
    "serve": Serve,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = []
    for kind in arguments.kinds or KINDS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a killed reader's child may write
            os.environ["XDG_STATE_HOME"] = folder
            work = KINDS[kind](Path(folder))
            write_model(work.model, _SIZES)
            work.novel.write_text(SHIPPED_NOVEL.read_text("utf-8")[:_CHARACTERS], "utf-8")
            seconds = work.rounds(arguments.rounds, random.Random(arguments.seed))
            rows.append([kind, str(arguments.rounds), f"{seconds:.1f}", str(work.n_whole)])
            print(*rows[-1], file=sys.stderr, flush=True)
    print(markdown_table(["work", "kills", "seconds alone", "came to its end"], rows))


if __name__ == "__main__":
    main()
