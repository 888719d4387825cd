"""A stand-in for the server behind the page: the API's shape, with answers and delays that a test sets."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from octavo.serve.http import page_route

#: How many of the prompt's tokens are the question's.
QUESTION_TOKENS = 26

#: A document, and a passage of it.
QUOTE = "The auditors objected to the goodwill of the Lyon branch."
REPORT = "A report.\n\n" + "Nothing happened in this quarter. " * 300 + "\n\n" + QUOTE + "\n" + "So it went on. " * 300


@dataclass
class Stored:
    """A document that was sent.

    Parameters
    ----------
    id : str
        Its id.
    filename : str
        Its name.
    text : str
        Its text.
    began : float
        When reading began, by the monotonic clock.
    problem : str or None
        Why it could not be read.
    folders : list of str
        The folders that it is in.
    notices : list of str
        What was left out of its text.
    used : float, optional
        When it was last asked.
    """

    id: str
    filename: str
    text: str
    began: float
    problem: str | None = None
    folders: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    used: float | None = None

    @property
    def tokens(self) -> int:
        """Return its length, at four bytes a token."""
        return max(1, len(self.text) // 4)


def cite(text: str, quote: str, share: float = 0.3, **place: Any) -> dict[str, Any]:
    """Return a source as the API tells it: offsets count code points, and the blank after a sentence belongs to it."""
    start = text.index(quote)
    after = text[start + len(quote) :]
    line = text.count("\n", 0, start) + 1
    return {
        "quote": quote,
        "share": share,
        "start": start,
        "stop": len(text) - len(after.lstrip()),
        "line": line,
        "page": None,
        "heading": None,
    } | place


@dataclass
class PageServer:
    """What the stand-in does, and what it was asked.

    Parameters
    ----------
    read_s : float
        Seconds that reading a document takes.
    task : str
        What reading is called.
    first_s, token_s : float
        Seconds before an answer's first token, and before each other.
    most_words : float
        Words of a thought and of the answer after it that come; the others wait until this is raised.
    list_s, send_s : float
        Seconds that the list of documents, and a document, are on their way.
    key : str or None
        The key that requests need.
    answer, thought : str
        The next answers, sent word by word, and the thoughts before them.
    finish : str
        Why answers end.
    told : dict
        Further fields of an answer, such as `notices`.
    sources : callable
        Returns the sources of an answer from the document's text.
    marks : list of dict
        Fields of the places of sentences that come from each source; each comes with the word at its end.
    whole : list of dict
        How many parts are asked, as it comes before the answer; `first_s` passes after each.
    basis : dict or None
        What answers are given from; by default the document, or excerpts while it is being read.
    progress : list of int
        How many tokens of a prompt are read, of 1,000, as it is told before the answer; `first_s` passes after each.
    models : dict of str to list of str
        What each model can. The first one has an answer for requests that name none.
    template : str
        The chat template of the models.
    copy_of : str or None
        The id of the document that the next upload turns out to be a copy of, once it is read.
    fail_upload, fail_read, fail_chat, fail_stream, fail_delete, fail_list : str or None
        The sentence with which the next such request fails.
    """

    read_s: float = 0.0
    task: str = "Reading"
    first_s: float = 0.0
    token_s: float = 0.0
    most_words: float = math.inf
    list_s: float = 0.0
    send_s: float = 0.0
    key: str | None = None
    answer: str = "The answer."
    thought: str = ""
    finish: str = "stop"
    told: dict[str, Any] = field(default_factory=dict)
    sources: Callable[[str], list[dict[str, Any]]] = lambda text: []
    marks: list[dict[str, int]] = field(default_factory=list)
    whole: list[dict[str, Any]] = field(default_factory=list)
    basis: dict[str, Any] | None = None
    progress: list[int] = field(default_factory=list)
    models: dict[str, list[str]] = field(default_factory=lambda: {"SmolLM2-135M-Instruct": ["completion"]})
    template: str = ""
    copy_of: str | None = None
    fail_upload: str | None = None
    fail_read: str | None = None
    fail_chat: str | None = None
    fail_stream: str | None = None
    fail_delete: str | None = None
    fail_list: str | None = None
    documents: dict[str, Stored] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    chats: list[dict[str, Any]] = field(default_factory=list)
    listed_for: list[str | None] = field(default_factory=list)
    aborted: int = 0
    n_sent: int = 0
    url: str = ""

    def reset(self) -> None:
        """Forget documents and settings."""
        fresh = PageServer(url=self.url, n_sent=self.n_sent)
        self.__dict__.update(fresh.__dict__)

    def store(self, filename: str, text: str, *folders: str) -> Stored:
        """Put a document into the library as if it had been read long ago."""
        self.n_sent += 1
        began = time.monotonic() - 1e6
        stored = Stored(f"file-{self.n_sent}", filename, text, began, folders=list(folders))
        self.documents[stored.id] = stored
        return stored

    def failure(self, name: str) -> str | None:
        """Return how the next such request fails; the one after it does not."""
        sentence = getattr(self, name)
        setattr(self, name, None)
        return sentence

    def describe(self, stored: Stored) -> dict[str, Any]:
        """Return a document as the API tells it."""
        passed = time.monotonic() - stored.began
        done = self.read_s <= passed
        status = "error" if stored.problem else "processed" if done else "processing"
        share = min(passed / self.read_s, 1) if self.read_s else 1.0
        progress = {
            "task": self.task,
            "done": int(stored.tokens * share),
            "total": stored.tokens,
            "unit": "tokens",
            "seconds_left": self.read_s - passed,
        }
        return {
            "id": stored.id,
            "object": "file",
            "filename": stored.filename,
            "bytes": len(stored.text.encode()),
            "created_at": int(stored.id.removeprefix("file-")),
            "purpose": "user_data",
            "status": status,
            "status_details": stored.problem,
            "folders": stored.folders,
            "tokens": stored.tokens if done else None,
            "index_bytes": stored.tokens * 25_000 if done else None,
            "progress": progress if status == "processing" else None,
            "notices": stored.notices if done else [],
            "last_used_at": int(stored.used or stored.id.removeprefix("file-")),
        }

    def basis_of(self, asked: list[Stored]) -> dict[str, Any]:
        """Return what an answer is given from, as the API tells it."""
        if any(self.describe(stored)["status"] == "processing" for stored in asked):
            return {"kind": "excerpts", "passages": 9, "share": 0.03}
        return self.basis or {"kind": "document", "passages": None, "share": 1.0}

    def read_from(self, asked: list[Stored]) -> Any:
        """Return the document, or the documents of excerpts, that an answer is given from."""
        named = [{"file_id": stored.id, "filename": stored.filename} for stored in asked]
        return named if self.basis_of(asked)["kind"] == "excerpts" else named[0]


def refusal(message: str, status: int = 400) -> JSONResponse:
    """Return an error as the API tells it."""
    return JSONResponse({"error": {"message": message, "type": "error", "code": None, "param": None}}, status)


def application(server: PageServer) -> Starlette:
    """Return the page and the API of a stand-in."""

    def id_in(request: Request) -> str:
        named = request.path_params["id"]
        return server.copies.get(named, named)

    def guarded(endpoint: Callable[..., Any]) -> Callable[..., Any]:
        async def checked(request: Request) -> Response:
            given = request.headers.get("authorization")
            if server.key and given != f"Bearer {server.key}":
                return refusal("The key is wrong." if given else "This server asks for a key.", 401)
            if "id" in request.path_params and id_in(request) not in server.documents:
                return refusal("There is no such file.", 404)
            result: Response = await endpoint(request)
            return result

        return checked

    async def models(request: Request) -> Response:
        meta = {"n_ctx": 8192, "n_params": 134_515_008, "attention": "auto"}
        data = [{"id": id, "object": "model", "meta": meta, "capabilities": can} for id, can in server.models.items()]
        return JSONResponse({"object": "list", "data": data})

    async def props(request: Request) -> Response:
        params = {"temperature": 0.8, "temperature_over_documents": 0.2, "n_predict": 1024}
        return JSONResponse({"default_generation_settings": {"params": params}, "chat_template": server.template})

    async def listing(request: Request) -> Response:
        server.listed_for.append(request.query_params.get("model"))
        if failure := server.failure("fail_list"):
            return refusal(failure, 500)
        data = [server.describe(one) for one in server.documents.values()]
        await asyncio.sleep(server.list_s)
        return JSONResponse({"object": "list", "data": data})

    async def upload(request: Request) -> Response:
        async with request.form() as form:
            assert form["purpose"] == "user_data"
            content = (await form["file"].read()).decode()
            filename, folder = form["file"].filename, form.get("folder")
        await asyncio.sleep(server.send_s)
        if failure := server.failure("fail_upload"):
            return refusal(failure)
        stored = server.store(filename, content, *([folder] if folder else []))
        stored.began, stored.problem = time.monotonic(), server.failure("fail_read")
        if server.copy_of:
            server.copies[stored.id], server.copy_of = server.copy_of, None
            del server.documents[stored.id]
            return JSONResponse(server.describe(stored) | {"status": "processing"})
        return JSONResponse(server.describe(stored))

    async def one(request: Request) -> Response:
        return JSONResponse(server.describe(server.documents[id_in(request)]))

    async def delete(request: Request) -> Response:
        if failure := server.failure("fail_delete"):
            return refusal(failure, 409)
        stored = server.documents.pop(request.path_params["id"])
        return JSONResponse({"id": stored.id, "object": "file", "deleted": True})

    async def content(request: Request) -> Response:
        return PlainTextResponse(server.documents[request.path_params["id"]].text)

    async def chat(request: Request) -> Response:
        asked = await request.json()
        server.chats.append(asked)
        if failure := server.failure("fail_chat"):
            return refusal(failure)
        return StreamingResponse(chunks(asked), media_type="text/event-stream")

    async def chunks(asked: dict[str, Any]) -> AsyncIterator[str]:
        began = time.monotonic()
        documents = [server.documents[id] for id in asked.get("document", [])]
        cached = documents[0].tokens if documents else 0
        dense = asked.get("attention") == "dense"
        known = asked["messages"] in [chat["messages"] for chat in server.chats[:-1]]
        n_prompt = cached + QUESTION_TOKENS
        cached = n_prompt - 1 if known else cached
        words = server.answer.split(" ")

        def event(**fields: Any) -> str:
            head = {
                "object": "chat.completion.chunk",
                **({"document": server.read_from(documents)} if documents else {}),
            }
            return "data: " + json.dumps(head | fields) + "\n\n"

        def cited(places: list[dict[str, int]]) -> list[dict[str, Any]]:
            sources = [
                {"file_id": document.id, "filename": document.filename} | source
                for document in documents
                if asked["sources"]
                for source in server.sources(document.text)
            ]
            found = [source | place for source in sources for place in places]
            return [{"type": "file_citation", "file_citation": each} for each in found]

        def delta(reason: str | None = None, **fields: Any) -> str:
            return event(choices=[{"index": 0, "delta": fields, "finish_reason": reason}])

        async def may_come(number: int) -> None:
            while number >= server.most_words:
                await asyncio.sleep(0.01)

        try:
            await asyncio.sleep(server.first_s)
            yield delta(role="assistant", content="")
            for done in server.progress:
                told = {"total": 1000, "cache": 0, "processed": done, "time_ms": 1}
                yield event(choices=[{"index": 0, "delta": {}, "finish_reason": None}], prompt_progress=told)
                await asyncio.sleep(server.first_s)
            for told in server.whole:
                yield event(choices=[{"index": 0, "delta": {}, "finish_reason": None}], whole_progress=told)
                await asyncio.sleep(server.first_s)
            thought = server.thought.split()
            for nth, word in enumerate(thought):
                await may_come(nth)
                yield delta(reasoning_content=f"{word} ")
                await asyncio.sleep(server.token_s)
            n_sent = 0
            for nth, word in enumerate(words):
                await may_come(len(thought) + nth)
                text = word + " " * (nth < len(words) - 1)
                yield delta(content=text)
                ended = [mark for mark in server.marks if n_sent < mark["end_index"] <= n_sent + len(text)]
                n_sent += len(text)
                if new := cited(ended):
                    yield event(choices=[], new_annotations=new)
                if nth == 1 and (failure := server.failure("fail_stream")):
                    yield event(error={"message": failure, "type": "server_error"})
                    return
                await asyncio.sleep(server.token_s * (2 if dense else 1))
            if documents and asked["sources"]:
                yield delta(annotations=cited(server.marks or [{}]))
            yield delta(server.finish)
            passed = time.monotonic() - began
            usage = {
                "prompt_tokens": n_prompt,
                "completion_tokens": len(words),
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            timings = {
                "prompt_n": n_prompt - cached,
                "prompt_ms": server.first_s * 1e3,
                "predicted_n": len(words),
                "predicted_ms": passed * 1e3,
                "predicted_per_second": len(words) / max(passed, 1e-3),
                "cache_n": cached,
                "attention": asked.get("attention", "auto"),
                "kv_share": 1.0 if dense else 0.124,
            }
            basis = {"basis": server.basis_of(documents)} if documents else {}
            yield event(choices=[], usage=usage, timings=timings, **basis, **server.told)
            yield "data: [DONE]\n\n"
        except asyncio.CancelledError:
            server.aborted += 1
            raise

    api = [
        ("/v1/models", models, "GET"),
        ("/props", props, "GET"),
        ("/v1/files", listing, "GET"),
        ("/v1/files", upload, "POST"),
        ("/v1/files/{id}", one, "GET"),
        ("/v1/files/{id}", delete, "DELETE"),
        ("/v1/files/{id}/content", content, "GET"),
        ("/v1/chat/completions", chat, "POST"),
    ]
    return Starlette(
        routes=[*page_route.routes, *(Route(path, guarded(run), methods=[verb]) for path, run, verb in api)]
    )


def behind(app: Any, prefix: str) -> Any:
    """Put an application behind a proxy that takes a prefix off the paths, and knows no others."""

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            if not scope["path"].startswith(f"{prefix}/"):
                await Response(status_code=404)(scope, receive, send)
                return
            path = scope["path"].removeprefix(prefix)
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await app(scope, receive, send)

    return proxy


@contextmanager
def serving(server: PageServer, prefix: str = ""):
    """Serve in a thread, on a free port of this machine, behind a prefix of a proxy."""
    app = behind(application(server), prefix)
    runner = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    while not runner.started:
        time.sleep(0.01)
    port = runner.servers[0].sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}{prefix}/"
    try:
        yield server
    finally:
        runner.should_exit = True
        thread.join()


if __name__ == "__main__":
    with serving(PageServer(read_s=10, token_s=0.05)) as running:
        print(running.url)
        threading.Event().wait()
