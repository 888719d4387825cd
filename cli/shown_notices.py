"""Remember which files were left out of documents, so that a notice comes again only after a change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

#: Opened documents and folders to remember.
_KEPT = 200


class ShownNotices:
    """Notices that were shown when some documents were opened before.

    Only hashes are on disk. If the user's state folder is not writable, everything is new each time.

    Parameters
    ----------
    documents : sequence of str
        The documents, folders and patterns that are opened.
    """

    def __init__(self, documents: Sequence[str]) -> None:
        from ..library.expand_paths import absolute
        from ..settings import state_folder

        self._path: Path = state_folder() / "left_out.json"
        self._key = _hash("\n".join(absolute(documents)))
        self._known: dict[str, list[str]] = {}
        with suppress(OSError, ValueError):
            self._known = dict(json.loads(self._path.read_bytes()))
        self._before, self._now = set(self._known.get(self._key, ())), set[str]()

    def is_new(self, sentence: str) -> bool:
        """Return whether a sentence was not shown before."""
        self._now.add(_hash(sentence))
        return _hash(sentence) not in self._before

    def keep(self) -> None:
        """Keep the notices of now, in place of those before."""
        from ..errors import OctavoError
        from ..system.files import make_private, write_json

        if self._now == self._before:
            return
        self._known.pop(self._key, None)
        if self._now:
            self._known[self._key] = sorted(self._now)
        with suppress(OctavoError, OSError):
            make_private(self._path.parent)
            write_json(self._path, dict(list(self._known.items())[-_KEPT:]))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
