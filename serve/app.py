"""Build the application: open a model, and collect the routes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..ask.sources.retrieval_heads import source_heads
from ..convert.identity import RowSource
from ..errors import OctavoError
from ..library.background.computing import Computing
from ..library.reading_job import ReadingJob
from ..runtime.llama import Llama
from ..runtime.store.model_library import Library
from ..settings import Sampling
from ..system.free_memory import free_memory
from ..system.threads import release_threads
from .apis import (
    completions,
    conversations,
    embeddings,
    files_api,
    llama_cpp,
    llama_cpp_server,
    messages,
    model_lists,
    ollama,
    ollama_models,
    openai_chat,
    responses,
    status,
    vector_stores,
)
from .apis.ollama_body import ollama_error
from .engine.engine import Engine
from .engine.prompt_cache import PromptCache
from .engine.sequences import Sequences
from .engine.text_embeddings import TextEmbeddings
from .engine.turns import Turns
from .http import page_route
from .http.access import Access
from .http.requests import IGNORED, openai_error
from .http.security import guards
from .library.document_finder import DocumentFinder
from .library.served_library import ServedLibrary
from .request_error import RequestError, refusal_of
from .request_target import ChosenModel, TolerantPaths
from .server_pool import ServerPool
from .services import Server

#: Modules with routes.
_MODULES = (
    openai_chat,
    completions,
    embeddings,
    responses,
    conversations,
    messages,
    ollama,
    ollama_models,
    llama_cpp,
    llama_cpp_server,
    files_api,
    vector_stores,
    model_lists,
    status,
    page_route,
)

#: Share of the free memory that idle conversations may take.
_IDLE_SHARE = 0.25


@dataclass(frozen=True)
class Limits:
    """Limits of the server's load.

    Parameters
    ----------
    n_parallel : int
        Largest number of running requests.
    n_waiting : int
        Largest number of waiting requests.
    timeout : float
        Seconds after which a request fails.
    kept_bytes : int
        Bytes on disk for long prompts.
    """

    n_parallel: int
    n_waiting: int
    timeout: float
    kept_bytes: int


def open_server(
    llama: Llama,
    library: Library,
    job: ReadingJob,
    limits: Limits,
    sampling: Sampling,
    *,
    name: str,
    notice: Callable[[str], None],
    turns: Turns | None = None,
) -> Server:
    """Start the engine on a model. The caller closes the server.

    Parameters
    ----------
    llama : Llama
        The model, which is empty.
    turns : Turns, optional
        The turns of this engine among several.

    Raises
    ------
    OctavoError
        The disk cannot be written.
    """
    heads = source_heads(llama, library, notice)
    llama.reset()
    prompt_cache = PromptCache(library.folder / "prompts", RowSource.of(llama, library), limits.kept_bytes)
    documents = ServedLibrary(llama, library, job)
    documents.know_all()
    sequences = Sequences(llama, prompt_cache, documents.mapped, int(_IDLE_SHARE * free_memory().n_bytes))
    sequences.warm_up()
    release_threads()  # from now on the engine's thread computes
    attention, most = llama.attention, {"n_running": limits.n_parallel, "n_waiting": limits.n_waiting}
    engine = Engine(llama, name, sequences, heads, **most, timeout=limits.timeout, turns=turns)
    engine.when_busy = Computing().note
    try:
        server = Server(
            engine=engine,
            library=library,
            documents=documents,
            finder=DocumentFinder(engine, documents, library, heads, job.reading),
            embeddings=TextEmbeddings(engine),
            prompt_cache=prompt_cache,
            sampling=sampling,
            attention=attention,
            started=int(time.time()),
        )
        server.grammars.warm_up()
        return server
    except BaseException:  # Ctrl-C, too: the process would wait for the engine's thread
        engine.close()
        raise


def application(pool: ServerPool, access: Access) -> Starlette:
    """Build the application, which frees the models at its end."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        for server in pool.loaded:
            server.documents.resume()
        yield
        await pool.close()

    routes = [route for module in _MODULES for route in module.routes]
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(TolerantPaths, routes=routes),
            *guards(access, refusal, pool.stopping, [IGNORED]),
            Middleware(ChosenModel, pool=pool, refuse=refusal),
        ],
        exception_handlers={OctavoError: _failed, HTTPException: _no_route, Exception: _broken},
        lifespan=lifespan,
    )
    app.state.pool = pool
    return app


def refusal(path: str, problem: RequestError) -> Response:
    """Return the response that refuses a request, in the form of the path's API."""
    forms = {"/v1/messages": messages.anthropic_error, "/api/v0/": openai_error, "/api/": ollama_error}
    as_json = next((form for start, form in forms.items() if path.startswith(start)), openai_error)
    return JSONResponse(as_json(problem), problem.status)


async def _failed(request: Request, problem: Exception) -> Response:
    error = refusal_of(problem)
    if request.url.path.startswith("/v1/models") and model_lists.ANTHROPIC_VERSION in request.headers:
        return JSONResponse(messages.anthropic_error(error), error.status)
    return refusal(request.url.path, error)


async def _no_route(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    path = request.url.path
    message = f"There is no {path}." if problem.status_code == 404 else f"{request.method} is not for {path}."
    return refusal(path, RequestError(message, problem.status_code))


async def _broken(request: Request, problem: Exception) -> Response:
    message = f"The server failed: {type(problem).__name__}. Its log says more."
    return refusal(request.url.path, RequestError(message, 500))
