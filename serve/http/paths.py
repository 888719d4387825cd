"""Find the path that a client means: some leave /v1 out, or send it twice, or double a slash."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

_PREFIX = "/v1"


class TolerantPaths:
    """Change the path of a request to one that the server has, if it differs in slashes or in /v1 alone."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http" and not self._has(scope, scope["path"]):
            path = re.sub("/+", "/", scope["path"])
            bare = path
            while bare.startswith(f"{_PREFIX}/"):
                bare = bare.removeprefix(_PREFIX)
            meant = next((each for each in (path, _PREFIX + bare, bare) if self._has(scope, each)), None)
            if meant is not None:
                scope = {**scope, "path": meant, "raw_path": meant.encode()}
        await self._app(scope, receive, send)

    def _has(self, scope: Scope, path: str) -> bool:
        return any(route.matches({**scope, "path": path})[0] is not Match.NONE for route in self._routes)
