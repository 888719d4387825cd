"""Files that are whole or not there: safetensors that open by mmap, and JSON.

Knows arrays and JSON values, not what they mean: index_files.py and plan.py do.
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

_DTYPES = {
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
    "I32": np.int32,
    "I64": np.int64,
    "U8": np.uint8,
    "U16": np.uint16,
}
_DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}

#: Every array begins at a multiple of this many bytes: a GPU loads 16 bytes at once, a CPU up to 64. Arrays whose names
#: begin with the second constant fill the gaps.
_ALIGNMENT, _PADDING = 64, "padding."


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an error of the disk into a sentence that says what to do.

    Parameters
    ----------
    path : Path
        File or folder that the message names.

    Raises
    ------
    OctavoError
        The block raised an OSError: the disk is full, cannot be written, or fails otherwise.
    """
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
    """Write a safetensors file; after a crash it is whole or not there.

    Parameters
    ----------
    path : Path
        File to write.
    arrays : dict of str to array
        Arrays by name, of the types in `_DTYPES`.

    Raises
    ------
    OctavoError
        The disk refuses the file.
    """
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
    """Write a JSON file; after a crash it is whole or not there.

    Parameters
    ----------
    path : Path
        File to write.
    value : JSON value
        What to write.

    Raises
    ------
    OctavoError
        The disk refuses the file.
    """
    write_bytes(path, (json.dumps(value, indent=1) + "\n").encode())


def write_bytes(path: Path, *parts: bytes | memoryview) -> None:
    """Write a file under another name, sync it, and give it its name.

    Parameters
    ----------
    path : Path
        File to write.
    *parts : bytes or memoryview
        Its content, one part after another.

    Raises
    ------
    OctavoError
        The disk refuses the file.
    """
    temporary = path.with_name(path.name + ".tmp")
    with disk_errors(path.parent):
        with open(temporary, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable.

    Parameters
    ----------
    path : Path
        The folder.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def map_arrays(path: Path) -> dict[str, np.ndarray]:
    """Open a safetensors file by mmap.

    Parameters
    ----------
    path : Path
        File that `write_arrays` or another writer of safetensors wrote.

    Returns
    -------
    dict of str to array
        Read-only arrays by name; the system reads them from disk when they are touched.
    """
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
    """Return the SHA-256 of a file, in hexadecimal digits.

    Parameters
    ----------
    path : Path
        File to read.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that octavo wrote.

    Parameters
    ----------
    path : Path
        File to read.

    Returns
    -------
    dict
        The object.

    Raises
    ------
    OctavoError
        The file cannot be read, or holds no JSON object.
    """
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise OctavoError(f"{path} cannot be read: delete {path.parent} and index the document again.") from problem
    if not isinstance(value, dict):
        raise OctavoError(f"{path} is not octavo's: delete {path.parent} and index the document again.")
    return value
