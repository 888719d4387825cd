"""Record which files of an index were verified against their checksums, and need not be again.

1. A file is verified when it is first opened after it was written, and whenever its size, inode, or ctime changes.
   Programs cannot set ctime.
2. It is verified once more after the machine has restarted: only then is it certain to come from the disk. A file that
   was older than the machine's start when it was verified, need not be again.
3. `checked.json` in the index's folder has the size, mtime, ctime and inode of each file, and the time of the machine's
   start. Entries of other files, and wrong entries, are ignored.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import OctavoError
from ...system.files import read_json, write_json

MARKS = "checked.json"

#: Seconds by which two readings of the machine's start may differ.
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
        """Return whether a file is unchanged since it was verified, and that verification lasts."""
        mark = self._marks.get(name)
        if not isinstance(mark, list) or len(mark) != 5 or mark[:4] != _of(status):
            return False
        start = mark[4]
        if not isinstance(start, (int, float)):
            return False
        return abs(start - self._start) < _SAME_START or status.st_ctime < start

    def set(self, name: str, status: os.stat_result) -> None:
        """Mark a file as verified; `status` is its status before that."""
        self._marks[name], self._changed = [*_of(status), self._start], True

    def save(self) -> None:
        """Write new marks, if possible."""
        if self._changed:
            with suppress(OctavoError):  # in a read-only folder, files are verified each time
                write_json(self._path, self._marks)


def _of(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
