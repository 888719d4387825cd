"""Which files of an index were compared with their checksums, and need not be again.

1. A file is compared when it is opened for the first time after it was written, and whenever its size, its inode, or
   the time of its last change is another one. That is ctime, which no program sets.
2. It is compared once more when it is opened after the machine has started again: only then does it come from the disk
   for sure. What was older than the start of the machine when it was compared, needs that no more.
3. `checked.json` in the index's folder has size, mtime, ctime and inode of each file, and when the machine had started.
   What it says of other files, or wrongly, is as if it said nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import OctavoError
from .files import read_json, write_json

MARKS = "checked.json"

#: Seconds by which two readings of when the machine started may differ.
_SAME_START = 60


class CheckMarks:
    """The marks in an index's folder."""

    def __init__(self, folder: Path) -> None:
        import psutil

        self._path, self._start, self._changed = folder / MARKS, psutil.boot_time(), False
        self._marks: dict[str, Any] = {}
        with suppress(OctavoError):
            self._marks = read_json(self._path)

    def holds(self, name: str, status: os.stat_result) -> bool:
        """Return whether a file is as it was when it was compared, and durably so."""
        mark = self._marks.get(name)
        if not isinstance(mark, list) or len(mark) != 5 or mark[:4] != _of(status):
            return False
        start = mark[4]
        if not isinstance(start, (int, float)):
            return False
        return abs(start - self._start) < _SAME_START or status.st_ctime < start

    def set(self, name: str, status: os.stat_result) -> None:
        """Note that a file was compared; `status` is what the system said of it before that."""
        self._marks[name], self._changed = [*_of(status), self._start], True

    def save(self) -> None:
        """Write the marks, if there are new ones and that can be."""
        if self._changed:
            with suppress(OctavoError):  # in a folder that is not ours files are compared each time
                write_json(self._path, self._marks)


def _of(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
