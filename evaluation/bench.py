"""Time octavo against llama.cpp: one model, one text, all methods interleaved in one run.

Each engine first reads to a depth. Then the engines decode the text's next tokens in turn. llama.cpp runs with flash
attention on and off, and the better of the two counts for each figure; its q8_0 cache needs flash attention. Ways to
fill the caches:

- prefill: every engine reads the text itself, batch by batch, in turn. Engines that read densely and select only when
  they decode share the rows of our dense engine, as the index of a document.
- copy: our dense engine reads the text. llama.cpp gets a copy of its keys and values, and other engines get an index.
- random: no engine reads. Text, keys and values are random, and the same for all engines.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from ..convert.clusters import settings_for
from ..convert.pipeline import batches, calibrate, cluster, keep_whole
from ..cpu_kernels.numba_support.machine import cpu_name, read_bandwidth
from ..errors import OctavoError
from ..progress import Progress
from ..runtime.document.index import Index, IndexLayer
from ..runtime.graph.ggml import row_size
from ..runtime.llama import Llama
from ..runtime.load_model import note_compiling
from ..runtime.methods import DENSE
from ..runtime.methods.attention import Attention, Clustering
from ..runtime.methods.auto import SHORT
from ..runtime.models.llama_arguments import GGML_TYPES
from ..settings import ModelSettings
from ..system.processors import default_threads
from ..system.working_time import working_time
from .engines import Engine, llama_cpp_engines
from .llama_state import copy_sequence, refuse_windows
from .measures import kl_divergence, log_softmax, same_top_token
from .synthetic import fill_at_random

_BATCH = 512
_WARM_UP = 2


@dataclass(frozen=True)
class BenchSettings:
    """Depths, attentions and fill of a benchmark.

    Parameters
    ----------
    depths : list of int
        Tokens in the cache before decoding.
    attentions : list of Attention
        llama.cpp's own attention, and others with their plan. Dense always runs, to compare with.
    n_decode : int
        Tokens to decode at each depth.
    fill : str
        How the caches are filled: "prefill", "copy" or "random".
    draft : int, optional
        Drafts of octavo's engines, as in `Sampling`.
    """

    depths: list[int]
    attentions: list[Attention]
    n_decode: int
    fill: str = "prefill"
    draft: int | None = 0


class Bench:
    """Time all engines over one text.

    Parameters
    ----------
    model : ModelSettings
        The model's file, and how all engines run it. Unless `fill` is "prefill", they store keys and values as f16.
    text : str, optional
        The text; None for random tokens, with fill "random".

    Raises
    ------
    OctavoError
        The text or the model's context is too short, or the caches cannot be filled in this way.
    """

    def __init__(self, model: ModelSettings, text: str | None, settings: BenchSettings, progress: Progress) -> None:
        self.settings, self.progress, self.model, self.model_path = settings, progress, model, str(model.model)
        self.clustering, self.n_threads = settings_for(model.cache_type), model.n_threads or default_threads()
        self.kv_number = GGML_TYPES[model.cache_type]
        self.options: dict[str, Any] = {
            "n_batch": _BATCH,
            "n_threads": self.n_threads,
            "n_threads_batch": self.n_threads,
            "type_k": self.kv_number,
            "type_v": self.kv_number,
        }
        self.longest = max(settings.depths) + settings.n_decode + _WARM_UP
        note_compiling(progress.notice)
        self.dense = Engine(DENSE, Llama(self.model_path, device=model.device, **self.options))
        if settings.fill != "prefill":
            refuse_windows(self.dense.llama)
        self.rng = np.random.default_rng(self.clustering.seed)
        self.tokens = self._tokens(text)
        self.llama_cpp: list[Engine] = []
        if any(attention.is_llama_cpp for attention in settings.attentions):
            how = self.dense.llama.context.device.model_arguments(self.options)
            self.llama_cpp = llama_cpp_engines(self.model_path, self.longest, model.cache_type, how)
        self.octavo = [
            Engine(str(attention), Llama(self.model_path, attention=attention, device=model.device, **self.options))
            for attention in settings.attentions
            if not attention.is_llama_cpp and str(attention) != DENSE
        ]
        if self.longest > SHORT:  # below it nothing is selected
            for engine in self.octavo:
                engine.llama.measure_steps()

    def _tokens(self, text: str | None) -> list[int]:
        tokens: list[int]
        if text is None:
            tokens = self.rng.integers(self.dense.llama.n_vocab(), size=self.longest).tolist()
        else:
            tokens = self.dense.llama.tokenize(text.encode(), special=False)
        if len(tokens) < self.longest:
            raise OctavoError(
                f"This text has {len(tokens):,} tokens, and the deepest measurement needs {self.longest:,}: give a "
                "longer one with --doc, or smaller --depths."
            )
        n_ctx = self.dense.llama.n_ctx()
        if n_ctx < self.longest:
            raise OctavoError(
                f"The model's context is {n_ctx:,} tokens, and the deepest measurement needs {self.longest:,}: give "
                "smaller --depths, or a long-context model with -m."
            )
        return tokens

    def run(self) -> dict[str, Any]:
        """Measure all engines; return the content of `octavo bench -o json`."""
        settings = self.settings
        machine = {
            "cpu": cpu_name(),
            "threads": self.n_threads,
            "read_bandwidth_gb_s": round(read_bandwidth(self.n_threads) / 1e9, 2),
        }
        results = [row for depth in sorted(set(settings.depths)) for row in self._at_depth(depth)]
        metadata = self.dense.llama.metadata
        model = {
            "file": os.path.basename(self.model_path),
            "name": metadata.get("general.name"),
            "architecture": metadata.get("general.architecture"),
            "parameters": self.dense.llama._model.n_params(),
        }
        return {
            "machine": machine,
            "model": model,
            "fill": settings.fill,
            "cache_type": self.model.cache_type,
            "device": self.dense.llama.context.device.name,
            "results": results,
        }

    def _at_depth(self, depth: int) -> list[dict[str, Any]]:
        engines = [*self.llama_cpp, self.dense, *self.octavo]
        for engine in (self.dense, *self.octavo):
            engine.llama.compile_first(engine.llama.attention, depth)
        if depth:
            queries, layers = self._fill(depth)
            self._attach(depth, queries, layers)
        for engine in engines:
            engine.keep_state()
        self._decode(depth, engines)
        rows = self._rows(depth, engines)
        for engine in engines:
            if engine in self.octavo:
                engine.start_over()  # the next depth has a document of its own
            else:
                engine.back_to(depth)
        return rows

    def _reads(self, engine: Engine) -> bool:
        """Return whether an engine of ours reads the text itself, because its prefill is not dense."""
        return self.settings.fill == "prefill" and engine.llama.context.cache.evicts

    def _fill(self, depth: int) -> tuple[list[np.ndarray], list[IndexLayer]]:
        """Bring all engines that read to this depth, at least 1.

        Return dense attention's queries to calibrate on, and the document's layers if they need no clustering.
        """
        fill, dense = self.settings.fill, self.dense
        layers: list[IndexLayer] = []
        if fill == "random":
            tokens = self.tokens[:depth]
            queries, layers = fill_at_random(dense.llama, tokens, self.clustering, self.rng, self.progress)
        else:
            readers = [*self.llama_cpp, dense, *filter(self._reads, self.octavo)] if fill == "prefill" else [dense]
            queries = self._read(depth, readers)
        if fill != "prefill" and self.llama_cpp:
            self.progress.start(f"Copying {depth:,} tokens to llama.cpp", len(self.llama_cpp), "contexts")
            for engine in self.llama_cpp:
                copy_sequence(dense.llama, engine.llama)
                self.progress.advance(1)
        return queries, layers

    def _read(self, depth: int, engines: list[Engine]) -> list[np.ndarray]:
        """Have engines read the text to this depth, in turn; return dense attention's queries of the last tokens."""
        dense = self.dense
        n_last = min(self.clustering.exact_last, depth - dense.llama.n_tokens)
        self.progress.start(f"Reading to {depth:,}", sum(depth - engine.llama.n_tokens for engine in engines), "tokens")
        queries: list[np.ndarray] = []
        turns = zip_longest(*(batches(engine.llama.n_tokens, depth, _BATCH, n_last) for engine in engines))
        for turn in turns:
            for engine, batch in zip(engines, turn, strict=True):
                if batch is None:
                    continue
                tokens = self.tokens[batch.start : batch.stop]
                if engine is dense and batch.stop == depth:
                    with dense.llama.context.captured_queries(len(batch)) as queries:
                        engine.prefill(tokens)
                else:
                    engine.prefill(tokens)
                self.progress.advance(len(batch))
        return queries

    def _attach(self, depth: int, queries: list[np.ndarray], layers: list[IndexLayer]) -> None:
        """Give the engines that do not read the rows of the dense engine, as a document.

        layers : of this document, with clusters for all engines; if empty, this method makes them
        """
        engines = [engine for engine in self.octavo if not self._reads(engine)]
        if not engines:
            return
        tokens, cache = self.tokens[:depth], self.dense.llama.context.cache
        clusterings = {engine.llama.attention.clustering_key(depth, engine.llama.on_metal) for engine in engines}
        documents: dict[Clustering, tuple[Index, float]] = {}
        for clustering in sorted(clusterings, key=str):
            start, settings = working_time(), settings_for(self.model.cache_type, dict(clustering or {}))
            if layers or clustering is None:
                document_layers = layers or keep_whole(cache)
            else:
                task = f"Clustering {depth:,} tokens"
                document_layers = list(cluster(cache, settings, self.progress, self.n_threads, task=task))
            document = calibrate(self.dense.llama, document_layers, queries, tokens)
            documents[clustering] = document, working_time() - start
        for engine in engines:
            document, indexing_s = documents[engine.llama.attention.clustering_key(depth, engine.llama.on_metal)]
            start = working_time()
            engine.llama.attach(replace(document, curves={}, extras={}))  # each takes the time to make its own
            if self.dense.prefill_s:
                engine.prefill_s = self.dense.prefill_s + working_time() - start
                engine.prefill_s += indexing_s

    def _decode(self, depth: int, engines: list[Engine]) -> None:
        """Decode the text's next tokens with each engine in turn."""
        n = self.settings.n_decode + _WARM_UP
        self.progress.start(f"Decoding at {depth:,}", n, "tokens")
        for i, token in enumerate(self.tokens[depth : depth + n]):
            if i == _WARM_UP:
                for engine in engines:
                    engine.measure_anew(self.settings.draft)
            for engine in engines:
                engine.decode(token)
            self.progress.advance(1)
        for engine in (self.dense, *self.octavo):
            engine.llama.sequence.drafter = None

    def _rows(self, depth: int, engines: list[Engine]) -> list[dict[str, Any]]:
        layers = self.dense.llama.context.cache.layers
        widths = [n for layer in layers for n in (layer.head_dim, 0 if layer.latent else layer.shape.value_dim)]
        heads = [layer.n_kv_head for layer in layers for _ in range(2)]
        row_bytes = sum(row_size(self.kv_number, n * width) for n, width in zip(heads, widths, strict=True))
        mean_length = depth + _WARM_UP + (self.settings.n_decode + 1) / 2
        rows = []
        for attention in self.settings.attentions:
            if attention.is_llama_cpp:
                best = min(self.llama_cpp, key=lambda engine: engine.token_s)
                prefill_s = min(engine.prefill_s for engine in self.llama_cpp)
                kv_bytes, bytes_read = best.llama.n_ctx() * row_bytes, round(mean_length * row_bytes)
            else:
                best = next(engine for engine in engines if engine.name == str(attention))
                context = best.llama.context
                prefill_s = best.prefill_s
                kv_bytes, bytes_read = context.cache.kv_bytes, context.bytes_read // self.settings.n_decode
            decode_s = best.token_s
            divergence, agreement = compare(self.dense.logits, best.logits)
            rows.append(
                {
                    "attention": str(attention),
                    "budget": attention.budget if attention.has_budget else 1.0,
                    "depth": depth,
                    "prefill_tokens_per_s": round(depth / prefill_s, 1) if prefill_s else None,
                    "decode_ms": round(decode_s * 1e3, 2),
                    "decode_tokens_per_s": round(1 / decode_s, 1),
                    "tokens_per_step": round(best.tokens_per_step, 2),
                    "kv_bytes": kv_bytes,
                    "bytes_read_per_token": bytes_read,
                    "kl_divergence": round(divergence, 5),
                    "top1_agreement": round(agreement, 3),
                    **(
                        {"flash_attention": best.flash_attention}
                        if attention.is_llama_cpp
                        else {"chosen": str(best.llama.resolved_attention)}
                    ),
                }
            )
        return rows


def compare(expected: list[np.ndarray], actual: list[np.ndarray]) -> tuple[float, float]:
    """Compare the next-token distributions of two engines.

    Parameters
    ----------
    expected, actual : lists of float arrays, shape (n_vocab,)
        Logits of the same steps.

    Returns
    -------
    divergence : float
        Mean KL divergence of `actual` from `expected`, in nats.
    agreement : float
        Share of steps with the same most likely token.
    """
    p, q = log_softmax(np.array(expected)), log_softmax(np.array(actual))
    return float(kl_divergence(p, q).mean()), same_top_token(p, q)
