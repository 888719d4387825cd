"""Hash large files, such as models, and remember the hash until the file is written or replaced."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import OctavoError
from ...settings import state_folder
from ...system.files import file_mark, make_private, read_json, sha256_of, write_json


def hash_of_file(path: Path, remembered: Path | None = None) -> str:
    """Return the SHA-256 of a file.

    Parameters
    ----------
    remembered : Path, optional
        The JSON file that remembers the hash; by default one in the user's folder. An entry of an older octavo has no
        mark, so the file is hashed once more.

    Raises
    ------
    OctavoError
        Another program writes the file.
    """
    if remembered is None:
        place = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        remembered = state_folder() / "hashes" / f"{place}.json"
    key = _key(path)
    with suppress(OctavoError):  # it is missing or damaged, and written anew below
        entries = read_json(remembered)
        if all(entries.get(name) == value for name, value in key.items()) and is_sha256(entries.get("sha256")):
            return str(entries["sha256"])
    digest = sha256_of(path)
    if _key(path) != key:
        raise OctavoError(f"{path} is being written by another program: wait until it is complete.")
    with suppress(OctavoError):  # in a read-only folder, files are hashed each time
        make_private(remembered.parent)
        write_json(remembered, {**key, "sha256": digest})
    return digest


def _key(path: Path) -> dict[str, Any]:
    status = path.stat()
    return {"path": str(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns, "mark": file_mark(status)}


def is_sha256(value: Any) -> bool:
    """Return whether a value is a SHA-256 in hexadecimal digits."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
