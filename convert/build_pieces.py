"""Write what a build has read in pieces, with the recurrent states between them, so that it resumes after the last."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from ..runtime.document.cache_layer import Rows
from ..runtime.document.kept_state import KeptState, kept_state
from ..runtime.llama import Llama
from ..runtime.store.index_files import read_states, state_path, write_state
from ..system.files import DamagedError, map_arrays, write_arrays
from .prefix_reuse import KnownRows

#: File of an unfinished index with the entries of its manifest that say what it is of.
ABOUT = "about.json"

#: File of an unfinished index with the tokens before the text, if the template writes the date there.
HEAD = "prefill-head.json"

#: Tokens of a piece that is written at once: an interruption loses no more.
PIECE = 1024


class Pieces:
    """The pieces of a text in the folder of a build.

    Parameters
    ----------
    llama : Llama
        The model that reads the text.
    n_tokens : int
        Tokens of the text.
    state_every : int
        Tokens after each of which the index keeps the recurrent state of a hybrid model, rounded up to pieces; 0 for
        none but that at the end.
    """

    def __init__(self, folder: Path, llama: Llama, n_tokens: int, state_every: int) -> None:
        self._folder, self._llama, self._n_tokens = folder, llama, n_tokens
        self._state_every = -(-state_every // PIECE) * PIECE

    @property
    def n_states(self) -> int:
        """Return the number of recurrent states that the index of a hybrid model keeps."""
        return 1 + (self._n_tokens // self._state_every if self._state_every else 0)

    def path(self, end: int) -> Path:
        """Return the path of the piece that ends before a position."""
        return self._folder / f"prefill-{end:08d}.safetensors"

    def arrays(self, end: int) -> dict[str, np.ndarray] | None:
        """Open a piece of an earlier build; None if it is missing or damaged."""
        try:
            return map_arrays(self.path(end), checked=True, in_place=True)
        except DamagedError:
            return None

    def queries(self) -> list[np.ndarray]:
        """Return the captured queries of the last tokens."""
        stored = map_arrays(self.path(self._n_tokens))
        return [stored[f"queries.{i}"] for i in range(len(self._llama.context.nodes))]

    def write(self, start: int, end: int, queries: list[np.ndarray]) -> None:
        """Write keys and values from a position on, the captured queries, and the present recurrent state."""
        self.write_state()
        cache = self._llama.context.cache
        rows = {
            f"{kind}.{i}": array
            for i in range(len(cache.layers))
            for kind, array in zip(("keys", "values"), cache.rows(i, start), strict=True)
        }
        write_arrays(self.path(end), rows | {f"queries.{i}": array for i, array in enumerate(queries)})
        self.forget_states(but=end)

    def write_state(self) -> None:
        """Write the present recurrent state, if there is one."""
        if (state := self._llama.context.state()) is not None:
            write_state(self._folder, state)

    def known(self, ends: Sequence[int], reused: KnownRows | None) -> list[tuple[int, Callable[[], list[Rows]]]]:
        """Return the ends of the first pieces whose rows are known, and functions that return the rows.

        The recurrent state of a hybrid model is known after the last of these pieces.

        Parameters
        ----------
        ends : sequence of int
            Ends of all pieces.
        reused : KnownRows or None
            Rows of another index.
        """
        found: list[tuple[int, Callable[[], list[Rows]]]] = []
        for start, end in itertools.pairwise([0, *ends]):
            if reused is not None and end <= reused.n_tokens:
                found.append((end, partial(reused.rows, start, end)))
            elif (arrays := self.arrays(end)) is not None:
                found.append((end, partial(_rows_of, arrays)))
            else:
                break
        while self._llama.context.is_hybrid and found and not self.states(found[-1][0], reused):
            found.pop()
        return found

    def states(self, n_tokens: int, reused: KnownRows | None) -> list[KeptState]:
        """Return the recurrent state after n_tokens tokens, if it is known; keep one of another index."""
        of_reused = () if reused is None else reused.states
        found = [state for state in of_reused if state.n_tokens == n_tokens]
        if not found and state_path(self._folder, n_tokens).exists():  # compares no other state with its checksum
            with suppress(DamagedError, ValueError):
                found = [kept_state(n_tokens, map_arrays(state_path(self._folder, n_tokens), checked=True))]
        if found and self._is_kept(n_tokens):
            write_state(self._folder, found[0])
        return found[:1]

    def _is_kept(self, n_tokens: int) -> bool:
        """Return whether the index keeps the recurrent state after n_tokens tokens."""
        return n_tokens == self._n_tokens or (self._state_every > 0 and n_tokens % self._state_every == 0)

    def forget_states(self, but: int = 0) -> None:
        """Remove the states that the index does not keep, but for the one after a number of tokens."""
        for state in read_states(self._folder):
            if not self._is_kept(state.n_tokens) and state.n_tokens != but:
                state_path(self._folder, state.n_tokens).unlink(missing_ok=True)


def _rows_of(arrays: dict[str, np.ndarray]) -> list[Rows]:
    """Return the keys and values of each layer in a piece."""
    n_layers = sum(name.startswith("keys.") for name in arrays)
    return [(arrays[f"keys.{i}"], arrays[f"values.{i}"]) for i in range(n_layers)]
