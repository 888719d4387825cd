"""Describe documents for clients, as OpenAI's API describes files, with octavo's extensions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from ...library.background.reading_queue import QueuedDocument
from ...library.source_text import CHANGED, GONE
from ..request_error import without_folders
from .served_document import ServedDocument

#: Sentences about what became of a file.
_STATES = {
    CHANGED: "The file has changed since it was indexed: `octavo index` indexes it again.",
    GONE: "The file is gone, or cannot be reached: answers come from the text that was indexed.",
}


def document_as_json(parts: Sequence[ServedDocument], folders: Sequence[str], is_upload: bool) -> dict[str, Any]:
    """Describe an indexed document: clients see its parts as one file. Those of an upload were all read."""
    first = parts[0]
    created = max(int(datetime.fromisoformat(part.manifest["created"]).timestamp()) for part in parts)
    file = _file(first.id, first.file_name, first.described.get("bytes", 0), created, "processed", folders)
    details = []
    if first.state in _STATES:
        details.append(_STATES[first.state])
    if len(parts) < first.n_parts and not is_upload:
        details.append(f"{len(parts)} of {first.n_parts} parts are read: `octavo index` reads the others.")
    file["status_details"] = " ".join(details) or None
    n_bytes = sum(stored["size"] for part in parts for stored in part.manifest["files"].values())
    n_tokens = sum(part.described["tokens"] for part in parts)
    notices = [sentence for part in parts for sentence in part.described.get("notices", ())]
    used = max(created, *(int(part.used) for part in parts))
    return {**file, "tokens": n_tokens, "index_bytes": n_bytes, "notices": notices, "last_used_at": used}


def upload_as_json(
    document_id: str, upload: QueuedDocument, folders: Sequence[str], notices: Sequence[str]
) -> dict[str, Any]:
    """Describe a document that is being read, or could not be."""
    n_bytes, created = 0, upload.asked
    with suppress(OSError):  # the file of one that could not be read is removed
        file = upload.file.stat()
        n_bytes, created = file.st_size, file.st_mtime
    status = "error" if upload.problem else "processing"
    described = _file(document_id, upload.name, n_bytes, int(created), status, folders)
    n_tokens = upload.total if upload.total and upload.unit == "tokens" else None
    shown = progress_as_json(upload) if upload.total and not upload.problem else None
    return {
        **described,
        "status_details": without_folders(upload.problem) or None,
        "tokens": n_tokens,
        "progress": shown,
        "notices": list(notices),
    }


def progress_as_json(upload: QueuedDocument) -> dict[str, Any]:
    """Describe how far the reading of an upload is: "Reading" the document, or "Reading part 1 of 3"."""
    verb, _, name = upload.task.partition(" ")
    _, _, part = name.partition(f"{upload.name}, part ")
    left = None if upload.waits_for or upload.seconds_left is None else round(upload.seconds_left, 1)
    counts = {"unit": upload.unit, "total": upload.total, "done": upload.done, "seconds_left": left}
    return {"task": f"{verb} part {part}" if part else verb, **counts, "waits_for": upload.waits_for or None}


def _file(
    document_id: str, name: str, n_bytes: int, created: int, status: str, folders: Sequence[str]
) -> dict[str, Any]:
    """Return a file in OpenAI's form, with octavo's extensions."""
    file = {"id": document_id, "object": "file", "filename": name, "bytes": n_bytes, "created_at": created}
    file |= {"purpose": "user_data", "status": status, "status_details": None}
    unknown = dict.fromkeys(("tokens", "index_bytes", "progress"))
    return {**file, "folders": list(folders), **unknown, "notices": [], "last_used_at": created}
