"""Write and read files that are complete or absent: safetensors that open by mmap or are read in part, and JSON.

This module knows arrays and JSON values; index_files.py and plan.py know their meaning. Files are private to their
owner, and contain a checksum.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from blake3 import blake3

from ..errors import NoRoom, OctavoError
from .mapped_file import MappedFile


class FileVersion(NamedTuple):
    """Which version of a file a text was taken from.

    Parameters
    ----------
    path : str
        The file's real path.
    mtime_ns : int
        Time of its last change.
    n_bytes : int
        Its size, to which a checksum of its recognised pages is added.
    mark : str
        Its `file_mark`, and the encoding that a user gave for its text, if any; "" if an older octavo noted the
        version.
    content : str
        SHA-256 of its bytes, if they were read; else "".
    """

    path: str
    mtime_ns: int
    n_bytes: int
    mark: str = ""
    content: str = ""

    @property
    def encoding(self) -> str | None:
        """Return the encoding that a user gave for its text; None if the text says which."""
        return self.mark.partition(" ")[2] or None

    def is_kept(self, now: FileVersion) -> bool:
        """Return whether a file that has the version `now` was not changed since it had this one.

        Versions of older octavos have no mark: their time and size suffice, unless an encoding is given now.
        """
        return self[:3] == now[:3] and (self.mark == now.mark or not (self.mark or now.encoding))


def file_mark(status: os.stat_result) -> str:
    """Return what changes when a file is written or replaced, even if its size and its time of change are kept.

    Programs set the time of change, but not the inode and the time of the inode's change.
    """
    return f"{status.st_ino:x}-{status.st_ctime_ns:x}"


_DTYPES = {
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
    "I8": np.int8,
    "I32": np.int32,
    "I64": np.int64,
    "U8": np.uint8,
    "U16": np.uint16,
}
_DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}

#: Every array begins at a multiple of this many bytes: a GPU loads 16 bytes at once, a CPU up to 64. Arrays whose names
#: begin with the second constant fill the gaps.
_ALIGNMENT, _PADDING = 64, "padding."

#: The start of a file of arrays, after 8 bytes with the length of its header: the BLAKE3 of all its other bytes.
_BEFORE_CHECKSUM, _CHECKSUM_LENGTH = b'{"__metadata__":{"blake3":"', 64
_CHECKSUM_START = 8 + len(_BEFORE_CHECKSUM)
_CHECKSUM_END = _CHECKSUM_START + _CHECKSUM_LENGTH

#: The entry of `__metadata__` with the folder and name that a file was written under.
_PLACE = "place"

#: Ending of a folder's name until the folder is complete.
PARTIAL = ".partial"

#: The longest header, and the size of the pieces in which files are read.
_LONGEST_HEADER, _PIECE = 64 << 20, 8 << 20

#: Most axes of an array that NumPy takes in all its versions.
_MOST_AXES = 32

#: Bytes that a small read takes from the disk: headers fit, and the tokens of a short document after them.
_BUFFER = 32 << 10

#: Endings of files' names until the files are complete.
TEMPORARY = ".tmp"


class DamagedError(OctavoError):
    """A file is not as octavo wrote it, and must be made again."""


@contextmanager
def disk_errors(path: Path, doing: str = "written") -> Iterator[None]:
    """Turn an error of the disk into a message with a remedy.

    Parameters
    ----------
    doing : {"written", "read"}
        The operation, for the message.

    Raises
    ------
    OctavoError
        The block raised an OSError: the disk is full, unusable, or fails otherwise.
    """
    try:
        yield
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoom(
                f"The disk of {path} is full. Free some space and run the same command again: it resumes where it "
                "stopped. Or give another folder with `index_dir`."
            ) from problem
        if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise OctavoError(f"{path} cannot be {doing}: give another folder with `index_dir`.") from problem
        raise OctavoError(f"{path} cannot be used: {problem.strerror or problem}.") from problem


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a safetensors file; after a crash it is complete or absent.

    Parameters
    ----------
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
    names = json.dumps(header, separators=(",", ":")).encode()
    place = f'","{_PLACE}":{json.dumps(_place_of(path))}}}'.encode()
    rest = place + (b"," + names[1:] if header else b"}")
    rest += b" " * (-(_CHECKSUM_END + len(rest)) % _ALIGNMENT)
    size = (_CHECKSUM_END + len(rest) - 8).to_bytes(8, "little")
    checksum = blake3(size + _BEFORE_CHECKSUM + rest, max_threads=blake3.AUTO)
    for part in parts:
        checksum.update(part)
    write_bytes(path, size, _BEFORE_CHECKSUM, checksum.hexdigest().encode(), rest, *parts)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file; after a crash it is complete or absent.

    Raises
    ------
    OctavoError
        The disk refuses the file.
    """
    write_bytes(path, (json.dumps(value, indent=1) + "\n").encode())


def keep_in_json(path: Path, key: str, value: Any) -> None:
    """Add an entry to a JSON file, which is made anew if it is damaged. A folder that cannot be written keeps none."""
    with suppress(OctavoError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        known: dict[str, Any] = {}
        with suppress(OctavoError):
            known = read_json(path)
        write_json(path, {**known, key: value})


def write_bytes(path: Path, *parts: bytes | memoryview) -> None:
    """Write a file under a temporary name, sync it, and rename it.

    Raises
    ------
    OctavoError
        The disk refuses the file.
    """
    with disk_errors(path.parent):
        descriptor, temporary = tempfile.mkstemp(TEMPORARY, f"{path.name}.", path.parent)
        try:
            with open(descriptor, "wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def by_age(paths: Iterable[Path]) -> list[Path]:
    """Return files, the oldest first, without those that another process removes meanwhile."""
    times = {}
    for path in paths:
        with suppress(FileNotFoundError):
            times[path] = path.stat().st_mtime
    return sorted(times, key=times.__getitem__)


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def map_arrays(path: Path, checked: bool = False, in_place: bool = False) -> dict[str, np.ndarray]:
    """Open a safetensors file by mmap.

    Parameters
    ----------
    checked : bool
        Compare the file with its checksum; only files of `write_arrays` have one.
    in_place : bool
        Refuse a file that was written under another name or in a folder of another name.

    Returns
    -------
    dict of str to array
        Read-only arrays by name, read from disk when they are touched.

    Raises
    ------
    DamagedError
        The file has another format, or is damaged.
    OctavoError
        The disk refuses the file.
    """
    with disk_errors(path, doing="read"):
        if checked and checksum_of(path) != stored_checksum(path):
            raise DamagedError(f"{path} has changed since it was written.")
        with open_regular(path) as file:
            stored = _arrays_in(path, file, in_place)
            mapped = np.asarray(MappedFile(file.fileno(), os.fstat(file.fileno()).st_size))
    return {
        name: mapped[array.start : array.start + array.n_bytes].view(array.dtype).reshape(array.shape)
        for name, array in stored.items()
    }


class StoredArray(NamedTuple):
    """An array in an open file, whose first byte is at `start`."""

    file: io.BufferedReader
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def n_bytes(self) -> int:
        """Return its size."""
        return math.prod(self.shape) * self.dtype.itemsize

    def part(self, i: int) -> StoredArray:
        """Return the part at a place of the first axis. Raise IndexError if there is none."""
        if not 0 <= i < self.shape[0]:
            raise IndexError(i)
        part = self._replace(shape=self.shape[1:])
        return part._replace(start=self.start + i * part.n_bytes)

    def read(self) -> np.ndarray:
        """Return a read-only copy, in memory. Raise ValueError if the file ends before it."""
        self.file.seek(self.start)
        return np.frombuffer(self.file.read(self.n_bytes), self.dtype).reshape(self.shape)


@contextmanager
def stored_arrays(path: Path) -> Iterator[dict[str, StoredArray]]:
    """Open a safetensors file to read a few of its arrays, and nothing else.

    From a cold disk a mapping reads megabytes around the first byte that is touched.

    Raises
    ------
    DamagedError
        The file has another format, or is damaged; or the block raised KeyError, IndexError or ValueError: the arrays
        are not those that it seeks.
    OctavoError
        The disk refuses the file.
    """
    with disk_errors(path, doing="read"), open_regular(path) as file:
        if sys.platform == "linux":
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        arrays = _arrays_in(path, file)
        try:
            yield arrays
        except (KeyError, IndexError, ValueError) as problem:
            raise DamagedError(f"{path} is damaged: its arrays contradict one another.") from problem


def _arrays_in(path: Path, file: io.BufferedReader, in_place: bool = False) -> dict[str, StoredArray]:
    """Return the arrays of an open safetensors file by name. Raise DamagedError for other content."""
    n_bytes = os.fstat(file.fileno()).st_size
    if n_bytes < 8:
        raise DamagedError(f"{path} is damaged: it is too short.")
    try:
        header_size = int.from_bytes(file.read(8), "little")
        if header_size > min(n_bytes - 8, _LONGEST_HEADER):
            raise ValueError
        header = json.loads(file.read(header_size), object_pairs_hook=_without_doubles)
        written_at = header.pop("__metadata__", {}).get(_PLACE)
        if in_place and written_at != _place_of(path):
            raise ValueError
        end, first, arrays = 0, 8 + header_size, {}
        for name, entry in header.items():
            dtype, shape, (start, stop) = np.dtype(_DTYPES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
            if any(type(number) is not int or number < 0 for number in (*shape, start, stop)):
                raise ValueError
            if len(shape) > _MOST_AXES or math.prod(max(length, 1) for length in shape) * dtype.itemsize > sys.maxsize:
                raise ValueError  # NumPy has no such array, not even an empty one
            array = StoredArray(file, dtype, tuple(shape), first + start)
            if start != end or stop - start != array.n_bytes or first + stop > n_bytes:
                raise ValueError
            end = stop
            if not name.startswith(_PADDING):
                arrays[name] = array
        if first + end != n_bytes:
            raise ValueError
        return arrays
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as problem:
        raise DamagedError(f"{path} is damaged: its header says what cannot be.") from problem


def _place_of(path: Path) -> str:
    """Return a file's place: the folder's name, without the ending of unfinished folders, and the file's name."""
    return f"{path.parent.name.removesuffix(PARTIAL)}/{path.name}"


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, and refuse names that occur twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def stored_checksum(path: Path) -> str:
    """Return the checksum in a file of `write_arrays`; "" in older files without one."""
    with open_regular(path) as file:
        beginning = file.read(_CHECKSUM_END)
    if beginning[8:_CHECKSUM_START] != _BEFORE_CHECKSUM or len(beginning) < _CHECKSUM_END:
        return ""
    return beginning[_CHECKSUM_START:].decode("ascii", "replace")


def checksum_of(path: Path) -> str:
    """Return the BLAKE3, in hexadecimal digits, of a file of `write_arrays` without its checksum."""
    checksum, buffer = blake3(max_threads=blake3.AUTO), memoryview(bytearray(_PIECE))
    with open_regular(path) as file:
        checksum.update(file.read(_CHECKSUM_START))
        file.seek(_CHECKSUM_END)
        while n_read := file.readinto(buffer):
            checksum.update(buffer[:n_read])
    return checksum.hexdigest()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file that octavo wrote. Raise DamagedError for links, pipes and devices, which octavo never writes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.ENOENT, errno.ENOTDIR, errno.ENXIO):
            what = "missing" if problem.errno in (errno.ENOENT, errno.ENOTDIR) else "no plain file"
            raise DamagedError(f"{path} is {what}.") from problem
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedError(f"{path} is not a plain file.")
    return io.BufferedReader(io.FileIO(descriptor), _BUFFER)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that octavo wrote.

    Raises
    ------
    DamagedError
        The file is missing, or does not hold a JSON object.
    OctavoError
        The disk refuses the file.
    """
    with disk_errors(path, doing="read"), open_regular(path) as file:
        content = file.read(_LONGEST_HEADER)
    try:
        value = json.loads(content, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as problem:
        raise DamagedError(f"{path} is damaged: it cannot be read.") from problem
    if not isinstance(value, dict):
        raise DamagedError(f"{path} is damaged: it holds something else.")
    return value


def private_copy(array: np.ndarray) -> np.ndarray:
    """Return a read-only copy of an array, in memory."""
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can open, unless it exists.

    Raises
    ------
    OctavoError
        It cannot be created.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as problem:
        raise OctavoError(
            f"{folder} cannot be created: {problem.strerror}. Give another folder with `index_dir`."
        ) from problem
