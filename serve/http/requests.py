"""Parse a request's body, notice a client's hangup, and stream events, for the handlers of all APIs."""

from __future__ import annotations

import asyncio
import codecs
import json
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import aclosing
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from ...errors import OctavoError
from ..request_error import RequestError, refusal_of

#: Seconds after which a stream that is silent, as a long prompt is read, gets a comment: some clients give up else.
_SILENCE, _COMMENT = 10.0, ": still working\n\n"

#: The header of a response that names the fields that octavo ignores.
IGNORED = "x-octavo-ignored"

#: Fewest bytes of a body that is parsed beside the event loop; most bytes, values and escapes of JSON.
_SHORT, _MOST_JSON, _MOST_VALUES, _MOST_ESCAPES = 100_000, 32 << 20, 200_000, 2_000_000

#: The escape of a surrogate in JSON.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

Body = TypeVar("Body", bound=BaseModel)
Event = TypeVar("Event")
Result = TypeVar("Result")


async def parsed(request: Request, kind: type[Body]) -> Body:
    """Parse a JSON body.

    Parameters
    ----------
    kind : type of BaseModel
        Model of the body.

    Raises
    ------
    RequestError
        The body is not JSON, or a field has a wrong value.
    """
    try:
        sent = await request.body()
        body = await aside(len(sent), lambda: checked(kind, json_of(sent), "The body"))
    except ClientDisconnect as problem:
        raise RequestError("The body ended before it was whole.") from problem
    except (ValueError, RecursionError) as problem:
        raise RequestError(f"The body is not JSON: {problem}.") from problem
    note_ignored(request, getattr(body, "ignored", ()))
    return body


def checked(kind: type[Body], value: Any, name: str) -> Body:
    """Return an object of a request, of a type. Raise RequestError, which names it or the wrong field."""
    try:
        return kind.model_validate(value)
    except ValidationError as problem:
        first = problem.errors()[0]
        field = ".".join(str(part) for part in first["loc"] if not isinstance(part, str) or "[" not in part)
        raise RequestError(f"{field or name}: {first['msg']}.", param=field or None) from problem


def note_ignored(request: Request, names: Iterable[str]) -> None:
    """Note fields that octavo ignores; the response names them in the header IGNORED."""
    noted: list[str] = request.scope.setdefault(IGNORED, [])
    noted += (name for name in names if name not in noted)


async def aside(n_bytes: int, work: Callable[[], Result]) -> Result:
    """Return the result of work on a body: beside the event loop, if it is long."""
    return work() if n_bytes < _SHORT else await asyncio.to_thread(work)


def json_of(body: bytes) -> Any:
    """Return the value of a body; a half of a surrogate pair, which is not a character, becomes �.

    Raises
    ------
    ValueError
        It is not JSON, which has neither infinity nor NaN.
    RequestError
        It would take too long to parse: Python does nothing else meanwhile.
    """
    if len(body) > _MOST_JSON:
        raise RequestError(
            f"JSON has at most {_MOST_JSON >> 20} MiB: upload documents to /v1/files, and name them.", 413
        )
    if body.count(b",") > _MOST_VALUES and _n_values(body) > _MOST_VALUES:
        raise RequestError(f"The body has more than {_MOST_VALUES:,} values.", 413)
    if body.count(b"\\") > _MOST_ESCAPES:
        raise RequestError(f"The body has more than {_MOST_ESCAPES:,} escapes: send its text as UTF-8.", 413)
    try:
        value = from_json(body.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)  # in half the time of `json`
    except ValueError:
        if not _SURROGATE.search(body):
            raise
        value = json.loads(body)
    return _whole(value)


def _n_values(body: bytes) -> int:
    """Return how many commas JSON has outside of strings, or how many strings, if these are more."""
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    n_strings = plain.count(b'"') // 2
    return n_strings if n_strings > 2 * _MOST_VALUES else sum(part.count(b",") for part in plain.split(b'"')[::2])


def _whole(value: Any) -> Any:
    """Return a JSON value whose strings can be encoded. Raise ValueError for a number that is too large."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is infinite, or too large")
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return {_whole(key): _whole(each) for key, each in value.items()} if isinstance(value, dict) else value


def client_of(request: Request) -> str:
    """Return the identity of a client for a fair queue: its address and its key."""
    return f"{request.client.host if request.client else ''} {request.headers.get('authorization', '')}"


async def connected(request: Request, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Yield the events of a generator, and close it when the client hangs up.

    Raises
    ------
    RequestError
        The client has hung up; the error reaches no client.
    """
    gone = asyncio.create_task(_disconnected(request))
    coming: asyncio.Future[Event] | None = None
    try:
        while True:
            coming = asyncio.ensure_future(anext(events))
            await asyncio.wait({coming, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                raise RequestError("The client has hung up.", 499)
            try:
                yield coming.result()
            except StopAsyncIteration:
                return
    finally:
        gone.cancel()
        await _end(coming)
        await events.aclose()


async def _end(coming: asyncio.Future[Any] | None) -> None:
    """End what still comes, also when the server stops. Its result is lost."""
    if coming is not None and not coming.done():
        coming.cancel()
        await asyncio.wait({coming})
    if coming is not None and not coming.cancelled():
        coming.exception()  # else asyncio logs it


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of some work, and cancel it when the client hangs up.

    Raises
    ------
    RequestError
        The client has hung up; the error reaches no client.
    """

    async def result() -> AsyncGenerator[Result, None]:
        yield await work

    async with aclosing(connected(request, result())) as results:
        return await anext(results)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def sse(lines: AsyncGenerator[str, None], failure: Callable[[RequestError], str] | None = None) -> Response:
    """Stream lines as server-sent events. An error becomes the last event; a hangup of the client ends the work.

    Parameters
    ----------
    lines : async generator of str
        Data of the events; the event's name may come first, as "event: NAME\\ndata: ...".
    failure : callable, optional
        Returns the line of an error; by default in OpenAI's form.
    """
    failure = failure or (lambda problem: json.dumps(openai_error(problem)))
    return _streamed(_events(lines, failure), "text/event-stream")


def ndjson(objects: AsyncGenerator[str, None], failure: Callable[[RequestError], str], silence: str) -> Response:
    """Stream JSON, an object a line; errors and hangups are as in `sse`.

    Parameters
    ----------
    silence : str
        The object that is sent where a stream is silent: there are no comments in JSON.
    """
    return _streamed(_events(objects, failure, "{}\n".format, f"{silence}\n"), "application/x-ndjson")


def _event(line: str) -> str:
    return f"{line}\n\n" if line.startswith("event: ") else f"data: {line}\n\n"


def _streamed(events: AsyncIterator[str], media_type: str) -> Response:
    return StreamingResponse(events, media_type=media_type, headers={"Cache-Control": "no-cache"})


async def _events(
    lines: AsyncGenerator[str, None],
    failure: Callable[[RequestError], str],
    formatted: Callable[[str], str] = _event,
    silence: str = _COMMENT,
) -> AsyncIterator[str]:
    coming: asyncio.Future[str] | None = None
    try:
        while True:
            coming = asyncio.ensure_future(anext(lines))
            while not (await asyncio.wait({coming}, timeout=_SILENCE))[0]:
                yield silence
            yield formatted(coming.result())
    except StopAsyncIteration:
        pass
    except OctavoError as problem:
        refused = refusal_of(problem)
        yield formatted(failure(refused))
    finally:
        await _end(coming)
        await lines.aclose()


def openai_error(problem: RequestError) -> dict[str, Any]:
    """Return an error in OpenAI's form."""
    error = {"message": str(problem), "type": problem.kind, "param": problem.param, "code": problem.code}
    return {"error": {**error, **problem.fields}}
