"""Keep the recurrent states of a hybrid model's sequences, some of which llama.cpp holds at a time.

A hybrid model has attention layers among recurrent ones. llama.cpp keeps both in one memory: the rows of a batch, which
are cleared before each batch as octavo keeps its own, and a recurrent state of each of its sequences, which must stay.
`llama_memory_seq_cp` treats a range of positions differently in the two halves: the half of the rows copies those of
the range, and the recurrent half shares the state, whatever the range. So an empty range moves the state alone. A state
that two sequences share is copied when one of them computes.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import llama_cpp
import numpy as np

from ...errors import OctavoError
from ..document.kept_state import BLOB, KeptState, arrays_of, form_of, last_state

_REFUSED = "The recurrent state was kept by another model or version of llama.cpp: read the text again."

#: Largest number of states that a sequence keeps after its document.
_MOST_KEPT = 8

#: llama.cpp's flag for the recurrent half of a state, and an empty range of positions.
_PARTIAL, _EMPTY = 1, (0, 0)


@dataclass(eq=False)
class RecurrentState:
    """The recurrent state of a sequence, and earlier ones that it can return to.

    Parameters
    ----------
    kept : list of KeptState
        States that the sequence can return to, in rising order.
    parked : mapping of str to array, optional
        The present state while llama.cpp does not hold it, empty before the first token; None while llama.cpp does.
    is_lost : bool
        Whether the present state is lost, as a step failed half-way.
    """

    kept: list[KeptState] = field(default_factory=list)
    parked: Mapping[str, np.ndarray] | None = field(default_factory=dict)
    is_lost: bool = False

    def keep(self, state: KeptState, n_document: int) -> None:
        """Keep a state after all others. Of many, those stay that lie closer together the nearer they are to the end.

        Parameters
        ----------
        n_document : int
            Tokens of the document, whose states all stay.
        """
        if not self.kept or self.kept[-1].n_tokens < state.n_tokens:
            self.kept.append(state)
        ends = [kept.n_tokens for kept in self.kept]
        first = sum(end <= n_document for end in ends)
        if len(ends) - first > _MOST_KEPT:
            inner = range(max(first, 1), len(ends) - 1)
            del self.kept[min(inner, key=lambda i: (ends[i + 1] - ends[i - 1]) / (ends[-1] - ends[i]))]

    def last(self, n_tokens: int) -> KeptState:
        """Return the last kept state after at most n_tokens tokens: the empty one, if there is none."""
        return last_state(self.kept, n_tokens) or KeptState(0, {})

    def forget(self, n_tokens: int) -> None:
        """Forget kept states after more than n_tokens tokens."""
        self.kept = [state for state in self.kept if state.n_tokens <= n_tokens]

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the states in memory: those of a document are mapped."""
        states = {id(arrays): arrays for arrays in (self.parked or {}, *(state.arrays for state in self.kept))}
        own = (array for arrays in states.values() for array in arrays.values() if not isinstance(array, np.memmap))
        return sum(array.nbytes for array in own)


class StateSlots:
    """The sequences of a llama.cpp context, each of which holds the state of one of ours, and one more to move with.

    Parameters
    ----------
    context : llama_context_p
        A context with `n_slots + 1` sequences, whose rows are in one stream (`kv_unified`).
    n_slots : int
        Largest number of sequences of a step.
    """

    def __init__(self, context: Any, n_slots: int) -> None:
        self._context, self._memory = context, llama_cpp.llama_get_memory(context)
        self._spare = n_slots
        self._unused = weakref.ref(RecurrentState())
        self._held: dict[int, weakref.ref[RecurrentState]] = dict.fromkeys(range(n_slots), self._unused)
        self._with_rows: list[int] = []  # slots of the last batch
        self._form = form_of(recurrent_state(context, self._spare))

    def _slot_of(self, state: RecurrentState) -> int | None:
        return next((slot for slot, held in self._held.items() if held() is state), None)

    def place(self, states: Sequence[RecurrentState]) -> list[int]:
        """Have llama.cpp hold some states, for a batch; return their slots. Forget the rows of the last batch.

        Raises
        ------
        OctavoError
            A state is lost, or llama.cpp refuses it.
        """
        self._forget_rows()
        if any(state.is_lost for state in states):
            raise OctavoError("The model's recurrent state was lost when a step failed: ask again.")
        free = [slot for slot, held in self._held.items() if held() not in states]  # least recently used first
        slots = []
        for state in states:
            slot = self._slot_of(state)
            if slot is None:
                slot = free.pop(0)
                self._park(slot)
                self._load(slot, state)
            self._held[slot] = self._held.pop(slot)  # most recently used last
            slots.append(slot)
        self._with_rows = slots
        return slots

    def read(self, state: RecurrentState) -> Mapping[str, np.ndarray]:
        """Return a copy of a present state."""
        if state.parked is not None:
            return state.parked
        self._forget_rows()  # llama.cpp takes those of sliding windows for a part of the state
        slot = self._slot_of(state)
        assert slot is not None
        return arrays_of(recurrent_state(self._context, slot))

    def put(self, state: RecurrentState, arrays: Mapping[str, np.ndarray]) -> None:
        """Replace a present state: llama.cpp gets the new one with the next batch."""
        if (slot := self._slot_of(state)) is not None:
            self._free(slot)
        state.parked, state.is_lost = arrays, False

    @contextmanager
    def guarded(self, states: Sequence[RecurrentState], slots: Sequence[int]) -> Iterator[None]:
        """Compute a batch of states in their slots. If that fails, it may leave them half advanced.

        The state of a single sequence is then put back. Those of several sequences are lost: to keep a copy of each
        would take twice the memory.
        """
        single = len(states) == 1
        if single:
            llama_cpp.llama_memory_seq_cp(self._memory, slots[0], self._spare, *_EMPTY)
        try:
            yield
        except BaseException:
            if single:
                self._move(self._spare, slots[0])
            else:
                self.lose(states)
            raise
        finally:
            llama_cpp.llama_memory_seq_rm(self._memory, self._spare, -1, -1)

    def lose(self, states: Sequence[RecurrentState]) -> None:
        """Note that the present states are not known: they are replaced before the next batch, or it fails."""
        for state in states:
            self.put(state, {})
            state.is_lost = True

    def _forget_rows(self) -> None:
        """Forget the rows of the last batch, and leave the states."""
        for slot in self._with_rows:
            self._move(slot, self._spare)
            self._move(self._spare, slot)
        self._with_rows = []

    def _move(self, source: int, target: int) -> None:
        """Move a state without its rows, in place of what the target holds."""
        llama_cpp.llama_memory_seq_rm(self._memory, target, -1, -1)
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, *_EMPTY)
        llama_cpp.llama_memory_seq_rm(self._memory, source, -1, -1)

    def _free(self, slot: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, slot, -1, -1)
        self._held[slot] = self._unused

    def _park(self, slot: int) -> None:
        """Free a slot; a sequence that it serves keeps its state itself."""
        if (state := self._held[slot]()) is not None:
            state.parked = self.read(state)
        self._free(slot)

    def _load(self, slot: int, state: RecurrentState) -> None:
        """Have a free slot hold a parked state."""
        assert state.parked is not None
        if state.parked:
            put_recurrent_state(self._context, slot, self.blob(state.parked))
        state.parked = None
        self._held[slot] = weakref.ref(state)

    def blob(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return a state as llama.cpp reads it: uint8. Raise OctavoError for the state of another model."""
        try:
            return arrays[BLOB] if self._form is None else self._form.blob(arrays)
        except (ValueError, KeyError) as problem:
            raise OctavoError(_REFUSED) from problem


def recurrent_state(context: Any, sequence: int) -> np.ndarray:
    """Copy the recurrent state of a llama.cpp sequence as llama.cpp writes it: uint8."""
    size = llama_cpp.llama_state_seq_get_size_ext(context, sequence, _PARTIAL)
    blob = np.empty(size, np.uint8)
    llama_cpp.llama_state_seq_get_data_ext(context, _pointer(blob), size, sequence, _PARTIAL)
    return blob


def put_recurrent_state(context: Any, sequence: int, blob: np.ndarray) -> None:
    """Replace the recurrent state of a llama.cpp sequence. Raise OctavoError if llama.cpp refuses it."""
    if llama_cpp.llama_state_seq_set_data_ext(context, _pointer(blob), blob.nbytes, sequence, _PARTIAL) == 0:
        raise OctavoError(_REFUSED)


def _pointer(data: np.ndarray) -> Any:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
