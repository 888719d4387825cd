"""Find the target of a request: its path, which some clients write in another way, and its model."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from starlette.datastructures import Headers, QueryParams
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import OctavoError
from .http.requests import aside, json_of
from .http.security import is_open
from .request_error import RequestError, refusal_of
from .server_pool import ServerPool
from .services import SERVER

_log = logging.getLogger(__name__)

#: The beginning of a document's path.
_FILES = "/v1/files/"

#: The beginning of most paths: some clients leave it out, or send it twice.
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


class ChosenModel:
    """Hold the model that a request names until it is answered: in its body, or as the parameter `model` of its path.

    A request about a document that names no model gets one that knows the document.

    Parameters
    ----------
    refuse : callable
        Returns the response for a path and a reason.
    """

    def __init__(self, app: ASGIApp, pool: ServerPool, refuse: Callable[[str, RequestError], ASGIApp]) -> None:
        self._app, self._pool, self._refuse = app, pool, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        async with AsyncExitStack() as stack:
            try:
                asked = None
                if len(self._pool.choices) > 1:
                    asked, receive = await _asked(scope, receive)
                    if not asked and (document_id := _document_in(scope["path"])):
                        asked = next(iter(await self._pool.holding(document_id)), None)
                server = await stack.enter_async_context(self._pool.use(asked))
            except Exception as problem:
                if not isinstance(problem, OctavoError):
                    _log.exception("A model could not be used.")
                    problem = OctavoError(f"The server failed: {type(problem).__name__}. Its log says more.")
                error = refusal_of(problem)
                await self._refuse(scope["path"], error)(scope, receive, send)
                return
            scope[SERVER] = server
            await self._app(scope, receive, send)


def _document_in(path: str) -> str:
    """Return the id of the document that a path names; "" without one."""
    return path.removeprefix(_FILES).partition("/")[0] if path.startswith(_FILES) else ""


async def _asked(scope: Scope, receive: Receive) -> tuple[str | None, Receive]:
    """Return the name of the model in a request, or None, and a function that receives the request again."""
    named = QueryParams(scope["query_string"]).get("model")
    if named or scope["method"] != "POST" or "multipart" in Headers(scope=scope).get("content-type", ""):
        return named, receive
    messages: list[Message] = []
    while not messages or (messages[-1]["type"] == "http.request" and messages[-1].get("more_body")):
        messages.append(await receive())
    body = b"".join(message.get("body", b"") for message in messages)
    coming = iter(messages)

    async def again() -> Message:
        return next(coming, None) or await receive()

    return await aside(len(body), lambda: _model_in(body)), again


def _model_in(body: bytes) -> str | None:
    if b'"model"' not in body:
        return None
    try:
        named = json_of(body)["model"]
    except (OctavoError, ValueError, TypeError, KeyError, RecursionError):  # the handler names the fault
        return None
    return named if isinstance(named, str) and named else None
