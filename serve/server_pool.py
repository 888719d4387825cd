"""The models of a server: each is loaded when it is asked for, and put away when another one needs its memory."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from starlette.requests import Request

from ..errors import OctavoError
from ..runtime.store.model_library import Library
from ..system.free_memory import free_memory
from .engine.turns import Turns
from .kept_objects import KeptObjects
from .kept_responses import KeptResponses
from .request_error import RequestError
from .services import Server

#: Memory that a model needs, in sizes of its file: weights, keys and values, and buffers.
_NEEDS = 1.5

#: Fields of the objects that clients keep on a server.
_CONVERSATION: dict[str, Any] = {"metadata": {}, "items": [], "documents": []}
_VECTOR_STORE: dict[str, Any] = {"name": "", "description": "", "metadata": {}, "files": [], "batches": []}


class LoadableModel(NamedTuple):
    """A model that may be loaded: its library, which knows its file, and the function that opens a server on it."""

    library: Library
    open: Callable[[Turns], Server]

    @property
    def path(self) -> Path:
        """Return the model's file."""
        return Path(self.library.model_path)


@dataclass
class _Loaded:
    """A loaded model, how many requests use it, and when it was last asked for."""

    server: Server
    n_uses: int = 0
    used: float = field(default_factory=time.monotonic)


def names_of(paths: Sequence[Path]) -> dict[str, Path]:
    """Return files of models by name: the file's, after the folders that make it unique."""
    files = list(dict.fromkeys(paths))

    def end(path: Path, n_parts: int) -> str:
        return "/".join(path.with_suffix("").parts[-n_parts:])

    names = {}
    for path in files:
        others = [other for other in files if other != path]
        lengths = range(1, len(path.parts))
        unique = (n for n in lengths if all(end(path, n).lower() != end(other, n).lower() for other in others))
        names[end(path, n) if (n := next(unique, 0)) else str(path)] = path
    return names


class ServerPool:
    """The models that a server may load, by name, and those that are loaded.

    Parameters
    ----------
    choices : mapping of str to LoadableModel
        The models by name. The first one answers requests that name none of them.

    Attributes
    ----------
    responses : KeptResponses
        Responses of all models.
    stopping : Event
        Set when no more requests are accepted.
    """

    def __init__(self, choices: Mapping[str, LoadableModel]) -> None:
        self.choices = dict(choices)
        self.responses = KeptResponses()
        self._turns = Turns(len(choices) > 1)
        self._loaded: dict[str, _Loaded] = {}
        self._one_at_a_time = asyncio.Lock()
        self.stopping = asyncio.Event()
        self._loading: threading.Thread | None = None
        self._opening: asyncio.Future[Server] | None = None

    @classmethod
    def of(cls, server: Server) -> ServerPool:
        """Return the pool of one model, which is loaded."""
        name = server.engine.name
        pool = cls({name: LoadableModel(server.library, lambda turns: server)})
        pool._loaded[name] = _Loaded(server)
        return pool

    @cached_property
    def conversations(self) -> KeptObjects:
        """Return the conversations that clients made, with any model."""
        return KeptObjects(self._folders, "conversations", "conversation", "conv", _CONVERSATION)

    @cached_property
    def vector_stores(self) -> KeptObjects:
        """Return the sets of documents that clients made, for any model."""
        return KeptObjects(self._folders, "vector_stores", "vector store", "vs", _VECTOR_STORE)

    @property
    def _folders(self) -> list[Path]:
        return list(dict.fromkeys(choice.library.folder for choice in self.choices.values()))

    @property
    def loaded(self) -> list[Server]:
        """Return the servers of the loaded models."""
        return [loaded.server for loaded in self._loaded.values()]

    def name_of(self, asked: str | None) -> str:
        """Return the name of the model that a request means.

        A name that is not known means the first model. Without one, a loaded model is meant: the last that was used.
        """
        if asked is None and self._loaded:
            return max(self._loaded, key=lambda name: (self._loaded[name].n_uses, self._loaded[name].used))
        return self.known(asked or "") or self.first

    def known(self, asked: str) -> str | None:
        """Return the name of the model with a name, whatever its case and tag, or with its last part; None without."""
        wanted = (asked.lower(), asked.lower().partition(":")[0])
        whole = [name for name in self.choices if name.lower() in wanted]
        in_part = [name for name in self.choices if name.lower().rpartition("/")[2] in wanted]
        return next(iter([*whole, *in_part]), None)

    async def holding(self, document_id: str) -> list[str]:
        """Return the loaded models that know a document, the last that was used first."""
        newest = sorted(self._loaded.items(), key=lambda named: -named[1].used)
        return [name for name, loaded in newest if (await loaded.server.documents.look()).knows(document_id)]

    def server(self, name: str) -> Server:
        """Return the server of a loaded model."""
        return self._loaded[name].server

    @property
    def unloaded(self) -> list[LoadableModel]:
        """Return the models that are not loaded."""
        return [choice for name, choice in self.choices.items() if name not in self._loaded]

    @property
    def first(self) -> str:
        """Return the name of the first model."""
        return next(iter(self.choices))

    def load_first(self) -> None:
        """Load the first model, before the server answers."""
        self._hold(self.first, self.choices[self.first].open(self._turns))

    @asynccontextmanager
    async def use(self, asked: str | None) -> AsyncIterator[Server]:
        """Hold the model that a request asks for, as long as it needs it; load it before, if that is needed.

        Raises
        ------
        RequestError
            The server is stopping.
        OctavoError
            The model cannot be loaded.
        """
        name = self.name_of(asked)
        if name in self._loaded:
            loaded = self._loaded[name]
            loaded.n_uses += 1
        else:
            async with self._one_at_a_time:
                loaded = self._loaded.get(name) or await self._load(name)
                loaded.n_uses += 1
        try:
            yield loaded.server
        finally:
            loaded.n_uses -= 1
            loaded.used = time.monotonic()

    async def _load(self, name: str) -> _Loaded:
        """Load a model, after those are put away that leave it no room, the longest unused first."""
        if self.stopping.is_set():
            raise RequestError("The server is stopping.", 503)
        choice = self.choices[name]
        try:
            needed = int(_NEEDS * choice.path.stat().st_size)
        except OSError as problem:
            raise OctavoError(f"{choice.path} cannot be read: {problem.strerror}.") from problem
        while free_memory().n_bytes < needed and (idle := self._idle()):
            await self._put_away(idle)
        server = await self._opened(choice)
        server.documents.resume()
        return self._hold(name, server)

    async def _opened(self, choice: LoadableModel) -> Server:
        """Load a model in a thread of its own: a process that stops does not wait for it.

        A server whose request was given up is closed.
        """
        loop = asyncio.get_running_loop()
        self._opening = opening = loop.create_future()

        def deliver(server: Server | None, problem: Exception | None) -> None:
            if opening.done():
                if server is not None:
                    threading.Thread(target=server.close).start()
            elif problem is not None:
                opening.set_exception(problem)
            else:
                opening.set_result(server)

        def load() -> None:
            server, problem = None, None
            try:
                server = choice.open(self._turns)
            except Exception as raised:
                problem = raised
            try:
                loop.call_soon_threadsafe(deliver, server, problem)
            except RuntimeError:  # the loop is closed
                if server is not None:
                    server.close()

        self._loading = threading.Thread(target=load, name="octavo-loads", daemon=True)
        self._loading.start()
        opened: Server = await opening
        return opened

    @property
    def is_loading(self) -> bool:
        """Return whether a model is being loaded."""
        return self._loading is not None and self._loading.is_alive()

    def _hold(self, name: str, server: Server) -> _Loaded:
        """Hold a loaded model, which learns of the libraries of the others."""
        server.documents.others = [choice.library for other, choice in self.choices.items() if other != name]
        self._loaded[name] = _Loaded(server)
        return self._loaded[name]

    def _idle(self) -> str | None:
        """Return the idle model that was unused for longest."""
        idle = [(each.used, name) for name, each in self._loaded.items() if not each.n_uses and not each.server.is_busy]
        return min(idle)[1] if idle else None

    async def _put_away(self, name: str) -> None:
        """Free a model. Its documents and conversations are on disk."""
        loaded = self._loaded.pop(name)
        await loaded.server.documents.close()
        await asyncio.to_thread(loaded.server.close)

    def stop(self) -> None:
        """Fail all running requests, and accept no more."""
        self.stopping.set()
        if self._opening is not None and not self._opening.done():
            self._opening.set_exception(RequestError("The server is stopping.", 503))
        for server in self.loaded:
            server.engine.stop()

    async def close(self) -> None:
        """Free all models."""
        self.stopping.set()
        for name in list(self._loaded):
            await self._put_away(name)


def pool_of(request: Request) -> ServerPool:
    """Return the models of the server that a request came to."""
    pool: ServerPool = request.app.state.pool
    return pool
