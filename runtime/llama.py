"""`octavo.Llama`: llama-cpp-python's `Llama` on octavo's attention."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp.llama_tokenizer import BaseLlamaTokenizer

from ..cpu_kernels.numba_support import background_compile
from ..cpu_kernels.numba_support import compile as compiling
from ..cpu_kernels.numba_support.machine_features import HAS_AMX, MULTIPLIES_WEIGHTS
from ..errors import OctavoError
from ..prompts.chat_template import TEMPLATE_NAME, ChatTemplate, special_tokens, without_templates
from ..prompts.conversation_tokens import ConversationTokens
from ..settings import LONGEST, MOST_THREADS, ModelSettings, check_number, check_whole
from ..system.working_time import working_time
from .context import Context
from .devices import AUTO, CPU, METAL
from .devices.choose import choose
from .devices.protocol import Device, UnsupportedModel
from .devices.step_costs import StepCosts, keep_costs, kept_costs
from .document.index import Index
from .document.stored_rows import rows_format
from .graph.attention_nodes import attention_nodes, cache_layers, silent_llama_cpp
from .llama_cpp_compat import DropIn, Tokenizer, piece_of
from .methods import DENSE
from .methods.assignment import assign, excess
from .methods.attention import Attention
from .models import model_file
from .models.gguf_header import weight_types
from .models.hub import files_of
from .models.llama_arguments import kv_type_named, original_n_ctx, rope_arguments, wants_extra_buffers
from .process.interruption import shielded
from .sequences.drafter import Drafter, Experience
from .sequences.sequence import TokenSequence, steps_within
from .store.index_check import check_fits
from .store.plan import Plan

#: Tokens at the end of a prompt that may change in the next turn, so that the state before them is kept.
_MAY_CHANGE = 32


class Llama(DropIn):
    """Drop-in for `llama_cpp.Llama`: the same arguments and methods, on octavo's KV cache and attention.

    Parameters
    ----------
    model_path : path
        The GGUF file.
    attention : Attention or str
        How tokens attend: a value, or words such as "dense" (llama.cpp's results), another method, a composition of
        methods (see methods/attention.py), "auto", which chooses for each document, or "llama.cpp" for llama.cpp's own
        attention.
    budget, quality, plan, retrieval_heads
        Further arguments of `Attention.parse`.
    n_ctx : int
        Largest number of tokens that a token may see: the longest sequence, unless every head forgets distant rows.
        0, the default here, takes the model's own. Unused context takes no memory.
    n_batch : int
        Largest number of tokens of a batch.
    type_k, type_v : int, optional
        Type of keys and values: both GGML_TYPE_F16, the default, or both GGML_TYPE_Q8_0, which takes half the
        memory, or GGML_TYPE_Q4_0, which takes 28 %. One alone applies to both.
    device : str
        Where attention runs: "cpu" or "metal". "auto", the default, takes Metal on Apple silicon, if Metal has the
        attention, and unless `octavo doctor --metal` measured the CPU to be faster. Then llama.cpp runs on Metal, too,
        unless n_gpu_layers is set. A document beyond the GPU's working set goes to the CPU, with the model.
    rope_scaling : str, optional
        "linear" or "yarn": how to stretch positions. llama.cpp's --rope-scaling.
    rope_scale : float
        Factor by which to stretch positions, and the context if n_ctx is 0. llama.cpp's --rope-scale.
    n_parallel : int
        Largest number of sequences in one step, a token of each (see sequence_pool.py). llama.cpp's --parallel.
    parallel_states : bool
        Whether this holds for a hybrid model, too, which then has memory for as many recurrent states.
    verbose : bool
        Whether llama.cpp prints its log.
    **arguments
        Further arguments of `llama_cpp.Llama`. With vocab_only, the model only tokenizes. A draft_model drafts for
        attentions that read many tokens at once; for tokens that are read one by one, it would save nothing.

    Raises
    ------
    OctavoError
        The file is not a usable model, or octavo cannot compute the model's attention.
    """

    #: How `load_model` loaded it, whether attention runs on Metal, a sentence if device="auto" avoids Metal, and the
    #: receiver of such a sentence later on.
    settings: ModelSettings | None = None
    on_metal = False
    device_note = ""
    notice: Callable[[str], None] = staticmethod(lambda sentence: None)

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        *,
        attention: Attention | str = DENSE,
        budget: float | None = None,
        quality: float | None = None,
        plan: Plan | None = None,
        retrieval_heads: float | None = None,
        n_ctx: int = 0,
        n_batch: int = 512,
        type_k: int | None = None,
        type_v: int | None = None,
        device: str = AUTO,
        rope_scaling: str | None = None,
        rope_scale: float = 1.0,
        n_parallel: int = 1,
        parallel_states: bool = True,
        verbose: bool = False,
        **arguments: Any,
    ) -> None:
        self._stack = contextlib.ExitStack()  # llama-cpp-python closes it, even if we refuse the arguments
        self._lock = threading.RLock()
        check_whole("n_ctx", n_ctx, 0, LONGEST)
        check_whole("n_batch", n_batch, 1, LONGEST)
        check_whole("n_parallel", n_parallel, 1)
        check_number("rope_scale", rope_scale)
        for name in ("n_threads", "n_threads_batch"):  # 0 and None are llama-cpp-python's own numbers
            check_whole(name, arguments.get(name), 0, MOST_THREADS, optional=True)
        shares = {"budget": budget, "quality": quality, "retrieval_heads": retrieval_heads}
        attention = Attention.of(attention, plan=plan, **shares)
        self._arguments = {"n_ctx": n_ctx, "n_batch": n_batch, "type_k": type_k, "type_v": type_v, "device": device}
        self._arguments |= {"rope_scaling": rope_scaling, "rope_scale": rope_scale, "n_parallel": n_parallel}
        self._arguments |= {"parallel_states": parallel_states, "verbose": verbose, **arguments}
        path, only_words = os.fspath(model_path), bool(arguments.get("vocab_only"))
        self.template_problem, own_types = model_file.check(path, only_words)
        self._file = os.path.abspath(path)
        self.files = model_file.ModelFiles(self._file)
        native = attention.is_llama_cpp or only_words
        if native:
            arguments |= {"type_k": type_k, "type_v": type_v}
        else:  # llama.cpp's own cache, of one batch, stays f16
            kv_type = kv_type_named(type_k, type_v)
            chosen_device, self.device_note = choose(device, attention, kv_type, path)
        if not native and arguments.get("embedding"):
            raise OctavoError("octavo's attention does not compute embeddings: use attention='llama.cpp'.")
        arguments |= rope_arguments(rope_scaling, rope_scale)
        self.sequence = TokenSequence(attention, attention)
        self._rope_scale, self._n_parallel, self._parallel_states = rope_scale, n_parallel, parallel_states
        length = n_ctx or n_batch * only_words if native else n_batch  # the vocabulary alone has no context
        arguments |= {"n_ctx": length, "n_batch": n_batch, "verbose": verbose}
        self._weight_types = set[int]()
        if MULTIPLIES_WEIGHTS and not native:
            self._weight_types = {*own_types, *weight_types(map(Path, files_of(self._file)[1:]))}
        if native:
            self._load(path, arguments)
            return
        if not compiling.compiled_before():
            chosen_device.compile_ahead((), self._weight_types)  # while the model is loaded
        try:
            self._load(path, chosen_device.model_arguments(arguments))
            self._use_own_context(kv_type, n_ctx, chosen_device)
        except UnsupportedModel:
            if device != AUTO:
                raise
            note = "The Metal kernels do not have this model's heads, so that attention runs on the CPU."
            self._load_on_cpu(kv_type, note, arguments)
        self._loaded_with = arguments

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        """Return the model's chat template; None without a usable one."""
        source = None if self.template_problem else self.metadata.get(TEMPLATE_NAME)
        return None if source is None else ChatTemplate(source, special_tokens(self._model))

    def prompt(
        self,
        has_document: bool = True,
        system: str = "",
        at: datetime | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> ConversationTokens:
        """Return the tokens of conversations; see `ConversationTokens`."""
        return ConversationTokens(self, has_document, system, options, at)

    @property
    def model_params(self) -> Any:
        """Return llama.cpp's parameters of the model."""
        return self._model_params

    @model_params.setter
    def model_params(self, params: Any) -> None:
        """Take the parameters that llama-cpp-python starts from, which has no argument for these buffers."""
        params.use_extra_bufts = self._extra_buffers
        self._model_params = params

    def _load(self, path: str, arguments: dict[str, Any]) -> None:
        """Have llama-cpp-python load the model. Raise OctavoError if it cannot."""
        self._extra_buffers = wants_extra_buffers(Path(path), HAS_AMX, bool(self._weight_types))
        quiet: contextlib.AbstractContextManager[list[str]]
        quiet = contextlib.nullcontext([]) if arguments["verbose"] else silent_llama_cpp()
        wants_named = str(arguments.get("chat_format")).startswith("chat_template.")
        templates = without_templates(only_named=not self.template_problem)
        with quiet as errors, contextlib.nullcontext() if wants_named else templates:
            try:
                super().__init__(path, **arguments)
            except ValueError as problem:
                if (refusal := model_file.refusal(path, problem, errors)) is None:
                    raise
                raise refusal from problem
        if not isinstance(arguments.get("tokenizer"), BaseLlamaTokenizer):
            self.tokenizer_: BaseLlamaTokenizer = Tokenizer(self)

    def _use_own_context(self, kv_type: str, n_ctx: int, device: Device) -> None:
        """Replace llama-cpp-python's context by one on our attention. An n_ctx of 0 is the model's own."""
        trained = int(self.metadata.get(f"{self.metadata.get('general.architecture')}.context_length", 0))
        n_ctx = n_ctx or int((trained or self._model.n_ctx_train()) * self._rope_scale)  # YaRN multiplies the latter
        self.n_batch: int = min(self.n_batch, n_ctx)
        params = self.context_params
        is_parallel = self._parallel_states or not llama_cpp.llama_model_is_hybrid(self.model)
        n_sequences = self._n_parallel if is_parallel else 1
        n_cells = max(self.n_batch, n_sequences)  # llama.cpp wants one for each sequence
        params.n_ctx = params.n_batch = params.n_ubatch = n_cells
        nodes = attention_nodes(self._model, params)
        if 0 < (original := original_n_ctx(self.metadata)) < n_ctx:  # RoPE factors depend on llama.cpp's n_ctx
            params.n_ctx = max(n_cells, original + 1)
        params.n_seq_max = n_sequences
        params.kv_unified = params.n_seq_max > 1
        if params.n_ctx > n_cells:  # the nodes have the factors for short texts
            nodes = [replace(node, rope=None) for node in nodes]
        layers = cache_layers(nodes, kv_type)
        self.on_metal, self._layers = device.name == METAL, layers
        attention = self._prepared(self.attention)
        resolved = attention.resolve_for(None, self.on_metal)
        self.sequence.attention, self.sequence.resolved_attention = attention, resolved
        self._ctx.close()
        context = Context(
            model=self._model,
            params=params,
            nodes=nodes,
            n_ctx=n_ctx,
            sequence=self.sequence,
            lock=self._lock,
            kv_type=kv_type,
            device=device,
            verbose=self.verbose,
        )
        self._ctx: Any = self._stack.enter_context(contextlib.closing(context))
        if self._lora_adapter is not None:
            adapters = (llama_cpp.llama_adapter_lora_p_ctypes * 1)(self._lora_adapter)
            llama_cpp.llama_set_adapters_lora(self._ctx.ctx, adapters, 1, (ctypes.c_float * 1)(self.lora_scale))
        self._n_ctx = context.longest
        self.input_ids = np.zeros(n_ctx, np.intc)
        if self._logits_all:
            self.scores = np.zeros((n_ctx, self._n_vocab), np.single)

    def _load_on_cpu(self, kv_type: str, note: str, arguments: dict[str, Any]) -> None:
        """Load the model anew, with its attention on the CPU, and note why."""
        self.close()
        self.device_note, device = note, choose(CPU, self.attention, kv_type)[0]
        self._load(self._file, device.model_arguments(arguments))
        self._use_own_context(kv_type, self._arguments["n_ctx"], device)

    def make_room_on_device(self, n_tokens: int, n_bytes: int) -> bool:
        """Load the model for the CPU if the GPU that "auto" chose lacks room for a document; return whether it did.

        The bytes are of its keys and values. The model is empty then. With further sequences it stays on the GPU.
        """
        device, kv_type = self.context.device, self.context.kv_type
        needed = n_bytes + self.files.n_bytes
        if self._arguments["device"] != AUTO or self.context.is_shared or needed <= device.working_set:
            return False
        seed, sizes = self._seed, f"{needed / 2**30:.1f} GiB, and this GPU works with {device.working_set / 2**30:.1f}"
        note = f"The model and {n_tokens:,} tokens take {sizes}, so that attention runs on the CPU."
        self._load_on_cpu(kv_type, note, self._loaded_with)
        self.set_seed(seed)
        self.notice(f"Note: {note}")
        return True

    def set_attention(self, attention: Attention | str, budget: float | None = None) -> None:
        """Change the attention from the next token on.

        Parameters
        ----------
        attention : Attention or str
            The new attention. Words are parsed with the plan and the retrieval heads of the old one.
        budget : float, optional
            An argument of `Attention.parse`.

        Raises
        ------
        OctavoError
            The words do not compose, or the context holds tokens after the document and the old or the new attention
            evicts rows.
        """
        if isinstance(attention, str):
            attention = self.attention.parsed(attention, budget=budget)
        attention = self._prepared(attention)
        with self.context.shielded():
            self._use(attention.resolve_for(self.context.cache.document, self.on_metal))
            self.sequence.attention = attention

    def _prepared(self, attention: Attention) -> Attention:
        """Return an attention with what depends on this model and this machine: the plan's layers, and step costs.

        `auto` never selects where heads are larger than its method computes.
        """
        if attention.plan is not None:  # gates cover all layers
            attention = replace(attention, plan=attention.plan.of_layers(self._layers))
        if self.on_metal or attention.auto is None:
            return attention
        if excess(attention.new_method(), self._layers):
            return replace(attention, selects_from=None)
        costs = self._step_costs
        return replace(attention, selects_from=costs.selects_from) if costs else attention

    @cached_property
    def _step_costs(self) -> StepCosts | None:
        """Return what a step costs on this machine, if it was measured."""
        return kept_costs(self._layers, self.context_params.n_threads)

    def measure_steps(self) -> None:
        """Measure what a step costs, unless that is known or nothing depends on it. The model must be empty."""
        attention = self.attention
        if attention.auto is None or attention.selects_from is None or self.on_metal:
            return
        if self._step_costs is None:
            self._step_costs = keep_costs(self._layers, self.context_params.n_threads)
            self.set_attention(attention)

    @contextlib.contextmanager
    def attending(self, attention: Attention) -> Iterator[None]:
        """Change the attention inside a `with` block. The model is empty before and after it."""
        before = self.attention
        try:
            self.reset()
            self.set_attention(attention)
            yield
        finally:
            self.reset()
            self.set_attention(before)

    def _follow(self, document: Index | None) -> None:
        """Resolve `auto` for the next document. If the choice changes, forget everything."""
        resolved = self.attention.resolve_for(document, self.on_metal)
        if resolved != self.resolved_attention:
            self.context.attach(None)
            self._use(resolved)

    def _use(self, resolved: Attention) -> None:
        """Use a resolved attention from the next token on."""
        self.context.use(assign(resolved, self.context.cache.layers))
        self.sequence.resolved_attention, self._n_ctx = resolved, self.context.longest

    def compile_ahead(self, attention: Attention, n_tokens: int) -> None:
        """Compile the kernels that an attention needs over a document of n_tokens tokens, in the background."""
        resolved = attention.resolve_for(n_tokens, self.on_metal)
        self.context.device.compile_ahead(assign(resolved, self.context.cache.layers))

    def compile_first(self, attention: Attention, n_tokens: int) -> None:
        """Compile these kernels before something is timed: nothing else is to use the cores meanwhile."""
        self.compile_ahead(attention, n_tokens)
        background_compile.wait()

    def attach(self, document: Index) -> None:
        """Start from an indexed document: as if its tokens had just been evaluated.

        Raise OctavoError if it does not fit the context, or has keys and values of another type.
        """
        n_tokens, kv_type = len(document.tokens), self.context.kv_type
        if document.kv_type != kv_type:
            raise OctavoError(
                f"The document's keys and values are stored as {document.kv_type}, and this model was loaded to store "
                f"them as {kv_type}: load it with type_k and type_v for {document.kv_type}, or index the document with "
                "this one."
            )
        check_fits(document, self._layers, self._n_vocab)
        document = document.stored_as(rows_format(self._layers[0].shape)[0])
        if bool(document.states) != self.context.is_hybrid:
            raise OctavoError("The index was made with another model: it has other recurrent states.")
        if n_tokens >= self.n_ctx():
            raise OctavoError(
                f"The document has {n_tokens:,} tokens, and the context of {self.n_ctx():,} leaves no room for a "
                "question: give a larger one (`n_ctx`)."
            )
        self.make_room_on_device(n_tokens, document.n_bytes)
        with self.context.shielded():
            try:
                self._follow(document)
                self.context.attach(document)
            finally:  # empty if that failed
                self.n_tokens, self._requires_eval = self.context.cache.n_tokens, True
            self.input_ids[:n_tokens] = document.tokens

    def switch(self, sequence: TokenSequence) -> None:
        """Compute another sequence from the next step on (see sequence_pool.py)."""
        with self.context.shielded():
            self.sequence = sequence
            self.context.switch(sequence)
            self._n_ctx = self.context.longest

    @property
    def longest(self) -> int:
        """Return the largest number of tokens of a sequence."""
        return int(self._n_ctx)

    def eval(self, tokens: Sequence[int]) -> None:
        """Evaluate tokens after the current ones. Raise OctavoError, before any of them, if they do not fit.

        Predict from the last one, or with `logits_all` from all. Where a method selects, each of these is a step of its
        own; a single token is one with every method.
        """
        in_prompt, self._in_prompt = self._in_prompt, False
        if in_prompt:
            self.eval_prompt(tokens)
        elif len(tokens) == 1 and self.sequence.drafter is not None and not self._logits_all:
            self._eval_drafted(tokens[0], self.sequence.drafter)
        else:
            predicts_all = self._arguments.get("logits_all") or self.draft_model is not None
            self._evaluate(tokens, len(tokens) if predicts_all else 1, is_step=len(tokens) == 1)

    @cached_property
    def drafts_so_far(self) -> Experience:
        """Return what drafts of all answers have shown."""
        return Experience()

    def _eval_drafted(self, token: int, drafter: Drafter) -> None:
        """Evaluate a token as `eval` does, and perhaps a draft with it, which the next tokens may turn out to be."""
        drafter.note(token)
        self._make_room(1)
        n_past = self.n_tokens
        if self.context.take_ahead(token):
            drafter.n_accepted += 1
            self.input_ids[n_past], self.n_tokens = token, n_past + 1
            return
        self.input_ids[n_past] = token
        draft = drafter.draft(self.input_ids[: n_past + 1], self.context.draft_room - 1)
        began = working_time()
        if draft:
            with self.context.shielded():
                self._batch.set_batch(batch=[token, *draft], n_past=n_past, logits_all=True)
                self.context.decode_drafted(self._batch)
                self.context.take_ahead(token)
                self.n_tokens, self._requires_eval = n_past + 1, False
        else:
            self._evaluate([token], 1, is_step=True)
        drafter.note_step(1 + len(draft), working_time() - began)

    def eval_prompt(self, tokens: Sequence[int]) -> None:
        """Evaluate the end of a prompt as `eval` does. A single token, too, continues the batches before it.

        A hybrid model keeps its recurrent state before the last tokens: the next turn's prompt often differs from where
        the template opened the answer, and returns to it.
        """
        if isinstance(self._ctx, Context) and self._ctx.is_hybrid:
            self._ctx.check_room(len(tokens))
            n_read = max(len(tokens) - _MAY_CHANGE, 0)
            if n_read:
                self.prefill(tokens[:n_read])
            self._ctx.keep_state()
            tokens = tokens[n_read:]
        self._evaluate(tokens, len(tokens) if self._arguments.get("logits_all") else 1)

    def prefill(self, tokens: Sequence[int], steps: Sequence[int] = ()) -> None:
        """Evaluate tokens as `eval` does, but predict from none of them.

        Parameters
        ----------
        tokens : sequence of int
            The tokens.
        steps : sequence of int
            The ones, by their place in the sequence, that were predicted from when they were read before: they are
            steps again, so that the numbers are the same.
        """
        first, done = self.n_tokens, 0
        if isinstance(self._ctx, Context) and self._ctx.cache.table.depends_on_steps:
            self._ctx.check_room(len(tokens))
            for step in steps_within(steps, first, first + len(tokens)):
                self._evaluate(tokens[done : step - first], 0)
                done = step - first + 1
                self._evaluate(tokens[done - 1 : done], 1, is_step=True)
        self._evaluate(tokens[done:], 0)

    def eval_all(self, tokens: Sequence[int]) -> np.ndarray:
        """Evaluate tokens as `prefill` does, and return the logits after each: float32, shape (n_tokens, n_vocab)."""
        self._make_room(len(tokens))
        logits = []
        for piece, _ in self._pieces(tokens, 0):
            for batch in self._batches(piece, is_step=False, logits_all=True):
                rows = [self._ctx.get_logits_ith(i) for i in range(len(batch))]
                logits += [np.ctypeslib.as_array(row, (self._n_vocab,)).copy() for row in rows]
        return np.array(logits)

    def _evaluate(self, tokens: Sequence[int], n_predicting: int, is_step: bool = False) -> None:
        """Evaluate tokens, and predict from the last n_predicting of them. A single one is a step if `is_step`."""
        if self.model_params.vocab_only:
            raise OctavoError("The model was loaded with vocab_only=True, without its weights: leave that out.")
        if not isinstance(self._ctx, Context):
            with self._lock:
                super().eval(tokens)
            return
        self._make_room(len(tokens))
        for piece, selects in self._pieces(tokens, n_predicting):
            for _ in self._batches(piece, is_step or selects, self._logits_all):
                pass

    def _make_room(self, n_tokens: int) -> None:
        """Make room for n_tokens more tokens. Raise OctavoError if they do not fit the context."""
        self.context.check_room(n_tokens)
        n_tokens, n_rows = self.n_tokens + n_tokens + self.n_batch, len(self.input_ids)  # a draft may follow
        if n_rows < n_tokens <= self.longest:
            self.input_ids = np.resize(self.input_ids, 2 * n_tokens)
            if self._logits_all:
                self.scores = np.vstack([self.scores, np.zeros((2 * n_tokens - n_rows, self._n_vocab), np.single)])

    def _pieces(self, tokens: Sequence[int], n_predicting: int) -> Iterator[tuple[Sequence[int], bool]]:
        """Cut tokens into pieces, so that the rows that a token sees do not depend on the cut.

        Methods that select evaluate a token that predicts alone, because a batch attends densely. With it comes True.
        Pieces also end where a method acts.
        """
        table = self.context.cache.table
        start, n_batched, batch_end = 0, len(tokens) - (n_predicting if table.cuts else 0), table.batch_end
        while start < len(tokens):
            stop = max(n_batched, start + 1)
            if batch_end:
                stop = min(stop, start + batch_end - self.n_tokens % batch_end)
            yield tokens[start:stop], start >= n_batched
            start = stop

    def _batches(self, piece: Sequence[int], is_step: bool, logits_all: bool) -> Iterator[list[int]]:
        """Evaluate a piece in batches, and yield the tokens of each after it was evaluated."""
        self._ctx.kv_cache_seq_rm(-1, self.n_tokens, -1)
        for start in range(0, len(piece), self.n_batch):
            batch = list(piece[start : start + self.n_batch])
            n_past, n_tokens = self.n_tokens, self.n_tokens + len(batch)
            with self.context.shielded():  # until all counts agree
                self._batch.set_batch(batch=batch, n_past=n_past, logits_all=logits_all)
                self.context.decode(self._batch, is_step)
                self.input_ids[n_past:n_tokens], self.n_tokens = batch, n_tokens
                if self._logits_all:
                    rows = np.ctypeslib.as_array(self._ctx.get_logits(), (len(batch) * self._n_vocab,))
                    self.scores[n_past:n_tokens] = rows.reshape(len(batch), -1)
                self._requires_eval = False
            yield batch

    def reset(self) -> None:
        """Forget all tokens, an attached document too."""
        if not isinstance(self._ctx, Context):
            super().reset()
            return
        with self.context.shielded():  # the base class would clear the states of all sequences
            self.n_tokens, self._requires_eval = 0, True
            self.context.attach(None)
            self._follow(None)

    def rewind(self, n_tokens: int) -> None:
        """Forget all but the first n_tokens tokens; read evicted tokens again if they are needed.

        In a hybrid model, read tokens again from the last recurrent state that was kept (`Context.keep_state`).
        """
        n_tokens = min(n_tokens, self.n_tokens)
        tokens, n_usable = self.input_ids[:n_tokens].tolist(), self.sequence.usable(n_tokens)
        steps = list(self.sequence.steps)
        with self._lock, shielded():
            if not self._ctx.kv_cache_seq_rm(-1, n_usable, -1):
                self.context.attach(self.context.cache.document)
                n_usable = self.context.cache.n_tokens
            self.n_tokens = n_usable
        if n_usable < n_tokens:
            self.prefill(tokens[n_usable:], steps)

    @cached_property
    def state_bytes(self) -> int:
        """Return the bytes of a recurrent state; 0 unless the model is a hybrid. The sequence is empty afterwards."""
        if not self.context.is_hybrid:
            return 0
        self.reset()
        self.prefill([max(self.token_bos(), 0)])
        state = self.context.state()
        self.reset()
        return 0 if state is None else state.n_bytes

    def logits(self) -> np.ndarray:
        """Return a copy of the logits after the last evaluated token: (n_vocab,) f32."""
        return np.ctypeslib.as_array(self._ctx.get_logits_ith(-1), (self._n_vocab,)).copy()

    def piece(self, token: int, special: bool = False) -> bytes:
        """Return the bytes of a token's text; of control tokens only with `special`."""
        return piece_of(self._model.vocab, token, special)

    def ends(self, token: int) -> bool:
        """Return whether a token ends an answer."""
        return bool(llama_cpp.llama_vocab_is_eog(self._model.vocab, token))
