"""A llama.cpp context whose KV cache and attention are ours."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import _internals as internals

from ..errors import OctavoError
from ..settings import LONGEST
from ..system.threads import waiting
from .cache.drafted_rows import DraftedRows
from .cache.kv_cache import KVCache
from .devices.protocol import Device, ExecutorArguments
from .document.cache_layer import Rows
from .document.index import Index
from .document.kept_state import KeptState
from .graph import ggml, hook, observer
from .graph.attention_nodes import AttentionNode, cache_layers, silent_llama_cpp
from .methods.assignment import assign
from .methods.method import Assignment
from .models.stored_weights import StoredWeights
from .process.interruption import Interruption, shielded
from .process.sigbus import n_lost_pages
from .query_recorder import Recorder
from .sequences.recurrent import RecurrentState, StateSlots
from .sequences.sequence import TokenSequence


@dataclass(frozen=True, eq=False)
class DraftedStep:
    """A token and its draft, which one step computed: llama.cpp has the logits after each of them.

    Parameters
    ----------
    tokens : list of int
        The token, and the draft.
    rows : DraftedRows
        Their rows.
    queries : list of arrays, optional
        What a recorder takes queries from.
    """

    tokens: Sequence[int]
    rows: DraftedRows
    queries: Sequence[np.ndarray | None] | None


class Context(internals.LlamaContext):
    """Drop-in for llama-cpp-python's LlamaContext: one sequence, of any length that memory holds, or several in turns.

    llama.cpp's own cache holds one batch and is cleared before each; `cache` holds the current sequence.

    Parameters
    ----------
    params : llama_context_params
        Parameters of llama.cpp's context; some are set here.
    n_ctx : int
        Largest number of tokens that a token may see: those of the sequence, unless it rolls (see `longest`).
    sequence : TokenSequence
        The first sequence, which receives its cache.
    lock : RLock
        Held while the context changes, so that threads take turns.
    kv_type : str
        Type of keys and values: F16, Q8_0 or Q4_0.

    Attributes
    ----------
    is_hybrid : bool
        Whether the model keeps a recurrent state, which cannot be cut as keys and values can.
    is_shared : bool
        Whether it has had further sequences.
    """

    is_shared = False

    def __init__(
        self,
        *,
        model: Any,
        params: Any,
        nodes: list[AttentionNode],
        n_ctx: int,
        sequence: TokenSequence,
        lock: threading.RLock,
        kv_type: str,
        device: Device,
        verbose: bool,
    ) -> None:
        self._exit_stack = ExitStack()  # the base class's; `close` needs it even after an interrupted `__init__`
        self.nodes = nodes
        self.kv_type, self.device, self._lock = kv_type, device, lock
        self._n_ctx, self._attention_share = n_ctx, 0.0
        self.shapes = [node.shape(kv_type) for node in nodes]
        layers = cache_layers(nodes, kv_type)
        assignments = assign(sequence.resolved_attention, layers)
        sequence.cache = KVCache(layers, n_ctx, device.fit_assignments(assignments), device.new_memory())
        self.sequence = sequence
        self._interruption = Interruption()
        n_threads = max(params.n_threads, params.n_threads_batch)
        sizes, stored = (params.n_ubatch, n_threads), StoredWeights.of(model).address
        self._executor = device.new_executor(
            ExecutorArguments(self.cache, nodes, self.shapes, *sizes, self._interruption, stored)
        )
        params.cb_eval = llama_cpp.ggml_backend_sched_eval_callback(hook.replace_attention.address)
        params.cb_eval_user_data = self._executor.step.ctypes.data
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.type_k = params.type_v = ggml.TYPE_F16
        params.offload_kqv, params.op_offload = device.on_gpu, device.on_gpu and params.op_offload
        self._n_together, self.is_hybrid = params.n_seq_max, bool(llama_cpp.llama_model_is_hybrid(model.model))
        if self.is_hybrid:
            params.n_seq_max, params.kv_unified = params.n_seq_max + 1, True
        with nullcontext() if verbose else silent_llama_cpp():
            super().__init__(model=model, params=params, verbose=verbose)
        self._states = StateSlots(self.ctx, self._n_together) if self.is_hybrid else None
        if self.is_hybrid:
            sequence.recurrent = RecurrentState()
        self._ahead: DraftedStep | None = None
        self._drafted_states: list[np.ndarray] = []
        self._n_lost_pages = n_lost_pages()
        # llama.cpp calls this between the nodes of a graph, so that Python handles signals; True abandons the graph. It
        # holds no reference to this context, which would otherwise outlive its last user.
        interruption = self._interruption
        self._abort = llama_cpp.ggml_abort_callback(lambda _: interruption.came)

    @property
    def cache(self) -> KVCache:
        """Return the keys and values of the current sequence."""
        return self.sequence.cache

    def new_sequence(self) -> TokenSequence:
        """Return an empty sequence that attends as the current one does."""
        current, cache, self.is_shared = self.sequence, self.cache, True
        sequence = TokenSequence(current.attention, current.resolved_attention, np.zeros_like(current.input_ids))
        sequence.recurrent = None if current.recurrent is None else RecurrentState()
        sequence.cache = KVCache(cache.layers, self._n_ctx, cache.table.assignments, self.device.new_memory())
        return sequence

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Put Ctrl-C off to the end of this context, but for a batch, which it abandons, and other threads, too."""
        with self._lock, shielded(self._interruption):
            yield

    def switch(self, sequence: TokenSequence) -> None:
        """Compute another sequence from the next step on: the first one, or one from `new_sequence`."""
        with self.shielded():
            self.sequence = sequence
            self._executor.capture(None)
            self._executor.follow(sequence.cache)

    def attach(self, document: Index | None) -> None:
        """Start over with a document's keys and values, or empty; empty, too, if that fails."""
        with self.shielded():
            try:
                self.cache.attach(document)
                self.sequence.forget_steps(self.cache.n_tokens)
                if (recurrent := self.sequence.recurrent) is not None:
                    recurrent.kept = [] if document is None else list(document.states)
                    self.return_to_state(self.cache.n_tokens)
            except BaseException:
                if document is not None:
                    self.attach(None)
                raise

    def state(self) -> KeptState | None:
        """Return the present recurrent state; None unless the model is a hybrid."""
        if self._states is None or self.sequence.recurrent is None:
            return None
        return KeptState(self.cache.n_tokens, self._states.read(self.sequence.recurrent))

    def state_blob(self) -> np.ndarray:
        """Return the present recurrent state as llama.cpp reads it, uint8; empty if there is none."""
        state = self.state()
        if self._states is None or state is None or not state.arrays:
            return np.zeros(0, np.uint8)
        return self._states.blob(state.arrays)

    def keep_state(self) -> None:
        """Keep the present recurrent state, so that the sequence can return to it. Do nothing without one."""
        if (state := self.state()) is not None and self.sequence.recurrent is not None:
            self.sequence.recurrent.keep(state, self.cache.n_document)

    def put_states(self, states: Sequence[KeptState]) -> None:
        """Replace the recurrent state after rows were appended.

        Parameters
        ----------
        states : sequence of KeptState
            States to keep, in rising order. The last one is that after all rows; without any, it is lost.
        """
        if self._states is None or self.sequence.recurrent is None:
            return
        if not states and self.cache.n_tokens:
            self._states.lose([self.sequence.recurrent])
            return
        self.sequence.recurrent.kept = [*self.sequence.recurrent.kept, *states]
        self.return_to_state(self.cache.n_tokens)

    def return_to_state(self, n_tokens: int) -> None:
        """Return to the recurrent state that is kept after n_tokens tokens. Do nothing without recurrent states.

        Raise OctavoError if it was not kept.
        """
        recurrent = self.sequence.recurrent
        if self._states is None or recurrent is None:
            return
        state = recurrent.last(n_tokens)
        if state.n_tokens != n_tokens:
            raise OctavoError("The recurrent state of these tokens was not kept: read them again.")
        recurrent.forget(n_tokens)
        self._states.put(recurrent, state.arrays)

    def use(self, assignments: list[Assignment]) -> None:
        """Attend by other methods from the next step on.

        Raise OctavoError if the context holds rows after the document, and the old or the new methods evict rows.
        """
        assignments = self.device.fit_assignments(assignments)
        before, document = self.cache.table.assignments, self.cache.document
        rows = self.cache.all_rows(assignments)
        with self.shielded():
            try:
                self._rearrange(assignments, document, rows)
            except BaseException:
                self._rearrange(before, document, rows)
                raise

    def _rearrange(self, assignments: list[Assignment], document: Index | None, rows: list[Rows]) -> None:
        self.cache.attach(None)
        self.cache.arrange(assignments)
        self.cache.attach(document)
        if rows:
            self.cache.append_rows(rows)

    def check_room(self, n_tokens: int) -> None:
        """Raise OctavoError unless n_tokens more tokens fit the context."""
        needed = self.cache.n_tokens + n_tokens
        if needed > self.longest:
            raise OctavoError(
                f"{needed:,} tokens do not fit the context of {self._n_ctx:,}: give a larger one (`n_ctx`)."
            )

    def decode(self, batch: internals.LlamaBatch, predicts: bool = True) -> None:
        """Run a batch that continues the cache, and add it to the cache.

        Parameters
        ----------
        batch : LlamaBatch
            The tokens.
        predicts : bool
            Whether a batch of one token is a step, which selects: it is predicted from. Other batches attend to
            everything, a single token that is only read, too.

        Raises
        ------
        OctavoError
            The batch does not continue the cache, does not fit the context or memory, or llama.cpp cannot compute it.
        """
        with self.shielded():
            n_tokens, n_past = batch.n_tokens(), self.cache.n_tokens
            if batch.batch.pos[0] != n_past or batch.batch.pos[n_tokens - 1] != n_past + n_tokens - 1:
                raise OctavoError(f"octavo keeps one sequence: a batch must continue at position {n_past}.")
            self.check_room(n_tokens)
            self._ahead = None
            is_step = predicts and n_tokens == 1
            recorder = self.sequence.recorder
            arrays = None if recorder is None else recorder.arrays(n_tokens)
            try:
                self.cache.reserve(n_tokens, is_step, self.params.n_threads)
                np.ctypeslib.as_array(batch.batch.pos, (n_tokens,))[:] -= self.cache.origin
                undone = self._place(batch, [self.sequence])
                if arrays is not None:
                    self._executor.capture(arrays)
                self._executor.start(n_tokens, self._attention_share)
                with undone:
                    self._compute(batch)
            except BaseException:
                self.cache.truncate(n_past)
                raise
            finally:
                if arrays is not None:  # they end with this call
                    self._executor.capture(None)
            self.cache.finish_step(self.params.n_threads)
            self.sequence.forget_steps(n_past)
            if is_step:
                self.sequence.steps.append(n_past)
            if recorder is not None and arrays is not None:
                recorder.take(arrays)

    @property
    def no_drafts(self) -> str:
        """Return why a step can compute no draft: a part of a sentence, empty if it can."""
        if self.is_hybrid:
            return "the model keeps a state that cannot go back by a token"
        if self.cache.table.chooses_rows:
            return "each step of this attention changes which rows are kept"
        return "" if self._executor.together else "the GPU computes one token in a step"

    @property
    def draft_room(self) -> int:
        """Return how many tokens `decode_drafted` can compute now, the first one included; 1 without drafts."""
        if self.no_drafts:
            return 1
        return max(min(self.cache.draft_room, self.longest - self.cache.n_tokens, int(self.params.n_batch)), 1)

    def decode_drafted(self, batch: internals.LlamaBatch) -> None:
        """Compute a token and its draft in one step, for `take_ahead`. The cache stays as it is.

        Parameters
        ----------
        batch : LlamaBatch
            The tokens, at most `draft_room`, all of them with logits.

        Raises
        ------
        OctavoError
            They do not fit into memory, or llama.cpp cannot compute them.
        """
        with self.shielded(), ExitStack() as undone:
            n_tokens, recorder = batch.n_tokens(), self.sequence.recorder
            queries = None if recorder is None else recorder.arrays(n_tokens)
            self._ahead = None
            rows = DraftedRows(self.cache, n_tokens, self._drafted_states)
            undone.callback(rows.step_back)
            np.ctypeslib.as_array(batch.batch.pos, (n_tokens,))[:] -= self.cache.origin
            computing = self._place(batch, [self.sequence])
            undone.callback(self._executor.capture, None)
            self._executor.capture(queries)
            self._executor.start_drafted(rows)
            n_threads, n_others = self.params.n_threads, self.params.n_threads_batch
            if n_others != n_threads:  # which would round the sums of threads in another way than a step does
                undone.callback(llama_cpp.llama_set_n_threads, self.ctx, n_threads, n_others)
                llama_cpp.llama_set_n_threads(self.ctx, n_threads, n_threads)
            with computing:
                self._compute(batch)
            self._ahead = DraftedStep(batch.batch.token[:n_tokens], rows, queries)

    def take_ahead(self, token: int) -> bool:
        """Add a token to the cache that was computed ahead as the next one. Return whether it was.

        Everything is then as after a step of it, and its logits are at `place_of_logits`.
        """
        ahead = self._ahead
        if ahead is None or not ahead.rows.is_next_of(self.cache) or ahead.tokens[ahead.rows.n_taken] != token:
            return False
        with self.shielded():
            number, n_past = ahead.rows.n_taken, self.cache.n_tokens
            ahead.rows.take(self.params.n_threads)
            self.sequence.forget_steps(n_past)
            self.sequence.steps.append(n_past)
            if self.sequence.recorder is not None and ahead.queries is not None:
                self.sequence.recorder.take(ahead.queries, number)
        return True

    def place_of_logits(self, number: int) -> int:
        """Return where llama.cpp has the logits of token `number` of the last step: a draft's are in one batch."""
        return number if self._ahead is None else self._ahead.rows.n_taken - 1

    @property
    def most_together(self) -> int:
        """Return the largest number of sequences of a step."""
        return self._n_together if self._executor.together else 1

    def decode_together(self, batch: internals.LlamaBatch, sequences: Sequence[TokenSequence]) -> None:
        """Run one step of several sequences: a token of each, in order, which continues the sequence's cache.

        Parameters
        ----------
        batch : LlamaBatch
            The tokens, each in a llama.cpp sequence of its own.
        sequences : sequence of TokenSequence
            At most `most_together` of them.

        Raises
        ------
        OctavoError
            A token does not fit its context or memory, or llama.cpp cannot compute the step.
        """
        with self.shielded():
            current, caches = self.sequence, [sequence.cache for sequence in sequences]
            self._ahead = None
            before = [cache.n_tokens for cache in caches]
            recorder = next((sequence.recorder for sequence in sequences if sequence.recorder is not None), None)
            arrays = None if recorder is None else recorder.arrays(len(caches))
            try:
                for sequence in sequences:
                    self.sequence = sequence
                    self.check_room(1)
                    self.cache.reserve(1, n_threads=self.params.n_threads)
                np.ctypeslib.as_array(batch.batch.pos, (len(caches),))[:] -= [cache.origin for cache in caches]
                undone = self._place(batch, sequences)
                self._executor.capture(arrays)
                self._executor.start_together(caches)
                with undone:
                    self._compute(batch)
            except BaseException:
                for cache, n_tokens in zip(caches, before, strict=True):
                    cache.truncate(n_tokens)
                raise
            finally:
                self.switch(current)
            for i, sequence in enumerate(sequences):
                sequence.cache.finish_step(self.params.n_threads)
                sequence.forget_steps(before[i])
                sequence.steps.append(before[i])
                if sequence.recorder is not None and arrays is not None:
                    sequence.recorder.take(arrays, i)

    def _place(self, batch: internals.LlamaBatch, sequences: Sequence[TokenSequence]) -> AbstractContextManager[None]:
        """Forget the rows of the last batch, and have llama.cpp hold the recurrent states of the next one.

        Returns
        -------
        context manager
            Within it the batch is computed: if that fails, states are put back, or noted as lost.
        """
        states = [sequence.recurrent for sequence in sequences if sequence.recurrent is not None]
        if self._states is None:
            llama_cpp.llama_memory_clear(self.memory, False)
            return nullcontext()
        slots = self._states.place(states)
        for i, slot in zip(range(batch.n_tokens()), itertools.cycle(slots), strict=False):
            batch.batch.seq_id[i][0] = slot
        return self._states.guarded(states, slots)

    def _compute(self, batch: internals.LlamaBatch) -> None:
        """Compute the batch that the executor is prepared for. Raise OctavoError if that fails."""
        n_threads = self.params.n_threads if batch.n_tokens() == 1 else self.params.n_threads_batch
        interruptible = batch.n_tokens() >= self._executor.interruptible
        abort = self._abort if interruptible else llama_cpp.ggml_abort_callback(0)
        llama_cpp.llama_set_abort_callback(self.ctx, abort, None)
        with waiting.step(n_threads), silent_llama_cpp() if interruptible else nullcontext():
            code = int(llama_cpp.llama_decode(self.ctx, batch.batch))
        self._executor.finish()
        if self._interruption.came and (code or interruptible):  # llama.cpp calls it no failure if a device abandons it
            raise KeyboardInterrupt
        if n_lost_pages() != self._n_lost_pages:
            raise OctavoError(
                "The model's file or the index became shorter while it was open, or its disk failed: start again."
            )
        if code:
            raise OctavoError(f"llama.cpp could not compute a batch (llama_decode returned {code}).")

    def get_logits_ith(self, i: int) -> Any:
        return super().get_logits_ith(self.place_of_logits(i))

    def n_ctx(self) -> int:
        """Return the largest number of tokens that a token may see."""
        return self._n_ctx

    @property
    def longest(self) -> int:
        """Return the largest number of tokens of the sequence: more than `n_ctx` if every head forgets distant rows."""
        return LONGEST if self.cache.rolls else self._n_ctx

    def kv_cache_clear(self) -> None:
        """Forget everything, an attached document too."""
        self.kv_cache_seq_rm(-1, 0, -1)

    def kv_cache_seq_rm(self, seq_id: int, p0: int, p1: int) -> bool:
        """Forget the tokens from position p0 on.

        Returns
        -------
        bool
            False if tokens follow p1, p0 is in a document, the remaining rows were evicted, or the recurrent state at
            p0 was not kept.
        """
        n_tokens, recurrent = self.cache.n_tokens, self.sequence.recurrent
        p0 = max(p0, 0)
        if 0 <= p1 < n_tokens and p1 > p0:
            return False
        if p0 >= n_tokens and not (recurrent and recurrent.is_lost):
            return True
        if recurrent and recurrent.last(p0).n_tokens != p0:
            return False
        with self.shielded():
            if not self.cache.truncate(p0):
                return False
            self.sequence.forget_steps(p0)
            self.return_to_state(p0)
        return True

    def kv_cache_seq_cp(self, seq_id_src: int, seq_id_dst: int, p0: int, p1: int) -> None:
        raise OctavoError("octavo keeps one sequence in a context: sequences cannot be copied.")

    def kv_cache_seq_keep(self, seq_id: int) -> None:
        """Do nothing: there is one sequence, and it is kept."""

    def kv_cache_seq_shift(self, seq_id: int, p0: int, p1: int, shift: int) -> None:
        raise OctavoError("octavo cannot shift positions in its cache.")

    def get_state_size(self) -> int:
        state = self.state()
        return self.cache.n_tail * self.cache.row_bytes + (0 if state is None else state.n_bytes)

    @contextmanager
    def attending_share(self, share: float) -> Iterator[None]:
        """Have batches of a long sequence read only the keys that hold a share of their attention; 0 for all.

        Devices other than the CPU always read all.
        """
        self._attention_share = share
        try:
            yield
        finally:
            self._attention_share = 0.0

    def record(self, recorder: Recorder | None) -> None:
        """Have a recorder keep queries from the next step on; None stops the recording."""
        self.sequence.recorder, self._ahead = recorder, None
        self._executor.capture(None)

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Pause the recording of queries."""
        sequence = self.sequence
        recorder, sequence.recorder = sequence.recorder, None
        try:
            yield
        finally:
            sequence.recorder = recorder

    @property
    def bytes_read(self) -> int:
        """Return the bytes that selection and attention read since this was last set to 0."""
        return int(self.cache.table.heads["bytes_read"].sum())

    @bytes_read.setter
    def bytes_read(self, value: int) -> None:
        self.cache.table.heads["bytes_read"] = value

    def observed(
        self, wants: Callable[[str], bool], take: Callable[[str, np.ndarray], bool]
    ) -> AbstractContextManager[None]:
        """Observe tensors of the graph while batches are computed (see `observer.observed`)."""
        return observer.observed(self._executor.step, wants, take)

    def observed_attention(self, take: Callable[[np.ndarray], None]) -> AbstractContextManager[None]:
        """Observe the output of each attention, in the order of `nodes` (see `observer.observed_attention`)."""
        return observer.observed_attention(self._executor.step, take)

    @contextmanager
    def captured_queries(self, n_tokens: int) -> Iterator[list[np.ndarray]]:
        """Yield arrays that receive the scaled queries of a batch of n_tokens tokens, one for each node.

        Each has the shape (n_kv_head, n_tokens, group, head_dim), f32.
        """
        arrays = [
            np.zeros((node.n_kv_head, n_tokens, shape.group, shape.head_dim), np.float32)
            for node, shape in zip(self.nodes, self.shapes, strict=True)
        ]
        self._executor.capture(arrays)
        try:
            with self.unrecorded():
                yield arrays
        finally:
            self._executor.capture(None)
