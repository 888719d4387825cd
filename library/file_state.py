"""What became of the file of an indexed or kept text: it is as it was, it has changed, or it is gone.

A file that was only touched or copied back has another time, and the same bytes. One with other bytes may have the same
text nevertheless, or a part of it.
"""

from __future__ import annotations

import stat
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..documents.document import hash_text
from ..documents.extract import extract_document
from ..documents.ocr.recognised_pages import file_version
from ..errors import OctavoError
from ..runtime.store.manifest import file_version_of
from ..system.files import FileVersion, sha256_of

#: States of a file.
SAME, CHANGED, GONE = "", "changed", "gone"


def state_of_file(described: dict[str, Any]) -> str:
    """Return the state of the file of a text that a manifest describes; SAME if there is none, or its text is equal."""
    version = file_version_of(described)
    if version is None:
        return SAME
    state = state_of_version(version)
    if state != CHANGED:
        return state
    try:
        text = _text(file_version(version.path))
    except (OctavoError, OSError):
        return CHANGED
    start, stop = described.get("part", (0, len(text)))
    return SAME if hash_text(text[start:stop]) == described["sha256"] else CHANGED


def state_of_version(version: FileVersion) -> str:
    """Return whether a file still has a version: SAME, CHANGED or GONE."""
    try:
        now = file_version(version.path)
        assert now is not None
        if version.is_kept(now):
            return SAME
        if not stat.S_ISREG(Path(version.path).stat().st_mode):
            return GONE
        same = version.content and now.n_bytes == version.n_bytes and _content(now) == version.content
    except (FileNotFoundError, NotADirectoryError):
        return GONE
    except (OctavoError, OSError):  # nothing says that it is the same
        return CHANGED
    return SAME if same else CHANGED


@lru_cache(maxsize=4096)
def _content(now: FileVersion) -> str:
    """Return the hash of a file's bytes, which are read once for each version."""
    return sha256_of(Path(now.path))


@lru_cache(maxsize=4)
def _text(now: FileVersion) -> str:
    """Return the text of a file, which is read once for all its parts."""
    return extract_document(now.path).text
