"""OpenAI's files: documents that the model reads once."""

from __future__ import annotations

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ..http.api_error import RequestError
from ..http.server import server_of


async def upload(request: Request) -> Response:
    """Answer POST /v1/files: the document is read in the background."""
    documents = server_of(request).documents
    try:
        form = await request.form(max_files=1, max_fields=8)
    except (HTTPException, MultiPartException, ClientDisconnect) as problem:
        raise RequestError(
            f"The upload is not a whole form: {getattr(problem, 'detail', '') or 'it ended early'}."
        ) from None
    async with request.form(max_files=1, max_fields=8):
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise RequestError("The form has no file.", param="file")
        data = await file.read()
        if not data:
            raise RequestError(f"{file.filename or 'The file'} is empty.", param="file")
        document_id = await documents.add_bytes(file.filename or "document.txt", data)
    return JSONResponse(documents.describe(document_id))


async def list_files(request: Request) -> Response:
    """Answer GET /v1/files."""
    return JSONResponse({"object": "list", "data": server_of(request).documents.list(), "has_more": False})


async def describe(request: Request) -> Response:
    """Answer GET /v1/files/ID."""
    return JSONResponse(server_of(request).documents.describe(request.path_params["id"]))


async def content(request: Request) -> Response:
    """Answer GET /v1/files/ID/content: the document's text, as the model reads it."""
    return PlainTextResponse(await server_of(request).finder.text(request.path_params["id"]))


async def remove(request: Request) -> Response:
    """Answer DELETE /v1/files/ID: end its reading, or remove its index."""
    document_id = request.path_params["id"]
    await server_of(request).documents.remove(document_id)
    return JSONResponse({"id": document_id, "object": "file", "deleted": True})


routes = [
    Route("/v1/files", upload, methods=["POST"]),
    Route("/v1/files", list_files, methods=["GET"]),
    Route("/v1/files/{id}", describe, methods=["GET"]),
    Route("/v1/files/{id}/content", content, methods=["GET"]),
    Route("/v1/files/{id}", remove, methods=["DELETE"]),
]
