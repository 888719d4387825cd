"""Check the header of a GGUF file before llama.cpp, which trusts most of it, reads it.

Reads never leave the file, and no allocation depends on a size in the header. ggml's
docs/gguf.md defines the format; versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from ...errors import OctavoError

MAGIC = b"GGUF"
_VERSIONS = (2, 3)

#: ggml's limits: dimensions of a tensor, bytes of a tensor's name, and a tensor's elements, an int64.
_MOST_DIMENSIONS, _LONGEST_NAME, _MOST_ELEMENTS = 4, 63, 1 << 63

#: Longest key in the format.
_LONGEST_KEY = 65535

_ALIGNMENT_KEY, _ALIGNMENT = "general.alignment", 32
_ARCHITECTURE_KEY = "general.architecture"

#: Numbers of the value types, and the bytes of those of fixed size.
_BOOL, _STRING, _ARRAY = 7, 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, _BOOL: 1, 10: 8, 11: 8, 12: 8}
_FLOATS = {6: "<f", 12: "<d"}
_INTEGERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 10: "<Q", 11: "<q"}

#: Fewest bytes of a key with its value, and of a tensor's description.
_LEAST_PAIR, _LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 8 + 4 + 8


class _Bad(Exception):
    """The header is wrong; the message completes "its header ..."."""


class Tensor(NamedTuple):
    """What a header says of a tensor: ggml's number of its type, its shape, the length of a row first, and its place.

    The place is the number of the file's byte where it begins.
    """

    kind: int
    shape: list[int]
    place: int


def check_gguf(path: Path) -> dict[str, Tensor]:
    """Check that a file is a complete GGUF file, judging by its header. Return its tensors, by name.

    Raises
    ------
    OctavoError
        The file is something else, is incomplete, or cannot be read.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _Reader(content).check()
    except _Bad as problem:
        raise OctavoError(
            f"{path} is damaged or incomplete: {problem}. Download it again, or give another with `model`."
        ) from problem
    except (OSError, ValueError) as problem:  # an empty file cannot be mapped
        raise OctavoError(f"{path} cannot be read as a GGUF model: {problem}.") from problem


def header_values(path: Path) -> dict[str, Any]:
    """Return the values of a GGUF file's header, without arrays.

    Raises
    ------
    OctavoError
        The file is not GGUF, or is damaged.
    """
    return dict(_values(path))


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of a header as they come; see `header_values`."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield from _Reader(content).values()
    except (_Bad, OSError, ValueError) as problem:
        raise OctavoError(f"{path} is not a whole GGUF file: {problem}.") from problem


def architecture_number(path: Path, name: str) -> int:
    """Return a number of the architecture in a GGUF file's header, such as "expert_count"; 0 if it has none.

    The tokenizer, which takes long to read, follows the architecture's values: they end the search.

    Raises
    ------
    OctavoError
        The file is not GGUF, or is damaged.
    """
    architecture, found = "", False
    for key, value in _values(path):
        if key == _ARCHITECTURE_KEY:
            architecture = f"{value}."
        elif key == f"{architecture}{name}":
            return int(value)
        elif found and key.startswith("tokenizer."):
            break
        found = found or (bool(architecture) and key.startswith(architecture))
    return 0


def weight_types(files: Iterable[Path]) -> set[int]:
    """Return ggml's numbers of the types of the tensors in the files of a model. llama.cpp reports damaged ones."""
    kinds: set[int] = set()
    for path in files:
        with suppress(OctavoError):
            kinds |= {tensor.kind for tensor in check_gguf(path).values()}
    return kinds


def multiplied_weights(files: Iterable[Path]) -> dict[int, int]:
    """Return how many weights of each of ggml's types multiply tokens, in the files of a model.

    These are weights of matrices, of all experts. Embeddings are looked up, except where they are the output's weights,
    too. llama.cpp reports damaged files.
    """
    tensors: dict[str, Tensor] = {}
    for path in files:
        with suppress(OctavoError):
            tensors |= check_gguf(path)
    output, counts = "output" if "output.weight" in tensors else "token_embd", dict[int, int]()
    for name, tensor in tensors.items():
        stem, _, what = name.rpartition(".")
        is_matrix = len(tensor.shape) > 1 and what == "weight"
        if is_matrix and (not stem.endswith("_embd") or stem == output):
            counts[tensor.kind] = counts.get(tensor.kind, 0) + math.prod(tensor.shape)
    return counts


class _Reader:
    """Read the header of a mapped file from its beginning."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content, self._size, self._at = content, len(content), 0

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield keys and values, without arrays. Raise _Bad if the header is wrong."""
        if self._take(4) != MAGIC or self._number("<I") not in _VERSIONS:
            raise _Bad("its header is of another format")
        _, n_pairs = self._number("<Q"), self._number("<Q")
        for _ in range(n_pairs):
            key, kind = self._text(_LONGEST_KEY, "a key"), self._number("<I")
            if kind in _INTEGERS:
                yield key, self._number(_INTEGERS[kind])
            elif kind == _BOOL:
                yield key, self._take(1) != b"\0"
            elif kind == _STRING:
                yield key, self._text(self._size, f"the value of '{key}'")
            elif kind in _FLOATS:
                yield key, struct.unpack(_FLOATS[kind], self._take(_SIZES[kind]))[0]
            else:
                self._skip_value(kind, key)

    def check(self) -> dict[str, Tensor]:
        """Read the whole header; return the tensors. Raise _Bad if it is wrong."""
        if self._take(4) != MAGIC:
            raise _Bad("it does not begin with GGUF")
        if (version := self._number("<I")) not in _VERSIONS:
            other = version.to_bytes(4, "little")
            swapped = int.from_bytes(other, "big") in _VERSIONS
            raise _Bad("it is for big-endian machines" if swapped else f"its header has version {version}, not 2 or 3")
        n_tensors, n_pairs = self._number("<Q"), self._number("<Q")
        if n_pairs * _LEAST_PAIR > self._size or n_tensors * _LEAST_TENSOR > self._size:
            raise _Bad(f"its header counts {n_tensors:,} tensors and {n_pairs:,} values, more than the file can hold")
        alignment = self._check_pairs(n_pairs)
        return self._check_tensors(n_tensors, alignment)

    def _check_pairs(self, n_pairs: int) -> int:
        """Read keys and values; return the tensors' alignment."""
        keys: set[str] = set()
        alignment, architecture = _ALIGNMENT, False
        for _ in range(n_pairs):
            key = self._text(_LONGEST_KEY, "a key")
            if not key or key in keys:
                raise _Bad(f"its header has the key '{key}' twice" if key else "its header has an empty key")
            keys.add(key)
            kind = self._number("<I")
            if key == _ALIGNMENT_KEY:
                alignment = self._integer(kind, key)
            elif key == _ARCHITECTURE_KEY:
                architecture = kind == _STRING and bool(self._text(_LONGEST_KEY, key))
                if not architecture:
                    raise _Bad("its header does not name an architecture")
            else:
                self._skip_value(kind, key)
        if alignment < 8 or alignment & (alignment - 1) or alignment > 1 << 20:
            raise _Bad(f"its tensors are aligned to {alignment}, which is not a sensible power of two")
        if not architecture:
            raise _Bad("its header does not name an architecture")
        return alignment

    def _skip_value(self, kind: int, key: str) -> None:
        if kind == _BOOL:
            if self._take(1) not in (b"\0", b"\1"):
                raise _Bad(f"the value of '{key}' is neither true nor false")
        elif kind in _SIZES:
            self._take(_SIZES[kind])
        elif kind == _STRING:
            self._text(self._size, f"the value of '{key}'")
        elif kind == _ARRAY:
            element, count = self._number("<I"), self._number("<Q")
            if element in _SIZES:
                self._skip(count * _SIZES[element], f"the array '{key}'")
            elif element == _STRING:
                self._skip_strings(count, key)
            else:
                raise _Bad(f"the array '{key}' has elements of an unknown type, {element}")
        else:
            raise _Bad(f"the value of '{key}' has an unknown type, {kind}")

    def _skip_strings(self, count: int, key: str) -> None:
        """Skip an array of strings, such as a vocabulary."""
        if count * 8 > self._size - self._at:
            raise _Bad(f"the array '{key}' has {count:,} strings, more than the file can hold")
        content, size, at = self._content, self._size, self._at
        length_at: Callable[[mmap.mmap, int], tuple[int]] = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at + 8 > size:
                raise _Bad(f"the array '{key}' continues beyond the file's end")
            at += 8 + length_at(content, at)[0]
        if at > size:
            raise _Bad(f"the array '{key}' continues beyond the file's end")
        self._at = at

    def _check_tensors(self, n_tensors: int, alignment: int) -> dict[str, Tensor]:
        """Read the tensors' descriptions, and check that the tensors lie in the file. Return the tensors."""
        tensors: dict[str, Tensor] = {}
        ends = 0
        for _ in range(n_tensors):
            name = self._text(_LONGEST_NAME, "a tensor's name")
            if not name or name in tensors:
                raise _Bad(
                    f"its header has the tensor '{name}' twice" if name else "its header has a tensor without name"
                )
            n_dimensions = self._number("<I")
            if not 0 < n_dimensions <= _MOST_DIMENSIONS:
                raise _Bad(f"the tensor '{name}' has {n_dimensions} dimensions")
            shape = [self._number("<Q") for _ in range(n_dimensions)]
            kind, offset = self._number("<I"), self._number("<Q")
            tensors[name] = Tensor(kind, shape, offset)
            n_elements = math.prod(shape)
            if n_elements == 0 or n_elements >= _MOST_ELEMENTS:
                raise _Bad(f"the tensor '{name}' has the shape {' x '.join(map(str, shape))}")
            if offset % alignment:
                raise _Bad(f"the tensor '{name}' begins at {offset}, which is not a multiple of {alignment}")
            ends = max(ends, offset + _n_bytes(name, kind, shape[0], n_elements))
        first = -(-self._at // alignment) * alignment
        if n_tensors and first + ends > self._size:
            raise _Bad(f"its tensors end at {first + ends:,} bytes, and the file has {self._size:,}")
        return {name: tensor._replace(place=first + tensor.place) for name, tensor in tensors.items()}

    def _integer(self, kind: int, key: str) -> int:
        """Read an integer of any type."""
        if kind not in _INTEGERS:
            raise _Bad(f"the value of '{key}' is not a whole number")
        return self._number(_INTEGERS[kind])

    def _number(self, form: str) -> int:
        """Read a whole number."""
        number: int = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return number

    def _text(self, most: int, what: str) -> str:
        """Read a string of UTF-8."""
        length = self._number("<Q")
        if length > most:
            raise _Bad(f"{what} has {length:,} bytes")
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as problem:
            raise _Bad(f"{what} is not UTF-8") from problem

    def _take(self, n_bytes: int) -> bytes:
        start = self._at
        self._skip(n_bytes, "its header")
        return self._content[start : self._at]

    def _skip(self, n_bytes: int, what: str) -> None:
        if n_bytes > self._size - self._at:
            raise _Bad(f"{what} continues beyond the file's end")
        self._at += n_bytes


def _n_bytes(name: str, kind: int, row_length: int, n_elements: int) -> int:
    """Return the bytes of a tensor; 0 for a newer type, which only llama.cpp may know."""
    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        return 0
    if row_length % block:
        raise _Bad(f"the tensor '{name}' has rows of {row_length:,} numbers, which do not fill blocks of {block}")
    return n_elements // int(block) * int(block_bytes)
