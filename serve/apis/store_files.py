"""The files of a vector store: documents of the server, with attributes that clients gave them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request

from ..kept_objects import KeptObjects
from ..library.known_documents import KnownDocuments
from ..library.upload_folder import uploads_of
from ..request_error import RequestError
from ..server_pool import ServerPool, pool_of
from ..services import Server

#: States of a file in a vector store, by the state of its document.
_STATES = {"processed": "completed", "processing": "in_progress", "error": "failed"}

#: Comparisons of an attribute with a filter's value.
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": lambda one, other: one > other,
    "gte": lambda one, other: one >= other,
    "lt": lambda one, other: one < other,
    "lte": lambda one, other: one <= other,
}

#: Most filters within one another.
_DEEPEST = 32


class StoreFile(NamedTuple):
    """A file of a vector store, and the document that it is.

    Parameters
    ----------
    entry : dict
        Its id, the time when it was added, and its attributes.
    document : dict
        The document, as /v1/files describes it.
    """

    entry: dict[str, Any]
    document: dict[str, Any]

    @property
    def state(self) -> str:
        """Return its state in OpenAI's words."""
        return _STATES[self.document["status"]]

    @property
    def problem(self) -> str:
        """Return why it cannot be read; "" if it can."""
        return (self.document["status_details"] or "It could not be read.") if self.state == "failed" else ""

    @property
    def n_bytes(self) -> int:
        """Return what its index takes, in bytes; 0 until it has one."""
        return int(self.document["index_bytes"] or 0)

    def as_json(self, store: Mapping[str, Any]) -> dict[str, Any]:
        """Return it in OpenAI's form."""
        return {
            "id": self.entry["id"],
            "object": "vector_store.file",
            "created_at": self.entry["created_at"],
            "vector_store_id": store["id"],
            "status": self.state,
            "last_error": {"code": "invalid_file", "message": self.problem} if self.problem else None,
            "usage_bytes": self.n_bytes,
            "attributes": self.entry["attributes"],
            "chunking_strategy": {"type": "other"},
        }


class KnownFiles:
    """The documents of all models of a server, by their ids and by the ids of their copies.

    Parameters
    ----------
    looks : sequence of KnownDocuments
        The documents that the loaded models know.
    files : mapping of str to dict
        Their descriptions, by id.
    others : mapping of str to str
        The names of uploads for the models that are not loaded, by id.
    """

    def __init__(
        self,
        pool: ServerPool,
        looks: Sequence[KnownDocuments],
        files: Mapping[str, dict[str, Any]],
        others: Mapping[str, str],
    ) -> None:
        self._loaded, self._looks, self._files, self._others = list(pool.loaded), looks, files, others

    @classmethod
    async def of(cls, request: Request) -> KnownFiles:
        """Return the documents that there are now."""
        pool = pool_of(request)
        folders = [uploads_of(choice.library) for choice in pool.unloaded]
        others = await asyncio.to_thread(
            lambda: {file.parent.name: file.name for folder in folders for file in folder.glob("*/[!.]*")}
        )
        looks = await looks_of(pool.loaded)
        return cls(pool, looks, await files_in(looks), others)

    def find(self, file_id: str) -> dict[str, Any] | None:
        """Return a document; None if there is none."""
        for server in self._loaded:
            if (file := self._files.get(server.documents.ids_of(file_id)[0])) is not None:
                return file
        if file_id not in self._others:
            return None
        others = {"status": "processed", "status_details": None, "index_bytes": None}
        return {"id": file_id, "filename": self._others[file_id], **others}

    def in_store(self, store: Mapping[str, Any]) -> list[StoreFile]:
        """Return the files of a vector store, the first that was added first; those that are gone have failed."""
        return [StoreFile(entry, self.find(entry["id"]) or self._lost(entry["id"])) for entry in store["files"]]

    def _lost(self, file_id: str) -> dict[str, Any]:
        """Describe a document that has changed, or is gone, and its id with it."""
        older = next((each for known in self._looks for each in known.versions if each.id == file_id), None)
        why = "The file is not there any more: add it to the vector store again."
        if older is not None:
            why = "The file has changed, and was indexed again: add its new id to the vector store."
        name = file_id if older is None else older.file_name
        return {"id": file_id, "filename": name, "status": "error", "status_details": why, "index_bytes": None}


async def looks_of(servers: Sequence[Server]) -> list[KnownDocuments]:
    """Return what documents servers have now."""
    return [await server.documents.look() for server in servers]


async def files_in(looks: Sequence[KnownDocuments]) -> dict[str, dict[str, Any]]:
    """Return the documents of servers by id: of one that several know, as it is where it is read."""
    files: dict[str, dict[str, Any]] = {}
    for known in looks:
        for file in await asyncio.to_thread(known.files):
            if file["id"] not in files or file["status"] == "processed":
                files[file["id"]] = file
    return files


def add_file(store: dict[str, Any], file_id: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Add a file to a vector store, or change its attributes if it is there; return its entry."""
    for entry in store["files"]:
        if entry["id"] == file_id:
            entry["attributes"] = attributes
            return entry  # type: ignore[no-any-return]
    entry = {"id": file_id, "created_at": int(time.time()), "attributes": attributes}
    store["files"].append(entry)
    return entry


def drop_files(store: dict[str, Any], file_ids: Collection[str]) -> None:
    """Remove files from a vector store."""
    store["files"] = [entry for entry in store["files"] if entry["id"] not in file_ids]


def forget_files(stores: KeptObjects, file_ids: Collection[str]) -> None:
    """Remove files from all vector stores."""
    for store in stores.all():
        if any(entry["id"] in file_ids for entry in store["files"]):
            stores.change(store["id"], lambda changed: drop_files(changed, file_ids))


def counts_of(files: Sequence[StoreFile], n_cancelled: int = 0) -> dict[str, int]:
    """Return how many files have each state."""
    states = [file.state for file in files]
    counts = {name: states.count(name) for name in ("in_progress", "completed", "failed")}
    return {**counts, "cancelled": n_cancelled, "total": len(states) + n_cancelled}


def fits(attributes: Mapping[str, Any], filters: Mapping[str, Any] | None, depth: int = 0) -> bool:
    """Return whether a file's attributes fit filters in OpenAI's form. Raise RequestError for another form."""
    if filters is None:
        return True
    kind, others = str(filters.get("type")), filters.get("filters")
    if kind in ("and", "or"):
        is_right = isinstance(others, list) and others and all(isinstance(each, dict) for each in others)
        if not is_right or depth == _DEEPEST:
            raise RequestError(f"filters: {kind} joins a list of filters, at most {_DEEPEST} deep.", param="filters")
        fitting = [fits(attributes, each, depth + 1) for each in others or ()]
        return all(fitting) if kind == "and" else any(fitting)
    key, value = filters.get("key"), filters.get("value")
    if not isinstance(key, str) or isinstance(value, list) != (kind in ("in", "nin")) or isinstance(value, dict):
        raise RequestError("filters: a comparison has a key and a value, or a list of values.", param="filters")
    if kind in ("eq", "ne", "in", "nin"):
        values = value if isinstance(value, list) else [value]
        is_equal = key in attributes and any(_is_same(attributes[key], each) for each in values)
        return is_equal == (kind in ("eq", "in"))
    if kind not in _ORDERS:
        raise RequestError("filters: type is eq, ne, gt, gte, lt, lte, in, nin, and, or or.", param="filters")
    stated = attributes.get(key)
    return _is_comparable(stated, value) and _ORDERS[kind](stated, value)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _is_comparable(one: Any, other: Any) -> bool:
    def is_number(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    return (is_number(one) and is_number(other)) or (isinstance(one, str) and isinstance(other, str))
