"""Write, read and check the manifest of an index, and check the files in it. index_files.py defines its content.

Files that were verified against their checksums need not be again, by these rules:

1. A file is verified when it is first opened after it was written, and whenever its size, inode, or ctime changes.
   Programs cannot set ctime.
2. It is verified once more after the machine has restarted: only then is it certain to come from the disk. A file that
   was older than the machine's start when it was verified, need not be again.
3. `checked.json` in the index's folder has the size, mtime, ctime and inode of each file, and the time of the machine's
   start. Entries of other files, and wrong entries, are ignored.
"""

from __future__ import annotations

import json
import re
import stat
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from blake3 import blake3

from ...errors import OctavoError, shown
from ...system.files import (
    DamagedError,
    FileVersion,
    checksum_of,
    disk_errors,
    read_json,
    sha256_of,
    stored_checksum,
    write_json,
)

INDEX_VERSION = 4
MANIFEST = "manifest.json"
DOCUMENT = "document.safetensors"

#: Entry with the head of a fixed time (`identity`), if the template writes the date there.
DATELESS_HEAD = "dateless_head"

#: Prefix of the names of threshold files.
THRESHOLDS = "thresholds-"

#: Prefix of the names of files with extras.
EXTRAS = "extras-"

#: Allowed names of an index's files.
_FILE_NAME = re.compile(rf"(document|means|layer-\d{{3,}}|state-\d{{8,}}|({THRESHOLDS}|{EXTRAS})[\w-]+)\.safetensors")

_CHECKSUM = "blake3"

#: File of marks, and seconds by which two readings of the machine's start may differ.
_MARKS, _SAME_START = "checked.json", 60


def save_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest, with its checksum.

    Raises
    ------
    OctavoError
        The disk refuses the file.
    """
    write_json(folder / MANIFEST, manifest | {_CHECKSUM: _checksum(manifest)})


def _checksum(manifest: dict[str, Any]) -> str:
    entries = {name: value for name, value in manifest.items() if name != _CHECKSUM}
    return blake3(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def describe(path: Path) -> dict[str, Any]:
    """Return the manifest's entry for a file that was just written."""
    return {"size": path.stat().st_size, _CHECKSUM: stored_checksum(path)}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of an index.

    Returns
    -------
    dict
        The manifest, with all entries that octavo relies on, of the right types.

    Raises
    ------
    DamagedError
        The manifest is damaged.
    OctavoError
        The index has another format, or the manifest cannot be read.
    """
    path = folder / MANIFEST
    manifest = read_json(path)
    if manifest.get(_CHECKSUM, checksum := _checksum(manifest)) != checksum:
        raise DamagedError(f"{path} has changed since it was written.")
    if type(version := manifest.get("format_version")) is int and version != INDEX_VERSION:
        raise OctavoError(
            f"The index {folder} has format {version}, and this octavo reads {INDEX_VERSION}: index the document again."
        )
    try:
        _check_manifest(manifest)
        manifest["document"]["name"] = shown(manifest["document"]["name"])  # older octavos kept any name
    except (KeyError, AttributeError, TypeError, ValueError, OverflowError) as problem:
        raise DamagedError(f"{path} is damaged: an entry is missing, or is what it cannot be.") from problem
    return manifest


def _check_manifest(manifest: dict[str, Any]) -> None:
    """Raise ValueError, or a type's own errors, if an entry is not as octavo writes it."""
    document, model, files = manifest["document"], manifest["model"], manifest["files"]
    texts = [*(section[name] for section in (document, model) for name in ("name", "sha256")), manifest["created"]]
    files_of_text = [document, *document.get("copies", ())]
    texts += [file[name] for file in files_of_text for name in ("path", "mark", "content") if name in file]
    texts += [manifest["dtype"]]
    numbers = [file[name] for file in files_of_text for name in ("mtime_ns", "bytes") if name in file]
    numbers += [document["tokens"]]
    numbers += [described["size"] for described in files.values()]
    start, stop = part = document.get("part", (0, 0))
    numbers += [*part, document.get("first_line", 1), document.get("split", 0)]
    sums = [described.get(_CHECKSUM, described.get("sha256")) for described in files.values()]
    places = document.get("places", [])
    numbers += [*manifest["head"], *manifest.get(DATELESS_HEAD, ())]
    n_layers = sum(name.startswith("layer-") for name in files)
    layers = {f"layer-{i:03d}.safetensors" for i in range(n_layers)}
    if not (
        all(isinstance(text, str) for text in [*texts, *sums])
        and all(type(number) is int and number >= 0 for number in numbers)
        and start <= stop
        and manifest["format_version"] == INDEX_VERSION
        and isinstance(manifest.get("seconds", 0), (int, float))
        and datetime.fromisoformat(manifest["created"]).tzinfo
        and all(_FILE_NAME.fullmatch(name) for name in files)
        and {DOCUMENT, *layers} <= files.keys()
        and all(type(offset) is int for offset, _, _ in places)
        and all(name is None or isinstance(name, str) for _, *names in places for name in names)
    ):
        raise ValueError


def file_version_of(described: dict[str, Any]) -> FileVersion | None:
    """Return the version of the file that a manifest's document was read from; None without a file."""
    return next(iter(file_versions_of(described)), None)


def file_versions_of(described: dict[str, Any]) -> list[FileVersion]:
    """Return the version of the file that a manifest's document was read from, and of other files with its text.

    There are none without a file.
    """
    return [
        FileVersion(
            file["path"], file.get("mtime_ns", -1), file.get("bytes", -1), file.get("mark", ""), file.get("content", "")
        )
        for file in (described, *described.get("copies", ()))
        if "path" in file
    ]


def file_entries(version: FileVersion | None) -> dict[str, Any]:
    """Return the entries of a manifest's document for the version of its file."""
    if version is None:
        return {}
    path, mtime_ns, n_bytes, mark, content = version
    return {"path": path, "mtime_ns": mtime_ns, "bytes": n_bytes, "mark": mark, "content": content}


def _damaged(path: Path, what: str) -> str:
    return f"{path.name} of the index {path.parent} {what}."


def damages(path: Path, manifest: dict[str, Any], thorough: bool) -> dict[str, str]:
    """Compare the files of an index with its manifest.

    Parameters
    ----------
    thorough : bool
        Compare the checksums of all files, even those that are marked as verified.

    Returns
    -------
    dict of str to str
        For each file a sentence about its damage, or "".
    """
    import psutil

    start, found, marks = psutil.boot_time(), {}, dict[str, Any]()
    with suppress(OctavoError):
        marks = read_json(path / _MARKS)
    before = dict(marks)
    for name, described in manifest["files"].items():
        found[name] = ""
        try:
            marks[name] = _check_file(path / name, described, None if thorough else marks.get(name), start)
        except DamagedError as problem:
            found[name] = str(problem)
    if marks != before:
        with suppress(OctavoError):  # in a read-only folder, files are verified each time
            write_json(path / _MARKS, marks)
    return found


def _check_file(path: Path, described: dict[str, Any], mark: Any, start: float) -> list[float]:
    """Compare a file with its manifest entry, unless its mark holds. Return the mark it has then.

    Raises
    ------
    DamagedError
        The file is not as it was written.
    """
    try:
        status = path.lstat()
    except OSError as problem:
        raise DamagedError(_damaged(path, "is missing")) from problem
    if not stat.S_ISREG(status.st_mode):
        raise DamagedError(_damaged(path, "is not a plain file"))
    if status.st_size != described["size"]:
        raise DamagedError(_damaged(path, "has another size than when it was written"))
    marked = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    is_marked = isinstance(mark, list) and len(mark) == 5 and mark[:4] == marked and isinstance(mark[4], (int, float))
    if is_marked and (abs(mark[4] - start) < _SAME_START or status.st_ctime < mark[4]):
        return list(mark)
    with disk_errors(path, doing="read"):
        checksum = checksum_of(path) if _CHECKSUM in described else sha256_of(path)
        same = checksum == described.get(_CHECKSUM, described.get("sha256"))
        if not same or stored_checksum(path) not in ("", checksum):
            raise DamagedError(_damaged(path, "has changed since it was written"))
    return [*marked, start]
