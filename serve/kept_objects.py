"""Keep objects that clients make on disk, one JSON file each, so that they outlive the server."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

from ..errors import OctavoError
from ..system.files import make_private, read_json, write_bytes
from ..system.locks import locked
from .request_error import RequestError

#: Most bytes of an object's file: `read_json` reads twice as many.
_MOST_BYTES = 32 << 20

_Result = TypeVar("_Result")


class KeptObjects:
    """Objects by id. Each method reads or writes files: call it beside the event loop.

    Parameters
    ----------
    folders : sequence of Path
        Folders with a subfolder of the objects: the first one receives new ones, those in the others are known, too.
    name : str
        Name of the subfolder, such as "conversations".
    kind : str
        What an object is, in errors.
    prefix : str
        Beginning of the ids, such as "conv".
    fields : dict
        The fields of an empty object: a file is damaged where a value has another type.
    """

    def __init__(self, folders: Sequence[Path], name: str, kind: str, prefix: str, fields: dict[str, Any]) -> None:
        self._folders = [folder / name for folder in folders]
        self._kind, self._prefix, self._fields = kind, prefix, {"created_at": 0, **fields}

    def add(self, **fields: Any) -> dict[str, Any]:
        """Keep a new object, and return it with its id and the time of its making."""
        named = {"id": f"{self._prefix}_{uuid.uuid4().hex}", "created_at": int(time.time())}
        made = {**self._fields, **named, **fields}
        make_private(self._folders[0])
        self._write(self._folders[0] / f"{made['id']}.json", made)
        return made

    def get(self, object_id: str) -> dict[str, Any]:
        """Return an object. Raise RequestError if there is none, or its file is damaged."""
        return self._read(self._file(object_id))

    def all(self) -> list[dict[str, Any]]:
        """Return all objects whose files are not damaged, the oldest first."""
        found = []
        for file in (file for folder in self._folders for file in folder.glob("*.json")):
            with suppress(RequestError):
                found.append(self._read(file))
        return sorted(found, key=lambda each: (each["created_at"], each["id"]))

    def change(self, object_id: str, work: Callable[[dict[str, Any]], _Result]) -> _Result:
        """Change an object while no other process changes it, and return the result of the work.

        Parameters
        ----------
        work : callable
            Receives the object, and changes it.

        Raises
        ------
        RequestError
            There is no such object, its file is damaged, or the work raised it; then nothing is changed.
        """
        with locked(self._file(object_id).parent):
            file = self._file(object_id)  # not removed meanwhile
            changed = self._read(file)
            result = work(changed)
            self._write(file, changed)
        return result

    def remove(self, object_id: str) -> None:
        """Remove an object. Raise RequestError if there is none."""
        with locked(self._file(object_id).parent):
            self._file(object_id).unlink()

    def _file(self, object_id: str) -> Path:
        is_id = re.fullmatch(rf"{self._prefix}_[0-9a-f]+", object_id)
        found = [file for folder in self._folders if is_id and (file := folder / f"{object_id}.json").is_file()]
        if not found:
            raise RequestError(f"There is no {self._kind} {object_id}.", 404, "not_found")
        return found[0]

    def _write(self, file: Path, value: dict[str, Any]) -> None:
        content = json.dumps(value).encode()
        if len(content) > _MOST_BYTES:
            raise RequestError(f"The {self._kind} would be longer than {_MOST_BYTES >> 20} MiB: begin a new one.")
        write_bytes(file, content)

    def _read(self, file: Path) -> dict[str, Any]:
        try:
            kept = {**deepcopy(self._fields), **read_json(file), "id": file.stem}
            is_whole = all(type(kept[name]) is type(value) for name, value in self._fields.items())
        except OctavoError:
            is_whole = False
        if not is_whole:
            raise RequestError(f"The {self._kind} {file.stem} is damaged: delete it, and make it anew.", 500)
        return kept
