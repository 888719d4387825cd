"""Guard every request: check its key, its origin, and its size."""

from __future__ import annotations

import asyncio
import fnmatch
import hmac
import re
from collections.abc import Callable, Sequence
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..request_error import RequestError
from .access import Access
from .requests import IGNORED

#: Paths without secrets, which need no key, and the beginning of others: the page asks for the key itself.
_OPEN, _OPEN_FOLDER = ("/", "/favicon.ico", "/health"), "/page/"


#: Most bytes of the header that names ignored fields.
_LONGEST_HEADER = 2000

#: Most seconds between two pieces of a body.
_LONGEST_PAUSE = 60.0


def guards(
    access: Access,
    refuse: Callable[[str, RequestError], ASGIApp],
    stopping: asyncio.Event,
    exposed: Sequence[str],
) -> list[Middleware]:
    """Return the middleware that guards an application, the outermost first.

    Parameters
    ----------
    stopping : Event
        Set when the server accepts no more.
    exposed : sequence of str
        Headers of responses that pages of other sites may read.
    """
    found = [Middleware(Guard, refuse=refuse, access=access, stopping=stopping)]
    if access.origins:
        pattern = "|".join(map(fnmatch.translate, access.origins))
        cors = Middleware(
            CORSMiddleware,
            allow_origin_regex=pattern,
            allow_methods=["*"],
            allow_headers=["*"],
            allow_private_network=True,
            expose_headers=exposed,
        )
        found.insert(0, cors)
    return found


def _is_of_other_site(scope: Scope, headers: Headers) -> bool:
    """Return whether a page of another site asks, as for a picture, which sends no origin; but a link may lead here."""
    is_link = scope["path"] in _OPEN and headers.get("sec-fetch-mode") == "navigate"
    return headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_link


def is_open(path: str) -> bool:
    """Return whether a path is open to all, as it has no secrets; it needs no model, either."""
    return path in _OPEN or path.startswith(_OPEN_FOLDER)


class Guard:
    """Refuse requests from elsewhere; each API writes a refusal in its own form.

    A page of another site can have the browser send requests to this machine, even under a name of its own that leads
    here (DNS rebinding). So the guard checks the names of hosts, and the origins that browsers send.

    Parameters
    ----------
    app : ASGI application
        The guarded application.
    refuse : callable
        Returns the response for a path and a reason.
    access : Access
        Who may ask; a key is a bearer token or x-api-key.
    stopping : Event
        Set when the server accepts no more: bodies that still come are refused.
    """

    def __init__(
        self,
        app: ASGIApp,
        refuse: Callable[[str, RequestError], ASGIApp],
        access: Access,
        stopping: asyncio.Event,
    ) -> None:
        self._stopping = stopping
        self._app, self._refuse, self._key, self._most_bytes = app, refuse, access.api_key, access.most_bytes
        self._hosts, self._origins = {*(host.lower() for host in access.hosts), "localhost"}, access.origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request."""
        if scope["type"] == "http" and (refusal := self._refusal(scope, Headers(scope=scope))) is not None:
            await self._refuse(scope["path"], refusal)(scope, receive, send)
        else:
            if scope["type"] == "http":
                receive, send = self._limited(receive), self._with_header(scope, send)
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> RequestError | None:
        host = headers.get("host", "")
        if not self._is_known(host):
            return RequestError(f"This server does not answer to the name {host}: give it with --allow-host.", 403)
        origin = headers.get("origin")
        if origin is None and _is_of_other_site(scope, headers):
            return RequestError("Pages of other sites may not ask this server.", 403)
        if origin is not None and origin.partition("://")[2] != host and not self._is_allowed(origin):
            return RequestError(f"Pages of {origin} may not ask this server: allow them with --allow-origin.", 403)
        if self._key is not None and not is_open(scope["path"]) and not self._has_key(headers):
            return RequestError("A key is needed: send it as a bearer token.", 401, "invalid_api_key")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._most_bytes:
            return self._too_large()
        return None

    def _is_known(self, host: str) -> bool:
        """Return whether a Host header names this server: an address cannot be rebound, a name can."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        try:
            ip_address(name.strip("[]"))
        except ValueError:
            return name.lower() in self._hosts
        return True

    def _is_allowed(self, origin: str) -> bool:
        return any(fnmatch.fnmatchcase(origin, pattern) for pattern in self._origins)

    def _has_key(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        return hmac.compare_digest(given.encode(), (self._key or "").encode())

    def _too_large(self) -> RequestError:
        return RequestError(f"The body is larger than {self._most_bytes / 2**20:,.0f} MiB.", 413)

    def _with_header(self, scope: Scope, send: Send) -> Send:
        """Keep responses out of pages of other sites, and name ignored fields in a header."""

        async def with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"cross-origin-resource-policy", b"same-origin")]
            if message["type"] == "http.response.start" and scope.get(IGNORED):
                names = re.sub(r"[^!-~]+", " ", ", ".join(scope[IGNORED]))[:_LONGEST_HEADER].strip()
                message["headers"] = [*message.get("headers", ()), (IGNORED.encode(), names.encode())]
            await send(message)

        return with_header

    def _limited(self, receive: Receive) -> Receive:
        """Stop a body without a declared size once it is too large, and any that ceases to come."""
        n_bytes, is_whole = 0, False

        async def limited() -> Message:
            nonlocal n_bytes, is_whole
            message = await (receive() if is_whole else self._next(receive))
            if message["type"] == "http.request":
                n_bytes, is_whole = n_bytes + len(message.get("body", b"")), not message.get("more_body", False)
                if n_bytes > self._most_bytes:
                    raise self._too_large()
            return message

        return limited

    async def _next(self, receive: Receive) -> Message:
        """Return the next piece of a body. Raise RequestError if it does not come in time, or the server stops."""
        coming, stopping = asyncio.ensure_future(receive()), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({coming, stopping}, timeout=_LONGEST_PAUSE, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                return coming.result()
            if stopping.done():
                raise RequestError("The server is stopping: the body did not come whole. Send it again later.", 503)
            raise RequestError("The body did not come in time.", 408)
        finally:
            coming.cancel()
            stopping.cancel()
