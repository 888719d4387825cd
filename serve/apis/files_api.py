"""OpenAI's files: documents that the model reads once."""

from __future__ import annotations

import asyncio
import base64

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ...library.document_work import DrawPages
from ...workers.work import name_of
from ...workers.worker_process import Died
from ..http.requests import while_connected
from ..library.upload_folder import forget_upload
from ..request_error import RequestError, without_folders
from ..server_pool import pool_of
from ..services import server_of
from .paging import page_of
from .store_files import files_in, forget_files, looks_of

#: Purposes of OpenAI's API that every file serves, and the most files on a page of their list.
_PURPOSES, _MOST_FILES = ("user_data", "assistants"), 10_000


async def upload(request: Request) -> Response:
    """Answer POST /v1/files: the document is read in the background. `folder` names the client's folder of the file."""
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
        folder = form.get("folder")
        name = (file.filename or "document.txt").replace("%22", '"')  # as browsers write it in a form
        document_id = await documents.add_bytes(name, data, folder if isinstance(folder, str) else "")
    return JSONResponse((await documents.look()).describe(document_id))


async def list_files(request: Request) -> Response:
    """Answer GET /v1/files: those of the model that is named, or of all that are loaded, each once."""
    servers = [server_of(request)] if "model" in request.query_params else pool_of(request).loaded
    newest = sorted((await files_in(await looks_of(servers))).values(), key=lambda file: -file["created_at"])
    is_wanted = request.query_params.get("purpose", "user_data") in _PURPOSES
    return JSONResponse(page_of(request, newest[::-1] if is_wanted else [], default=_MOST_FILES, most=_MOST_FILES))


async def describe(request: Request) -> Response:
    """Answer GET /v1/files/ID."""
    known = await server_of(request).documents.look()
    return JSONResponse(known.describe(request.path_params["id"]))


async def content(request: Request) -> Response:
    """Answer GET /v1/files/ID/content: the document's text, as the model reads it.

    The header x-octavo-notice says if the file has changed or is gone.
    """
    server, reference = server_of(request), request.path_params["id"]
    text = await while_connected(request, server.finder.text(reference))
    known = await server.documents.look()
    [ids] = known.ids([reference])
    details = known.describe(ids[0])["status_details"] if ids else None
    return PlainTextResponse(text, headers={"x-octavo-notice": details} if details else None)


async def page(request: Request) -> Response:
    """Answer GET /v1/files/ID/pages/LABEL: a PDF's page as a picture, with the passage `quote` marked.

    The header x-octavo-top has where it begins, as a share of the page's height.
    """
    known = await server_of(request).documents.look()
    file, content = known.file_of(request.path_params["id"])
    asked = {"path": str(file), "content": content, "page": request.path_params["label"]}
    asked["quote"] = request.query_params.get("quote", "")
    try:
        result = await while_connected(request, server_of(request).pictures.do(name_of(DrawPages), asked))
    except Died as problem:
        result = {"error": f"Drawing it ended with {problem}."}
    if "error" in result:
        raise RequestError(without_folders(result["error"]), 404, "not_found")
    drawn = result["result"]
    headers = {} if drawn["top"] is None else {"x-octavo-top": f"{drawn['top']:.4f}"}
    return Response(base64.b64decode(drawn["png"]), media_type="image/png", headers=headers)


async def remove(request: Request) -> Response:
    """Answer DELETE /v1/files/ID: end its reading, or remove its index, for the named model or for all."""
    document_id, pool = request.path_params["id"], pool_of(request)
    ids = {each for server in pool.loaded for each in server.documents.ids_of(document_id)}
    if "model" in request.query_params:
        await server_of(request).documents.remove(document_id)
    else:
        for server in [pool.server(name) for name in await pool.holding(document_id)] or [server_of(request)]:
            await server.documents.remove(document_id)
        await asyncio.to_thread(forget_upload, [choice.library for choice in pool.unloaded], document_id)
    await asyncio.to_thread(forget_files, pool.vector_stores, ids)
    return JSONResponse({"id": document_id, "object": "file", "deleted": True})


routes = [
    Route("/v1/files", upload, methods=["POST"]),
    Route("/v1/files", list_files, methods=["GET"]),
    Route("/v1/files/{id}", describe, methods=["GET"]),
    Route("/v1/files/{id}/content", content, methods=["GET"]),
    Route("/v1/files/{id}/pages/{label:path}", page, methods=["GET"]),
    Route("/v1/files/{id}", remove, methods=["DELETE"]),
]
