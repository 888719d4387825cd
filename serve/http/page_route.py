"""Serve the page at `/`, and its styles and scripts at `/page/`: files of the folder `page`, unchanged."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parents[1] / "page"

#: Content security policy: the page loads its own files and talks to its own server. Scripts cannot write HTML:
#: documents and answers enter the page as text. The only image is the icon, which index.html holds as a data URL.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data: blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def _route(path: str, name: str, media_type: str) -> Route:
    def endpoint(request: Request) -> Response:
        return Response((FOLDER / name).read_bytes(), media_type=media_type, headers=HEADERS)

    return Route(path, endpoint, methods=["GET"])


_TYPES = {".css": "text/css", ".js": "text/javascript"}

routes: list[Route] = [
    _route("/", "index.html", "text/html"),
    *(
        _route(f"/page/{file.name}", file.name, _TYPES[file.suffix])
        for file in sorted(FOLDER.iterdir())
        if file.suffix in _TYPES
    ),
    Route("/favicon.ico", lambda request: Response(status_code=204), methods=["GET"]),
]
