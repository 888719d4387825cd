"""Index files: safetensors that open by mmap, a manifest with checksums, and writes that are whole or not there.

1. An index is a folder: `manifest.json`, `document.safetensors`, and `layer-NNN.safetensors` for each cached layer.
2. It is written under another name, synced, and renamed when all of it is there.
3. The manifest names the format version, the model's and the document's hash, the settings, the type of keys and
   values ("dtype": f16, or q8_0, whose rows are U8; see cpu_kernels/rows.py), and for each file its size, modification
   time and SHA-256.
4. A file whose size differs from the manifest is refused; one whose time differs is first read whole and compared
   with its checksum.
5. A layer's file holds the arrays of `IndexLayer` (runtime/document.py) under their names, `position` as one I64,
   and all but `mass`. Rows are sorted by cluster, and clusters by coarse cluster; a layer without clusters has arrays
   of no centroids. `order` says where in the document a sorted row was.
6. `document.safetensors` holds what is measured on the last tokens when all layers are clustered: `mass.N` of cached
   layer N; and where there are clusters, `budgets` and `thresholds` of the lookup in one level, and
   `coarse_thresholds`, `two_level_budgets` and `two_level_thresholds` of that in two. And the `tokens`.
7. Every array begins at a multiple of 64 bytes of its file: blanks end the header, and arrays named `padding.N` fill
   gaps. A file without them is read too, but a Mac's GPU refuses it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import OctavoError

FORMAT_VERSION = 3
MANIFEST = "manifest.json"

_DTYPES = {
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
    "I32": np.int32,
    "I64": np.int64,
    "U8": np.uint8,
}
_DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}

#: Where arrays begin: a GPU loads 16 bytes at once, a CPU up to 64. What fills the gaps is named so.
_ALIGNMENT, _PADDING = 64, "padding."


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an error of the disk into a sentence that says what to do."""
    try:
        yield
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OctavoError(
                f"The disk of {path} is full. Free some space and run the same command again: it goes on where it "
                "stopped. Or give another folder with --index-dir."
            ) from problem
        if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise OctavoError(f"{path} cannot be written: give another folder with --index-dir.") from problem
        raise OctavoError(f"{path} cannot be used: {problem.strerror or problem}.") from problem


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a safetensors file: after a crash it is whole or not there."""
    header: dict[str, Any] = {}
    parts: list[bytes | memoryview] = []
    end = 0
    for name, array in arrays.items():
        contiguous = np.ascontiguousarray(array)
        header[name] = {
            "dtype": _DTYPE_NAMES[contiguous.dtype],
            "shape": contiguous.shape,
            "data_offsets": (end, end + contiguous.nbytes),
        }
        parts.append(contiguous.reshape(-1).view(np.uint8).data)
        end += contiguous.nbytes
        if gap := -end % _ALIGNMENT:
            header[f"{_PADDING}{len(parts)}"] = {"dtype": "U8", "shape": (gap,), "data_offsets": (end, end + gap)}
            parts.append(bytes(gap))
            end += gap
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    write_bytes(path, len(text).to_bytes(8, "little"), text, *parts)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file: after a crash it is whole or not there."""
    write_bytes(path, (json.dumps(value, indent=1) + "\n").encode())


def write_bytes(path: Path, *parts: bytes | memoryview) -> None:
    """Write under another name, sync, rename."""
    temporary = path.with_name(path.name + ".tmp")
    with disk_errors(path.parent):
        with open(temporary, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def map_arrays(path: Path) -> dict[str, np.ndarray]:
    """Open a safetensors file by mmap: read-only arrays, read from disk when touched."""
    mapped = np.memmap(path, np.uint8, "r")
    header_size = int(mapped[:8].view(np.uint64)[0])
    header = json.loads(bytes(mapped[8 : 8 + header_size]))
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__" and not name.startswith(_PADDING):
            start, stop = (8 + header_size + offset for offset in entry["data_offsets"])
            arrays[name] = mapped[start:stop].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays


def sha256_of(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_file(path: Path) -> dict[str, Any]:
    """What the manifest says of a file."""
    status = path.stat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": sha256_of(path)}


def check_file(path: Path, described: dict[str, Any], thorough: bool = False) -> None:
    """Raise OctavoError where a file is not what the manifest says. `thorough` reads it in any case."""
    try:
        status = path.stat()
    except OSError as problem:
        raise OctavoError(_damaged(path, "is missing")) from problem
    if status.st_size != described["size"]:
        raise OctavoError(_damaged(path, "has another size than when it was written"))
    untouched = status.st_mtime_ns == described["mtime_ns"]
    if (thorough or not untouched) and sha256_of(path) != described["sha256"]:
        raise OctavoError(_damaged(path, "has changed since it was written"))


def _damaged(path: Path, what: str) -> str:
    return f"{path.name} of the index {path.parent} {what}: delete that folder and index the document again."


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an index. Raises OctavoError where it does not say what it must."""
    path = folder / MANIFEST
    manifest = read_json(path)
    try:
        complete = {"name", "sha256", "tokens"} <= manifest["document"].keys()
        complete = complete and {"name", "sha256"} <= manifest["model"].keys()
        complete = complete and {"created", "dtype"} <= manifest.keys()
        complete = complete and all(
            known.keys() >= {"size", "mtime_ns", "sha256"} for known in manifest["files"].values()
        )
    except (KeyError, AttributeError):
        complete = False
    if not complete:
        raise OctavoError(f"{path} is incomplete: delete {folder} and index the document again.")
    return manifest


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that octavo wrote. Raises OctavoError where it is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise OctavoError(f"{path} cannot be read: delete {path.parent} and index the document again.") from problem
    if not isinstance(value, dict):
        raise OctavoError(f"{path} is not octavo's: delete {path.parent} and index the document again.")
    return value
