"""Describe documents for clients, as OpenAI's API describes files, with octavo's extensions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ...library import catalogue
from .served_document import ReadDocument
from .upload import Upload


def document_as_json(parts: Sequence[ReadDocument], folders: Sequence[str], is_upload: bool) -> dict[str, Any]:
    """Describe an indexed document: clients see its parts as one file. Those of an upload were all read."""
    first = parts[0]
    created = max(int(datetime.fromisoformat(part.manifest["created"]).timestamp()) for part in parts)
    file = _file(first.id, first.file, first.described.get("bytes", 0), created, "processed", folders)
    if len(parts) < first.n_parts and not is_upload:
        missing = f"{len(parts)} of {first.n_parts} parts are read: `octavo index` reads the others."
        file["status_details"] = missing
    n_bytes = sum(catalogue.folder_bytes(part.folder) for part in parts)
    return {**file, "tokens": sum(part.described["tokens"] for part in parts), "index_bytes": n_bytes}


def upload_as_json(upload: Upload, folders: Sequence[str]) -> dict[str, Any]:
    """Describe an upload that is being read, or could not be."""
    n_bytes = upload.file.stat().st_size if upload.file.exists() else 0
    status = "error" if upload.problem else "processing"
    file = _file(upload.id, upload.name, n_bytes, int(upload.created), status, folders)
    progress = upload.progress
    n_tokens = progress.total if progress and progress.unit == "tokens" else None
    shown = progress.as_json() if progress and not upload.problem else None
    return {**file, "status_details": upload.problem or None, "tokens": n_tokens, "progress": shown}


def _file(
    document_id: str, name: str, n_bytes: int, created: int, status: str, folders: Sequence[str]
) -> dict[str, Any]:
    """Return a file in OpenAI's form, with octavo's extensions."""
    file = {"id": document_id, "object": "file", "filename": name, "bytes": n_bytes, "created_at": created}
    file |= {"purpose": "user_data", "status": status, "status_details": None}
    return {**file, "folders": list(folders), "tokens": None, "index_bytes": None, "progress": None}
