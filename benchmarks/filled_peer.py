"""Time steps of ik_llama.cpp over random keys and values, as `octavo bench --fill random` does for octavo.

    ENVIRONMENT/bin/python benchmarks/filled_peer.py MODEL [--depths 8000 32000] [-t THREADS] [-n 32]

ENVIRONMENT is the folder peers/ik-llama-cpp-python-… in octavo's cache, which `octavo bench --peers ik` makes, with
NumPy in it. Reading 32,000 tokens takes a peer minutes, and a step takes as long over other numbers. So the cache is
filled with a state of random f16 numbers, flash attention is on, weights are repacked, and random tokens are decoded.

ik_llama.cpp's state of one sequence, without padding: the number of cells (u32); for each its position (i32) and 0;
whether values are transposed (u32) and the number of layers (u32); for the keys of each layer, then for the values of
each, the type (i32, 1 for f16), the bytes of a row (u64) and the rows; and 0 (u32).
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import time
from typing import Any

import numpy as np

_TOKENS, _FIRST, _WARM_UP, _BATCH, _F16 = 100, 16, 2, 512, 1

#: Different rows of keys and values, which layers share; their content does not change a step's time.
_DRAWN = 4


class Peer:
    """A model in a context of one sequence.

    Parameters
    ----------
    n_ctx, n_threads : int
        Longest context in tokens, and threads of a step.
    """

    def __init__(self, model: str, n_ctx: int, n_threads: int) -> None:
        self.api: Any = importlib.import_module("ik_llama_cpp._ctypes_api")
        self.api.llama_backend_init()
        loading, params = self.api.llama_model_default_params(), self.api.llama_context_default_params()
        loading.repack_tensors = True  # as `-rtr`: it multiplies faster
        params.flash_attn, params.type_k, params.type_v = True, _F16, _F16
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, _BATCH, _BATCH
        params.n_threads = params.n_threads_batch = n_threads
        self.context = self.api.llama_init_from_model(
            self.api.llama_model_load_from_file(model.encode(), loading), params
        )
        self.batch = self.api.llama_batch_init(_BATCH, 0, 1)

    def _call(self, name: str, result: Any, *arguments: tuple[Any, Any]) -> Any:
        """Call a function of llama.h that the module does not declare, with the types and values of its arguments."""
        function = getattr(self.api._lib, name)
        function.argtypes, function.restype = [ctypes.c_void_p, *(kind for kind, _ in arguments)], result
        return function(self.context, *(value for _, value in arguments))

    def evaluate(self, tokens: list[int], length: int) -> float:
        """Read tokens after the first `length`, and return the seconds."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, length + i, 1, 0
            batch.logits[i] = i == len(tokens) - 1
        start = time.perf_counter()
        code = self.api.llama_decode(self.context, batch)
        self.api.llama_get_logits_ith(self.context, len(tokens) - 1)  # which waits for the end of the computation
        seconds = time.perf_counter() - start
        if code:
            raise SystemExit(f"it fails after {length:,} tokens, with code {code}")
        return seconds

    def state(self) -> np.ndarray:
        """Return the state of the sequence, of a few tokens."""
        state = np.empty(1 << 26, np.uint8)
        where = (ctypes.c_void_p, state.ctypes.data), (ctypes.c_size_t, state.nbytes), (ctypes.c_int32, 0)
        return state[: self._call("llama_state_seq_get_data", ctypes.c_size_t, *where)]

    def fill(self, state: np.ndarray) -> None:
        """Replace the sequence by a state."""
        self._call("llama_kv_cache_seq_rm", ctypes.c_bool, *[(ctypes.c_int32, -1)] * 3)
        where = (ctypes.c_void_p, state.ctypes.data), (ctypes.c_size_t, state.nbytes), (ctypes.c_int32, 0)
        if self._call("llama_state_seq_set_data", ctypes.c_size_t, *where) != state.nbytes:
            raise SystemExit("it does not take this state")


def random_state(few: np.ndarray, n_cells: int, rng: np.random.Generator) -> np.ndarray:
    """Return a state of n_cells tokens, in the form of one of `_FIRST` tokens."""
    places = few[4 + 8 * _FIRST :]
    transposed, n_layers = places[:8].view(np.uint32)
    row_bytes = int(places[12:20].view(np.uint64)[0])
    if transposed or len(few) != 4 + 8 * _FIRST + 8 + 2 * int(n_layers) * (12 + _FIRST * row_bytes) + 4:
        raise SystemExit("its state has another form")
    cells = np.zeros((n_cells, 2), np.int32)
    cells[:, 0] = np.arange(n_cells)
    shape = n_cells * row_bytes // 2
    rows = [rng.standard_normal(shape, np.float32).astype(np.float16).tobytes() for _ in range(_DRAWN)]
    parts = [np.uint32(n_cells).tobytes(), cells.tobytes(), places[:8].tobytes()]
    parts += [part for i in range(2 * int(n_layers)) for part in (places[8:20].tobytes(), rows[i % _DRAWN])]
    return np.frombuffer(b"".join([*parts, bytes(4)]), np.uint8)


def main() -> None:
    """Print a line of JSON for each depth."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="GGUF file")
    parser.add_argument("--depths", type=int, nargs="+", default=[8000, 32000], help="tokens in the cache")
    parser.add_argument("-t", "--threads", type=int, default=2, help="threads (2)")
    parser.add_argument("-n", "--predict", type=int, default=32, help="tokens decoded at each depth (32)")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    n_steps = _WARM_UP + options.predict
    peer = Peer(options.model, -(-(max(options.depths) + n_steps) // 256) * 256, options.threads)
    peer.evaluate(rng.integers(_TOKENS, size=_FIRST).tolist(), 0)
    few = peer.state()
    for depth in options.depths:
        peer.fill(random_state(few, depth, rng))
        tokens = rng.integers(_TOKENS, size=n_steps).tolist()
        seconds = [peer.evaluate([token], depth + i) for i, token in enumerate(tokens)][_WARM_UP:]
        p10, median, p90 = (round(1e3 * float(np.quantile(seconds, share)), 2) for share in (0.1, 0.5, 0.9))
        print(json.dumps({"depth": depth, "decode_ms": median, "p10": p10, "p90": p90}), flush=True)


if __name__ == "__main__":
    main()
