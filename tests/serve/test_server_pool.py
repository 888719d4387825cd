"""Several models of one server: loaded when they are asked for, and put away when memory asks for it."""

import asyncio
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import uvicorn
from helpers import talking_model, tiny_models
from helpers.served import SAMPLING, Served
from helpers.waiting import wait_until

from octavo.library.reading_job import ReadingJob
from octavo.runtime.methods.attention import Attention
from octavo.runtime.store.model_library import Library
from octavo.serve import server_pool
from octavo.serve.app import Limits, application
from octavo.serve.http.access import Access
from octavo.serve.http.timed_protocol import TimedProtocol
from octavo.serve.run import _open
from octavo.serve.server_pool import LoadableModel, ServerPool, names_of
from octavo.settings import ModelSettings
from octavo.system.free_memory import FreeMemory

CHAT, HELLO = "/v1/chat/completions", [{"role": "user", "content": "Hello."}]


@pytest.fixture
def pool(tmp_path):
    """Three models, of which the first is loaded."""
    choices = {}
    for name in ("tiny", "talking", "Third"):
        path = tmp_path / f"{name}.gguf"
        if name == "tiny":
            tiny_models.write_model(path, "llama", chat_template=tiny_models.CHAT_TEMPLATE)
        else:
            talking_model.write_model(path)
        settings = ModelSettings(path, 1024, n_threads=2, device="cpu", index_dir=tmp_path)
        job, limits = ReadingJob(settings, Attention.parse("auto")), Limits(4, 64, 120.0, 64 << 20)
        library = Library.of(path, tmp_path)
        choices[name] = LoadableModel(library, partial(_open, job, library, name, limits, SAMPLING, print))
    made = ServerPool(choices)
    made.load_first()
    return made


@pytest.fixture
def served(pool):
    import socket

    listening = socket.create_server(("127.0.0.1", 0))
    app = application(pool, Access("127.0.0.1", 0, None, (), (), 8 << 20))
    runner = uvicorn.Server(uvicorn.Config(app, http=TimedProtocol, log_level="warning", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=runner.run, args=([listening],))
    thread.start()
    wait_until(lambda: runner.started)
    made = Served(pool.loaded[0], f"http://127.0.0.1:{listening.getsockname()[1]}")
    yield made
    made.client.close()
    runner.should_exit = True
    thread.join()
    listening.close()
    assert pool.loaded == []


def names(pool):
    return sorted(server.engine.name for server in pool.loaded)


def test_models_that_are_not_loaded_are_described_by_their_files(served, pool):
    listed = {model["id"]: model for model in served.client.get("/api/v0/models").json()["data"]}
    assert {name: model["state"] for name, model in listed.items()} == {
        "tiny": "loaded",
        "talking": "not-loaded",
        "Third": "not-loaded",
    }
    assert (listed["talking"]["max_context_length"], listed["talking"]["arch"]) == (4096, "llama")
    assert "loaded_context_length" not in listed["talking"]
    assert names(pool) == ["tiny"]


def said(served, model):
    answer = served.post(CHAT, messages=HELLO, max_tokens=12, **({"model": model} if model else {}))
    return answer["model"], answer["choices"][0]["message"]["content"]


def test_a_request_is_answered_by_the_model_that_it_names(served, pool):
    assert names(pool) == ["tiny"]
    assert said(served, None)[0] == said(served, "gpt-4")[0] == said(served, "tiny:latest")[0] == "tiny"
    assert said(served, "talking") == ("talking", talking_model.ANSWER)
    assert said(served, "third")[0] == "Third"
    assert names(pool) == ["Third", "talking", "tiny"]
    told = {model["id"]: model["state"] for model in served.client.get("/v1/models").json()["data"]}
    assert told == {"tiny": "loaded", "talking": "loaded", "Third": "loaded"}
    assert served.post("/v1/messages", model="Talking", messages=HELLO, max_tokens=20)["model"] == "talking"
    assert served.post("/v1/responses", model="talking", input="Hello.")["model"] == "talking"
    assert served.client.post(CHAT, content=b'{"model": [').status_code == 400


def test_what_is_unused_leaves_memory_and_comes_back_with_its_documents(served, pool, monkeypatch):
    monkeypatch.setattr(server_pool, "free_memory", lambda: FreeMemory(0, "none"))
    text = "\n".join(f"In year {year} the keeper saw {year * 3} ships." for year in range(12))
    file = served.client.post("/v1/files?model=tiny", files={"file": ("log.txt", text.encode())}).json()
    wait_until(lambda: served.client.get(f"/v1/files/{file['id']}?model=tiny").json()["status"] == "processed", 60)
    asked = {"model": "tiny", "messages": HELLO, "document": file["id"], "max_tokens": 4}
    first = served.post(CHAT, **asked)
    assert said(served, "talking")[0] == "talking"
    assert names(pool) == ["talking"]
    told = {model["id"]: model["state"] for model in served.client.get("/v1/models").json()["data"]}
    assert told == {"tiny": "not-loaded", "talking": "loaded", "Third": "not-loaded"}
    again = served.post(CHAT, **asked)
    assert names(pool) == ["tiny"]
    assert again["choices"][0]["message"] == first["choices"][0]["message"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 200
    assert served.client.get("/health").status_code == 200


def test_models_that_answer_stay(served, pool, monkeypatch):
    monkeypatch.setattr(server_pool, "free_memory", lambda: FreeMemory(0, "none"))
    begun, answers = threading.Event(), []

    def stream():
        body = {
            "model": "tiny",
            "messages": HELLO,
            "max_tokens": 200,
            "stream": True,
            "logit_bias": {"268": -100, "270": -100},
        }
        with served.client.stream("POST", CHAT, json=body) as response:
            for line in response.iter_lines():
                begun.set()
                answers.append(line)

    client = threading.Thread(target=stream)
    client.start()
    assert begun.wait(30)
    assert said(served, "talking") == ("talking", talking_model.ANSWER)
    client.join()
    assert answers[-2:] == ["data: [DONE]", ""]
    assert names(pool) == ["talking", "tiny"]


def test_a_model_that_cannot_be_loaded_is_told(served, pool):
    pool.choices["Third"].path.write_bytes(b"nothing")
    status, error = served.refused(CHAT, model="Third", messages=HELLO)
    assert (status, "Third" in error["message"]) == (500, True)
    assert said(served, "tiny")[0] == "tiny"


def test_files_of_one_name_get_names_that_tell_them_apart():
    paths = [Path(path) for path in ("/a/x/model.gguf", "/b/y/Model.gguf", "/c/y/model.gguf", "/a/other.gguf")]
    assert names_of([*paths, paths[0]]) == {
        "x/model": paths[0],
        "b/y/Model": paths[1],
        "c/y/model": paths[2],
        "other": paths[3],
    }
    choices = {name: LoadableModel(SimpleNamespace(model_path=path), None) for name, path in names_of(paths).items()}
    pool = ServerPool(choices)
    asked = ["c/y/model", "B/Y/MODEL:latest", "model", "other", "gpt-4"]
    assert [pool.name_of(name) for name in asked] == ["c/y/model", "b/y/Model", "x/model", "other", "x/model"]


def test_an_upload_that_names_no_model_belongs_to_all(served, pool):
    """It is read for the model that was used last, and for another one once a request to it names it."""
    text = "\n".join(f"In year {year} the keeper saw {year * 3} ships." for year in range(12)).encode()
    said(served, "talking")
    file = served.upload("log.txt", text)
    by_id = f"/v1/files/{file['id']}"
    assert served.client.get(f"{by_id}?model=talking").status_code == 200
    assert said(served, "tiny")[0] == "tiny"  # now another one was used last
    wait_until(lambda: served.client.get(by_id).json()["status"] == "processed", 60)
    assert served.client.get(f"{by_id}?model=tiny").status_code == 404
    asked = {"model": "tiny", "messages": HELLO, "document": "log.txt", "max_tokens": 4}
    assert served.post(CHAT, **asked)["basis"]["kind"] in ("excerpts", "document")
    wait_until(lambda: served.client.get(f"{by_id}?model=tiny").json()["status"] == "processed", 60)
    assert served.post(CHAT, **asked)["basis"]["kind"] == "document"
    listed = served.client.get("/v1/files").json()["data"]
    assert [(each["id"], each["status"]) for each in listed] == [(file["id"], "processed")]
    assert served.refused(CHAT, **{**asked, "document": "other.txt"})[0] == 404


def test_a_removed_document_does_not_come_back_with_a_model(served, pool, monkeypatch):
    file = served.read("log.txt", b"The keeper saw 90 ships. " * 20)
    by_id = f"/v1/files/{file['id']}"
    asked = {"messages": HELLO, "document": file["id"], "max_tokens": 4}
    served.post(CHAT, model="talking", **asked)
    wait_until(lambda: served.client.get(f"{by_id}?model=talking").json()["status"] == "processed", 60)
    monkeypatch.setattr(server_pool, "free_memory", lambda: FreeMemory(0, "none"))
    assert said(served, "third")[0] == "Third"
    assert names(pool) == ["Third"]
    said(served, "tiny")
    assert names(pool) == ["tiny"]
    assert served.client.delete(by_id).status_code == 200
    for model in ("tiny", "talking", "Third"):
        assert served.refused(CHAT, model=model, **asked)[0] == 404
        assert served.client.get("/v1/files").json()["data"] == []


def test_ollama_lists_all_models(served, pool):
    listed = served.client.get("/api/tags").json()["models"]
    assert [model["name"] for model in listed] == ["tiny:latest", "talking:latest", "Third:latest"]
    assert all(model["size"] > 0 and len(model["digest"]) == 64 for model in listed)
    assert [model["name"] for model in served.client.get("/api/ps").json()["models"]] == ["tiny:latest"]
    assert served.post("/api/chat", model="talking:latest", messages=HELLO, stream=False)["model"] == "talking:latest"
    assert len(served.client.get("/api/ps").json()["models"]) == 2


#: Serves two models, of which the second takes a minute to load.
SLOW = """
import time
from octavo.cli.main import main
from octavo.serve import run
from octavo.serve.http import listening

load, listening._GRACE = run.load, 0.2

def load_slowly(settings, *arguments):
    if str(settings.model).endswith("talking.gguf"):
        print("LOADING", flush=True)
        time.sleep(60)
    return load(settings, *arguments)

run.load = load_slowly
main()
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_must_stop_does_not_wait_for_a_model_that_loads(tiny_model, tmp_path, sent):
    talking = talking_model.write_model(tmp_path / "talking.gguf")
    options = ["-m", str(tiny_model), "-m", str(talking), "--port", "0", "--index-dir", str(tmp_path), "-t", "2"]
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", SLOW, "serve", *options], stdout=pipe, stderr=pipe, text=True)
    address = next(word for line in process.stderr if "Serving" in line for word in line.split() if "http" in word)
    body = {"model": "talking", "messages": HELLO}
    with ThreadPoolExecutor(1) as client:
        asked = client.submit(httpx.post, address.rstrip(":") + CHAT, json=body, timeout=50)
        assert process.stdout.readline() == "LOADING\n"
        assert httpx.get(address.rstrip(":") + "/health").status_code == 200  # meanwhile
        process.send_signal(sent)
        try:
            process.wait(30)
        finally:
            process.kill()
        assert asked.exception() is not None or asked.result().status_code == 503
    process.communicate()
    assert process.returncode in (0, -sent)


def test_a_model_that_was_loaded_for_nobody_is_closed(pool, monkeypatch):
    """Its request was given up, or the server stopped: no thread of its engine is left."""
    begun, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    server = SimpleNamespace(close=closed.set)

    def open_slowly(turns):
        begun.set()
        go_on.wait(30)
        return server

    pool.choices["talking"] = LoadableModel(pool.choices["talking"].library, open_slowly)

    async def give_up():
        async def use():
            async with pool.use("talking"):
                raise AssertionError("it is not used")

        using = asyncio.create_task(use())
        await asyncio.to_thread(begun.wait, 30)
        using.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await using
        await asyncio.to_thread(closed.wait, 30)
        await pool.close()

    asyncio.run(give_up())
    assert closed.is_set()
    assert pool.loaded == []


def test_figures_of_several_models_name_them(served, pool):
    said(served, "talking")
    lines = served.client.get("/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("octavo_requests_total")]
    assert counted == ['octavo_requests_total{model="tiny"} 0', 'octavo_requests_total{model="talking"} 1']
    assert len([line for line in lines if line.startswith("# TYPE octavo_requests_total")]) == 1
