"""OpenAI's vector stores: sets of documents that `file_search` answers from."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..http.requests import parsed, while_connected
from ..request_error import RequestError
from ..server_pool import pool_of
from ..services import server_of
from .api_body import ApiBody, ApiObject
from .file_search import SearchSettings, search_as_json, searched
from .paging import page_of
from .store_files import KnownFiles, StoreFile, add_file, counts_of, drop_files

_Result = TypeVar("_Result")

#: Attributes of a file in a vector store.
Attributes = dict[str, bool | int | float | str]


class StoreBody(ApiBody):
    """A new vector store, or changes of one."""

    name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    file_ids: list[str] = Field(default_factory=list)

    @property
    def stated(self) -> dict[str, Any]:
        """Return the facts about the store that the request states."""
        values = {"name": self.name, "description": self.description, "metadata": self.metadata}
        return {name: value for name, value in values.items() if value is not None}


class AddedFile(ApiObject):
    """A file that is added to a vector store."""

    file_id: str
    attributes: Attributes = Field(default_factory=dict)


class FileBody(ApiBody, AddedFile):
    """A request to add a file."""


class AttributesBody(ApiBody):
    """New attributes of a file."""

    attributes: Attributes = Field(default_factory=dict)


class BatchBody(ApiBody):
    """Files that are added together: ids, or files with attributes of their own."""

    file_ids: list[str] = Field(default_factory=list)
    files: list[AddedFile] = Field(default_factory=list)
    attributes: Attributes = Field(default_factory=dict)


class SearchBody(ApiBody, SearchSettings):
    """A search in a vector store."""

    query: Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


async def create(request: Request) -> Response:
    """Answer POST /v1/vector_stores."""
    body, known = await parsed(request, StoreBody), await KnownFiles.of(request)
    store: dict[str, Any] = {**body.stated, "files": []}
    for file_id in _known_ids(known, body.file_ids):
        add_file(store, file_id, {})
    made = await asyncio.to_thread(lambda: pool_of(request).vector_stores.add(**store))
    return JSONResponse(_described(made, known))


async def list_stores(request: Request) -> Response:
    """Answer GET /v1/vector_stores."""
    stores, known = await asyncio.to_thread(pool_of(request).vector_stores.all), await KnownFiles.of(request)
    return JSONResponse(page_of(request, [_described(store, known) for store in stores]))


async def retrieve(request: Request) -> Response:
    """Answer GET /v1/vector_stores/ID."""
    return JSONResponse(_described(await _store(request), await KnownFiles.of(request)))


async def update(request: Request) -> Response:
    """Answer POST /v1/vector_stores/ID."""
    body = await parsed(request, StoreBody)

    def change(store: dict[str, Any]) -> dict[str, Any]:
        store |= body.stated
        return store

    return JSONResponse(_described(await _changed(request, change), await KnownFiles.of(request)))


async def remove(request: Request) -> Response:
    """Answer DELETE /v1/vector_stores/ID: its files stay."""
    store_id = request.path_params["id"]
    await asyncio.to_thread(pool_of(request).vector_stores.remove, store_id)
    return JSONResponse({"id": store_id, "object": "vector_store.deleted", "deleted": True})


async def search(request: Request) -> Response:
    """Answer POST /v1/vector_stores/ID/search."""
    body, store = await parsed(request, SearchBody), await _store(request)
    files, notices = body.chosen((await KnownFiles.of(request)).in_store(store))
    found = await while_connected(request, searched(server_of(request), files, "\n".join(body.query), body))
    data = [search_as_json(*each, in_parts=True) for each in found]
    page = {"object": "vector_store.search_results.page", "search_query": body.query, "data": data}
    return JSONResponse({**page, "has_more": False, "next_page": None, "notices": notices})


async def add(request: Request) -> Response:
    """Answer POST /v1/vector_stores/ID/files."""
    body, known = await parsed(request, FileBody), await KnownFiles.of(request)
    _known_ids(known, [body.file_id])
    store = await _changed(request, lambda store: _with_file(store, body.file_id, body.attributes))
    return JSONResponse(_file_in(store, body.file_id, known).as_json(store))


async def list_files(request: Request) -> Response:
    """Answer GET /v1/vector_stores/ID/files."""
    store = await _store(request)
    return _page_of_files(request, store, (await KnownFiles.of(request)).in_store(store))


async def describe(request: Request) -> Response:
    """Answer GET /v1/vector_stores/ID/files/FILE."""
    store = await _store(request)
    return JSONResponse(_file_in(store, request.path_params["file"], await KnownFiles.of(request)).as_json(store))


async def set_attributes(request: Request) -> Response:
    """Answer POST /v1/vector_stores/ID/files/FILE."""
    body, known, name = await parsed(request, AttributesBody), await KnownFiles.of(request), request.path_params["file"]
    _file_in(await _store(request), name, known)
    store = await _changed(request, lambda store: _with_file(store, name, body.attributes))
    return JSONResponse(_file_in(store, name, known).as_json(store))


async def drop(request: Request) -> Response:
    """Answer DELETE /v1/vector_stores/ID/files/FILE: the file itself stays."""
    name = request.path_params["file"]
    _file_in(await _store(request), name, await KnownFiles.of(request))
    await _changed(request, lambda store: drop_files(store, [name]))
    return JSONResponse({"id": name, "object": "vector_store.file.deleted", "deleted": True})


async def content(request: Request) -> Response:
    """Answer GET /v1/vector_stores/ID/files/FILE/content."""
    file = _file_in(await _store(request), request.path_params["file"], await KnownFiles.of(request))
    text = await while_connected(request, server_of(request).finder.text(file.document["id"]))
    page = {"object": "vector_store.file_content.page", "data": [{"type": "text", "text": text}]}
    details = {"status_details": file.document["status_details"]}
    return JSONResponse({**page, "has_more": False, "next_page": None, **details})


async def add_batch(request: Request) -> Response:
    """Answer POST /v1/vector_stores/ID/file_batches."""
    body, known = await parsed(request, BatchBody), await KnownFiles.of(request)
    added = dict.fromkeys(body.file_ids, body.attributes)
    added |= {file.file_id: file.attributes for file in body.files}
    if not added:
        raise RequestError("A batch has files: name them in file_ids or in files.", param="file_ids")
    _known_ids(known, added)
    batch = {"id": f"vsfb_{uuid.uuid4().hex}", "created_at": int(time.time()), "file_ids": list(added)}

    def change(store: dict[str, Any]) -> dict[str, Any]:
        for file_id, attributes in added.items():
            add_file(store, file_id, attributes)
        store["batches"].append(batch)
        return store

    return JSONResponse(_batch_as_json(await _changed(request, change), batch, known))


async def describe_batch(request: Request) -> Response:
    """Answer GET /v1/vector_stores/ID/file_batches/BATCH."""
    store = await _store(request)
    return JSONResponse(_batch_as_json(store, _batch_in(store, request), await KnownFiles.of(request)))


async def list_batch(request: Request) -> Response:
    """Answer GET /v1/vector_stores/ID/file_batches/BATCH/files."""
    store = await _store(request)
    batch, files = _batch_in(store, request), (await KnownFiles.of(request)).in_store(store)
    return _page_of_files(request, store, [file for file in files if file.entry["id"] in batch["file_ids"]])


async def cancel_batch(request: Request) -> Response:
    """Answer POST /v1/vector_stores/ID/file_batches/BATCH/cancel: its files that are not read leave the store."""
    known = await KnownFiles.of(request)

    def change(store: dict[str, Any]) -> dict[str, Any]:
        batch = _batch_in(store, request)
        unread = [file.entry["id"] for file in known.in_store(store) if file.state == "in_progress"]
        dropped = set(unread) & set(batch["file_ids"])
        drop_files(store, dropped)
        batch["is_cancelled"] = batch.get("is_cancelled", False) or bool(dropped)
        return store

    store = await _changed(request, change)
    return JSONResponse(_batch_as_json(store, _batch_in(store, request), known))


async def _store(request: Request) -> dict[str, Any]:
    return await asyncio.to_thread(pool_of(request).vector_stores.get, request.path_params["id"])


async def _changed(request: Request, change: Callable[[dict[str, Any]], _Result]) -> _Result:
    return await asyncio.to_thread(pool_of(request).vector_stores.change, request.path_params["id"], change)


def _with_file(store: dict[str, Any], file_id: str, attributes: dict[str, Any]) -> dict[str, Any]:
    add_file(store, file_id, attributes)
    return store


def _known_ids(known: KnownFiles, file_ids: Any) -> list[str]:
    """Return ids of files. Raise RequestError if there is none of one of them."""
    for file_id in file_ids:
        if known.find(file_id) is None:
            raise RequestError(f"There is no file {file_id}: upload it to /v1/files first.", 404, "not_found")
    return list(file_ids)


def _file_in(store: dict[str, Any], file_id: str, known: KnownFiles) -> StoreFile:
    for file in known.in_store(store):
        if file.entry["id"] == file_id:
            return file
    raise RequestError(f"There is no file {file_id} in {store['id']}.", 404, "not_found")


def _batch_in(store: dict[str, Any], request: Request) -> dict[str, Any]:
    for batch in store["batches"]:
        if batch["id"] == request.path_params["batch"]:
            return batch  # type: ignore[no-any-return]
    raise RequestError(f"There is no batch {request.path_params['batch']} in {store['id']}.", 404, "not_found")


def _page_of_files(request: Request, store: dict[str, Any], files: list[StoreFile]) -> Response:
    wanted = request.query_params.get("filter")
    listed = [file.as_json(store) for file in files if wanted in (None, file.state)]
    return JSONResponse(page_of(request, listed))


def _described(store: dict[str, Any], known: KnownFiles) -> dict[str, Any]:
    """Return a vector store in OpenAI's form."""
    files = known.in_store(store)
    counts = counts_of(files)
    return {
        "id": store["id"],
        "object": "vector_store",
        "created_at": store["created_at"],
        "name": store["name"],
        "description": store["description"],
        "metadata": store["metadata"],
        "usage_bytes": sum(file.n_bytes for file in files),
        "file_counts": counts,
        "status": "in_progress" if counts["in_progress"] else "completed",
        "expires_after": None,
        "expires_at": None,
        "last_active_at": store["created_at"],
    }


def _batch_as_json(store: dict[str, Any], batch: dict[str, Any], known: KnownFiles) -> dict[str, Any]:
    files = [file for file in known.in_store(store) if file.entry["id"] in batch["file_ids"]]
    counts = counts_of(files, len(batch["file_ids"]) - len(files))
    state = "in_progress" if counts["in_progress"] else "cancelled" if batch.get("is_cancelled") else "completed"
    known_fields = {"id": batch["id"], "created_at": batch["created_at"], "vector_store_id": store["id"]}
    return {**known_fields, "object": "vector_store.files_batch", "status": state, "file_counts": counts}


_STORE = "/v1/vector_stores/{id}"

routes = [
    Route("/v1/vector_stores", create, methods=["POST"]),
    Route("/v1/vector_stores", list_stores, methods=["GET"]),
    Route(_STORE, retrieve, methods=["GET"]),
    Route(_STORE, update, methods=["POST"]),
    Route(_STORE, remove, methods=["DELETE"]),
    Route(f"{_STORE}/search", search, methods=["POST"]),
    Route(f"{_STORE}/files", add, methods=["POST"]),
    Route(f"{_STORE}/files", list_files, methods=["GET"]),
    Route(f"{_STORE}/files/{{file}}", describe, methods=["GET"]),
    Route(f"{_STORE}/files/{{file}}", set_attributes, methods=["POST"]),
    Route(f"{_STORE}/files/{{file}}", drop, methods=["DELETE"]),
    Route(f"{_STORE}/files/{{file}}/content", content, methods=["GET"]),
    Route(f"{_STORE}/file_batches", add_batch, methods=["POST"]),
    Route(f"{_STORE}/file_batches/{{batch}}", describe_batch, methods=["GET"]),
    Route(f"{_STORE}/file_batches/{{batch}}/files", list_batch, methods=["GET"]),
    Route(f"{_STORE}/file_batches/{{batch}}/cancel", cancel_batch, methods=["POST"]),
]
