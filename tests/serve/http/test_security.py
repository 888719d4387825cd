"""Who may ask a server, and what it tells."""

import http.client
import json
import socket
import time

import pytest
from helpers.command_line import fails, octavo, start
from helpers.served import serving

from octavo.errors import OctavoError
from octavo.serve.http import security, timed_protocol
from octavo.serve.http.access import Access
from octavo.serve.request_error import refusal_of


@pytest.fixture(scope="module")
def locked(tiny_model, tmp_path_factory):
    """A server with a key and a small limit."""
    with serving(tiny_model, tmp_path_factory.mktemp("locked"), key="secret", most_bytes=4096) as served:
        yield served


def get(served, path="/v1/models", **headers):
    return served.client.get(path, headers=headers).status_code


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("localhost", 200),
        ("LOCALHOST:99", 200),
        ("[::1]:8080", 200),
        ("octavo.test", 200),
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
    ],
)
def test_names_that_lead_here_by_rebinding_are_refused(served, host, status):
    assert get(served, host=host) == status


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost.evil.example"]
)
def test_pages_of_other_sites_are_refused(served, origin):
    assert get(served, origin=origin) == 403
    assert (
        served.client.post("/v1/files", headers={"origin": origin}, files={"file": ("a.txt", b"a")}).status_code == 403
    )


def test_pages_that_are_allowed_may_ask(served):
    for origin in ("app://known", "chrome-extension://abc"):
        response = served.client.get("/v1/models", headers={"origin": origin})
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, origin)
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, content-type"}
    before = served.client.options("/v1/chat/completions", headers={"origin": "app://known", **asked})
    assert before.status_code == 200
    assert "POST" in before.headers["access-control-allow-methods"]
    assert served.client.options("/v1/models", headers={"origin": "app://other", **asked}).status_code == 400


def test_the_servers_own_page_may_ask(served):
    assert get(served, origin=served.url) == 200


def test_requests_need_the_key(locked):
    assert get(locked) == 401
    assert get(locked, authorization="Bearer wrong") == 401
    assert get(locked, authorization="Basic secret") == 401
    assert get(locked, authorization="Bearer secret") == 200
    assert get(locked, **{"x-api-key": "secret"}) == 200
    assert get(locked, path="/health") == 200
    assert get(locked, path="/") == 200
    assert get(locked, path="/metrics") == 401
    error = locked.client.post("/v1/messages", json={}).json()
    assert (error["type"], error["error"]["type"]) == ("error", "authentication_error")


def test_bodies_are_limited_also_those_that_do_not_say_their_size(locked):
    headers = {"authorization": "Bearer secret"}
    big = json.dumps({"prompt": "x" * 5000})
    assert locked.client.post("/v1/completions", content=big, headers=headers).status_code == 413
    pieces = (big[i : i + 500].encode() for i in range(0, len(big), 500))
    assert locked.client.post("/v1/completions", content=pieces, headers=headers).status_code == 413
    upload = locked.client.post("/v1/files", files={"file": ("a.txt", b"y" * 5000)}, headers=headers)
    assert upload.status_code == 413
    chunks = (b"z" * 100 for _ in range(100))
    form = {**headers, "content-type": "multipart/form-data; boundary=x"}
    assert locked.client.post("/v1/files", content=chunks, headers=form).status_code in (400, 413)


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/page/../app.py", "/v1/files/..%2f..%2fetc%2fpasswd/content", "/%2e%2e/x", "/serve/app.py"],
)
def test_no_path_of_the_disk_is_given(served, path):
    connection = http.client.HTTPConnection(*served.address)
    connection.request("GET", path)
    response = connection.getresponse()
    assert response.status == 404
    assert b"root:" not in response.read()
    connection.close()


def test_a_path_is_no_name_of_a_document(served, tmp_path):
    (tmp_path / "secret.txt").write_text("secret " * 50)
    for name in (str(tmp_path / "secret.txt"), "../secret.txt", "/etc/passwd", ""):
        response = served.client.post("/v1/completions", json={"prompt": "x", "document": name or "."})
        assert response.status_code == 404


@pytest.mark.parametrize(
    "sent",
    [
        b"GARBAGE\r\n\r\n",
        b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"prompt"',
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: nonsense\r\n\r\n",
        b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        b'Content-Length: 100\r\n\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="a',
        bytes(range(256)),
    ],
)
def test_garbage_and_half_bodies_harm_nobody(served, sent):
    with socket.create_connection(served.address, 5) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass
    assert served.post("/v1/completions", prompt="still there", max_tokens=2)["choices"]
    assert served.server.engine.n_running == 0


def test_errors_have_the_form_of_their_api(served):
    assert served.client.get("/nothing").json()["error"] == {
        "message": "There is no /nothing.",
        "type": "not_found_error",
        "param": None,
        "code": None,
    }
    assert served.client.get("/v1/chat/completions").status_code == 405
    assert served.client.get("/v1/messages/nothing").json()["type"] == "error"


def test_beyond_this_machine_a_key_is_needed(tiny_model):
    result = octavo("serve", "-m", tiny_model, "--host", "0.0.0.0", "--port", "0")
    assert result.exit_code == 1
    assert "give a key with --api-key" in result.stderr


def test_an_address_that_is_taken_is_told_before_the_model_loads(tiny_model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = octavo("serve", "-m", tiny_model, "--port", taken.getsockname()[1])
    assert result.exit_code == 1
    assert "The server cannot listen at 127.0.0.1, port" in result.stderr


def test_ctrl_c_ends_the_server_in_good_order(tiny_model, tmp_path):
    import signal

    process = start("serve", "-m", tiny_model, "--port", "0", "--index-dir", tmp_path, "-t", "2")
    told = []
    for line in process.stderr:
        told.append(line)
        if b"Serving" in line:
            break
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert b"Serving tiny at http://127.0.0.1:" in told[-1]
    assert (process.returncode, rest) == (0, b"")


def test_connections_without_a_whole_request_are_closed(served, monkeypatch):
    monkeypatch.setattr(timed_protocol, "_LONGEST", 0.2)
    monkeypatch.setattr(security, "_LONGEST_PAUSE", 0.2)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
    for sent in (b"", b"POST /v1/comp", head[:-2]):
        with socket.create_connection(served.address, 5) as connection:
            connection.sendall(sent)
            assert connection.recv(4096) == b""
    with socket.create_connection(served.address, 5) as connection:
        connection.sendall(head + b'{"prompt"')
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_long_answers_and_pauses_between_requests_close_no_connection(served, monkeypatch):
    monkeypatch.setattr(timed_protocol, "_LONGEST", 0.05)
    connection = http.client.HTTPConnection(*served.address, timeout=20)
    for _ in range(2):
        body = json.dumps({"prompt": "x", "max_tokens": 60, "logit_bias": {"2": -100}})
        connection.request("POST", "/v1/completions", body)
        first = connection.sock
        response = connection.getresponse()
        assert response.status == 200
        assert json.load(response)["choices"]
        time.sleep(0.2)
        assert connection.sock is first
    connection.close()


def test_halves_of_surrogate_pairs_are_text(served):
    headers = {"content-type": "application/json"}
    for text in (r"\ud83d", r"a \uDE00 b", r"\ud83d\ude00"):
        for path, body in (
            ("/v1/completions", '{"prompt": "%s", "max_tokens": 1}'),
            (
                "/v1/chat/completions",
                '{"model": "m", "messages": [{"role": "user", "content": "%s"}], "max_tokens": 1}',
            ),
            ("/v1/messages", '{"model": "m", "messages": [{"role": "user", "content": "%s"}], "max_tokens": 1}'),
            ("/v1/responses", '{"model": "m", "input": "%s", "max_output_tokens": 1}'),
            ("/tokenize", '{"content": "%s"}'),
        ):
            response = served.client.post(path, content=body % text, headers=headers)
            assert response.status_code == 200, (path, text, response.text)
    tokens = served.post("/tokenize", content="\ufffd")["tokens"]
    assert served.client.post("/tokenize", content=r'{"content": "\ud83d"}', headers=headers).json()["tokens"] == tokens


def test_prompts_that_cannot_fit_are_refused_before_they_are_tokenized(served, monkeypatch):
    llama = served.server.engine.llama
    monkeypatch.setattr(llama, "tokenize", lambda *arguments, **options: pytest.fail("It was tokenized."))
    text = "word " * 400_000
    status, error = served.refused("/v1/chat/completions", model="m", messages=[{"role": "user", "content": text}])
    assert (status, error["code"]) == (400, "context_length_exceeded")
    status, error = served.refused("/v1/completions", prompt=text)
    assert (status, error["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("key", ["ключ", "Schlüssel", "secret\n", " secret", "sec\tret", "\u200b", "\udcff"])
def test_a_key_that_no_request_can_bring_is_refused(key):
    with pytest.raises(OctavoError, match="No request can bring this key"):
        Access("127.0.0.1", 0, key, [], [], 1)


@pytest.mark.parametrize("key", ["", " ", "\t\n"])
@pytest.mark.parametrize("command", ["serve", "mcp"])
def test_an_empty_key_is_refused(tiny_model, tmp_path, monkeypatch, key, command):
    (tmp_path / "a.txt").write_text("A.")
    asked = [command, "-m", tiny_model, "--port", "0"] + ([tmp_path / "a.txt", "--http"] if command == "mcp" else [])
    fails(octavo(*asked, "--api-key", key), 1, "The key is empty: give one with --api-key")
    monkeypatch.setenv("OCTAVO_API_KEY", key)
    told = "The key is empty: give one with --api-key" if key else "Everyone who reaches 0.0.0.0 could ask"
    fails(octavo(*asked, "--host", "0.0.0.0"), 1, told)  # an empty variable is as none


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/v1/files", "/v1/files/file-1/pages/1", "/v1/models", "/metrics", "/page/page.js"])
def test_pages_of_other_sites_embed_nothing(served, site, path):
    """A browser sends no origin with a picture or a script."""
    assert get(served, path, **{"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}) == 403
    assert get(served, path, **{"sec-fetch-site": site, "sec-fetch-mode": "navigate"}) == 403


def test_links_lead_to_the_page(served):
    assert get(served, "/", **{"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}) == 200
    for site in ("same-origin", "none"):
        assert get(served, "/v1/models", **{"sec-fetch-site": site}) == 200
    assert get(served, "/v1/models", **{"sec-fetch-site": "cross-site", "origin": "app://known"}) == 200
    for path in ("/", "/v1/models", "/nothing"):
        assert served.client.get(path).headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "/home/anna/my docs/lib.octavo/layer-003.safetensors has another size.",
            "layer-003.safetensors has another size.",
        ),
        (
            "The index ~/lib/a-1 is damaged: [Errno 5] '/mnt/x/y.bin'",
            "The index a-1 is damaged: [Errno 5] 'y.bin'",
        ),
        ("Read 3/4 of it, and/or wait: https://example.org/a is no file.",) * 2,
    ],
)
def test_errors_name_files_without_their_folders(said, told):
    assert str(refusal_of(OctavoError(said))) == told
