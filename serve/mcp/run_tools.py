"""Serve the tools over standard input and output, or over HTTP, until the client is gone or the process must stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import OctavoError
from ...runtime.models.find_model import find_model
from ...runtime.store.model_library import Library
from ...settings import ModelSettings, ReadSettings, Sampling
from .document_answers import DocumentAnswers
from .named_documents import NamedDocuments
from .tool_texts import ToolTexts

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from starlette.types import ASGIApp

    from ...runtime.methods.attention import Attention
    from ..http.access import Access
    from ..request_error import RequestError


def serve_tools(
    paths: Sequence[Path],
    settings: ModelSettings,
    attention: Attention,
    sampling: Sampling,
    reading: ReadSettings,
    access: Access | None,
    notice: Callable[[str], None],
) -> None:
    """Serve tools over the documents of files and folders.

    Parameters
    ----------
    access : Access, optional
        Where to listen for HTTP, and who may ask; None for standard input and output.
    notice : callable
        Receives the address, and what a user should know before.

    Raises
    ------
    OctavoError
        The SDK is missing, a path or the model does not exist, or the address is not available.
    """
    try:
        from .tool_server import Calls, tool_server
    except ImportError as problem:
        raise OctavoError('The tools need the MCP SDK, version 2: pip install "octavo[mcp]".') from problem
    named = NamedDocuments(paths)
    model = find_model(settings.model, notice)
    if not model.exists():
        raise OctavoError(f"There is no model {model}: name a GGUF file with -m.")
    library = Library.of(model, settings.index_dir)
    answers = DocumentAnswers(replace(settings, model=model), library, attention, sampling, reading)
    calls = Calls(named, ToolTexts(library, reading.extraction), answers)
    try:
        server = tool_server(calls)
        if access is None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the thread that waits for input would not hear of it
            server.run("stdio")
        else:
            _serve_http(server, access, notice)
    finally:
        calls.close()


def _serve_http(server: MCPServer, access: Access, notice: Callable[[str], None]) -> None:
    """Serve the tools over HTTP, guarded as the other APIs are."""
    from mcp.server.transport_security import TransportSecuritySettings

    from ..http.listening import answer, listen
    from ..http.security import guards

    unguarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the guard knows --allow-host
    app = server.streamable_http_app(transport_security=unguarded)
    stopping = asyncio.Event()
    for guard in reversed(guards(access, _refusal, stopping, ["mcp-session-id"])):
        app.add_middleware(guard.cls, *guard.args, **guard.kwargs)
    with listen(access.host, access.port) as listening:
        answer(
            app,
            listening,
            lambda address: notice(f"Serving tools at {address}/mcp: Ctrl-C stops them."),
            stopping.set,
        )


def _refusal(path: str, problem: RequestError) -> ASGIApp:
    """Return the response that refuses a request, in the form of the protocol."""
    from starlette.responses import JSONResponse

    error = {"code": -32000, "message": str(problem)}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, problem.status)
