"""Keep the recurrent states of hybrid models in arrays that do not depend on the version of llama.cpp.

octavo keeps of a state: `position` (one I32), the position of its last token; and of recurrent layer N `r.N`, the last
inputs of its convolution, and `s.N`, what it sums up, which may be empty: F32 or F16, as llama.cpp holds them.

llama.cpp writes a state as one blob (`state_write` in its src/llama-memory-recurrent.cpp):

1. A header: a magic number (u32), and the number of the sequence (i32), which is not used.
2. If windows slide in other layers: the number of streams (u32, 1), and of rows (u32, 0).
3. The number of states (u32): 1, or 0 before the first token. Of a state the position (i32), and a number of sequences
   (u32, 0).
4. Whether `s` is transposed (u32, 0), and the number of the model's layers (u32).
5. `r` of each recurrent layer: its type (i32), its bytes (u64), and its numbers. Then `s` of each layer in the same
   way.

All numbers are in the machine's byte order, without padding. octavo before 0.4 kept such blobs. A blob of another form
is kept as it is: another version of llama.cpp may refuse it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

#: Name of an array with a blob.
BLOB = "state"

#: Bytes of a blob's header, and of the number of rows where windows slide.
STATE_HEADER_BYTES, _ROWS_BYTES = 8, 8
_COUNT, _CELL, _LAYERS, _TENSOR = (struct.Struct(form) for form in ("=I", "=iI", "=II", "=iQ"))

#: Types of tensors, by ggml's numbers.
_DTYPES: dict[int, np.dtype] = {0: np.dtype(np.float32), 1: np.dtype(np.float16)}


class KeptState(NamedTuple):
    """The recurrent state of a hybrid model after the first tokens of a text.

    Parameters
    ----------
    n_tokens : int
        Number of these tokens.
    arrays : mapping of str to array
        The state; empty before the first token.
    """

    n_tokens: int
    arrays: Mapping[str, np.ndarray]

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


def last_state(states: Sequence[KeptState], n_tokens: int) -> KeptState | None:
    """Return the last of some states, in rising order, after at most n_tokens tokens; None if there is none."""
    return next((state for state in reversed(states) if state.n_tokens <= n_tokens), None)


class StateForm(NamedTuple):
    """How this llama.cpp writes the states of a model.

    Parameters
    ----------
    before : bytes
        Its bytes before the number of states.
    layers : bytes
        Its bytes between a state's position and its tensors.
    tensors : tuple of (int, int)
        The type and the bytes of each `r`, and then of each `s`.
    """

    before: bytes
    layers: bytes
    tensors: tuple[tuple[int, int], ...]

    def blob(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return a state as llama.cpp reads it: uint8. Raise ValueError for the state of another model."""
        check_state(arrays)
        if BLOB in arrays:
            return arrays[BLOB]
        named = [(name, arrays[name]) for name in _names(len(self.tensors)) if name in arrays]
        if [(each.dtype, each.nbytes) for _, each in named] != [(_DTYPES[number], n) for number, n in self.tensors]:
            raise ValueError
        parts = [self.before, _COUNT.pack(1), _CELL.pack(int(arrays["position"][0]), 0), self.layers]
        for tensor, (_, array) in zip(self.tensors, named, strict=True):
            parts += [_TENSOR.pack(*tensor), array.tobytes()]
        return np.frombuffer(b"".join(parts), np.uint8)


def form_of(blob: np.ndarray) -> StateForm | None:
    """Return the form of a blob, with a state or without; None if octavo does not know it."""
    found = _parsed(blob)
    return None if found is None else found[0]


def arrays_of(blob: np.ndarray) -> dict[str, np.ndarray]:
    """Return the state in a blob, as views of it."""
    found = _parsed(blob)
    if found is None:
        return {BLOB: blob} if len(blob) else {}
    _, position, tensors = found
    if position is None:
        return {}
    return {"position": np.array([position], np.int32), **dict(zip(_names(len(tensors)), tensors, strict=True))}


def kept_state(n_tokens: int, arrays: Mapping[str, np.ndarray]) -> KeptState:
    """Return the state in the arrays of a file, or in a blob there. Raise ValueError if they hold none."""
    check_state(arrays)
    return KeptState(n_tokens, arrays_of(arrays[BLOB]) if BLOB in arrays else arrays)


def check_state(arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError unless arrays are a state, whatever the model."""
    if arrays.keys() == {BLOB} and arrays[BLOB].dtype == np.uint8 and arrays[BLOB].ndim == 1:
        return
    position, names = arrays.get("position"), _names(len(arrays) - 1)
    whole = position is not None and position.dtype == np.int32 and position.shape == (1,)
    if not whole or arrays.keys() != {"position", *names}:
        raise ValueError("these arrays hold no recurrent state")
    if any(arrays[name].ndim != 1 or arrays[name].dtype not in _DTYPES.values() for name in names):
        raise ValueError("these arrays hold no recurrent state")


def _names(n_tensors: int) -> list[str]:
    """Return the names of tensors, in the order of a blob."""
    return [f"{kind}.{i}" for kind in ("r", "s") for i in range(n_tensors // 2)]


def _parsed(blob: np.ndarray) -> tuple[StateForm, int | None, list[np.ndarray]] | None:
    """Return the form of a blob, the position of its state, and its tensors; None if it has another form."""
    for start in (STATE_HEADER_BYTES, STATE_HEADER_BYTES + _ROWS_BYTES):
        try:
            return _parsed_from(blob, start)
        except (ValueError, KeyError, struct.error):
            continue
    return None


def _parsed_from(blob: np.ndarray, start: int) -> tuple[StateForm, int | None, list[np.ndarray]]:
    """Parse a blob from the number of its states on. Raise ValueError, KeyError or struct.error for another form."""
    (n_states,), at = _COUNT.unpack_from(blob.data, start), start + _COUNT.size
    position, n_sequences = _CELL.unpack_from(blob.data, at) if n_states else (None, 0)
    at += _CELL.size * n_states
    layers, transposed = blob[at : at + _LAYERS.size].tobytes(), _LAYERS.unpack_from(blob.data, at)[0]
    if n_states > 1 or n_sequences or transposed:
        raise ValueError
    at += _LAYERS.size
    sizes, tensors = list[tuple[int, int]](), list[np.ndarray]()
    while at < len(blob):
        number, n_bytes = _TENSOR.unpack_from(blob.data, at)
        at += _TENSOR.size
        stop = at + n_bytes * n_states
        if stop > len(blob):
            raise ValueError
        sizes.append((number, n_bytes))
        tensors.append(blob[at:stop].view(_DTYPES[number]))
        at = stop
    if not tensors or len(tensors) % 2:
        raise ValueError
    return StateForm(blob[:start].tobytes(), layers, tuple(sizes)), position, tensors
