"""Run llama.cpp, or ik_llama.cpp, by its C functions: the batches and tokens of `octavo bench`, with logits."""

from __future__ import annotations

import ctypes
import importlib
import time
from pathlib import Path
from typing import Any

from .peer_process import Cannot, EvaluatingPeer, serve

#: ggml's numbers of the types of keys and values.
_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}


class CApi(EvaluatingPeer):
    """A model in a context of one sequence.

    Parameters
    ----------
    module : str
        Python module with the functions of llama.h.
    flash_attention : bool
        Whether flash attention is on.
    """

    def __init__(
        self,
        model: str,
        n_ctx: int,
        n_batch: int,
        n_threads: int,
        cache_type: str,
        module: str,
        flash_attention: bool,
        **_: Any,
    ) -> None:
        self.api = api = importlib.import_module(module)
        api.llama_backend_init()
        model_params, params = api.llama_model_default_params(), api.llama_context_default_params()
        self._is_ik = hasattr(model_params, "repack_tensors")
        if self._is_ik:
            model_params.repack_tensors = True  # as `-rtr`: it multiplies faster
            params.flash_attn = flash_attention
        else:
            params.flash_attn_type = int(flash_attention)
        self.model = api.llama_model_load_from_file(model.encode(), model_params)
        if not self.model:
            raise Cannot("it does not load this model")
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, n_batch, n_batch
        params.n_threads = params.n_threads_batch = n_threads
        params.type_k = params.type_v = _TYPES[cache_type]
        self.context = api.llama_init_from_model(self.model, params)
        if not self.context:
            raise Cannot(f"it does not keep keys and values of this model as {cache_type}")
        self.n_vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.batch = api.llama_batch_init(n_batch, 0, 1)
        self.length = 0
        self.logits: dict[int, bytes] = {}
        self.build = self._function("llama_print_system_info", [], ctypes.c_char_p)().decode().strip()

    def _function(self, name: str, arguments: list[Any], result: Any) -> Any:
        """Return a function of llama.h, also one that ik_llama.cpp's module does not declare."""
        function = getattr(self.api, name, None)
        if function is None:
            function = getattr(self.api._lib, name)
            function.argtypes, function.restype = arguments, result
        return function

    def evaluate(self, tokens: list[int]) -> float:
        batch, n = self.batch, len(tokens)
        batch.n_tokens = n
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, self.length + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = i == n - 1
        start = time.perf_counter()
        code = self.api.llama_decode(self.context, batch)
        logits = self.api.llama_get_logits_ith(self.context, n - 1)  # which waits for the end of the computation
        seconds = time.perf_counter() - start
        if code:
            raise Cannot(f"it fails after {self.length:,} tokens, with code {code}")
        self.length += n
        self.logits[self.length] = ctypes.string_at(logits, 4 * self.n_vocab)
        return seconds

    def read(self, tokens: list[int], last: bool) -> float:
        self.logits.clear()
        return super().read(tokens, last)

    def back(self, length: int) -> int:
        if self._is_ik:
            arguments = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
            self._function("llama_kv_cache_seq_rm", arguments, ctypes.c_bool)(self.context, 0, length, -1)
            self.length = length
        else:
            memory = self.api.llama_get_memory(self.context)
            partly = self.api.llama_memory_seq_rm(memory, 0, length, -1)
            self.length = length if partly else 0  # recurrent states only go back to the beginning
            if not partly:
                self.api.llama_memory_clear(memory, True)
        self.logits.clear()
        return self.length

    def scores(self, tokens: list[int], lengths: list[int], path: str) -> None:
        Path(path).write_bytes(b"".join(self.logits[length] for length in lengths))


def main() -> None:
    """Serve requests."""
    serve(CApi)
