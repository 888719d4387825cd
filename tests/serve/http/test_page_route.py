"""The page at `/`: its files come unchanged, with their headers, and need no key."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin

from helpers.page_server import behind

from octavo.serve.http import page_route as page_module
from octavo.serve.http.access import Access


def test_the_files_come_with_their_headers():
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    client = TestClient(Starlette(routes=page_module.routes))
    types = {"/": "text/html"}
    types |= {f"/page/{file.name}": "text/javascript" for file in page_module.FOLDER.glob("*.js")}
    types |= {f"/page/{file.name}": "text/css" for file in page_module.FOLDER.glob("*.css")}
    assert {"/page/page.js", "/page/base.css"} < set(types)
    for path, kind in types.items():
        response = client.get(path)
        assert response.status_code == 200
        assert response.headers["content-type"] == f"{kind}; charset=utf-8"
        assert response.headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cache-control"] == "no-cache"
    for path in ("/page/page.py", "/page/../app.py", "/page/", "/page/%2e%2e/http/app.py"):
        assert client.get(path).status_code == 404
    assert client.post("/").status_code == 405


def test_the_real_server_has_the_page_and_asks_no_key_for_it():
    from starlette.testclient import TestClient

    from octavo.serve.app import application
    from octavo.serve.server_pool import LoadableModel, ServerPool, _Loaded

    pool = ServerPool({"none": LoadableModel(Path("none.gguf"), lambda turns: None)})
    pool._loaded["none"] = _Loaded(None)  # no request of this test needs more of the model
    client = TestClient(application(pool, Access("127.0.0.1", 0, "sesame", ["testserver"], (), 1)))
    assert [client.get(path).status_code for path in ("/", "/page/page.js", "/page/base.css")] == [200, 200, 200]
    assert client.get("/page/").status_code == 404
    assert client.get("/v1/files").status_code == 401


def test_the_page_works_behind_a_path_of_a_proxy():
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    client = TestClient(behind(Starlette(routes=page_module.routes), "/octavo"))
    index = client.get("/octavo/").text
    addresses = re.findall(r"""(?:href|src)="(?!data:|#)([^"]+)""", index)
    assert {"page/page.js", "page/base.css"} < set(addresses)
    assert [client.get(urljoin("/octavo/", address)).status_code for address in addresses] == [200] * len(addresses)
    for file in page_module.FOLDER.glob("*.js"):
        script = file.read_text()
        assert re.findall(r"""["'`]/(?:v1|page|props|api|health)\b""", script) == [], file.name
        for module in re.findall(r"""^import .*"(.+)";$""", script, re.M):
            assert client.get(urljoin(f"/octavo/page/{file.name}", module)).status_code == 200
