"""Time octavo against other engines: one model, one text, all interleaved in one run.

Each engine warms up, decodes a few tokens over nothing, for a step's time without attention, and reads to a depth. Then
the engines decode the text's next tokens in turn, and read a question. llama.cpp runs with flash attention on and off,
and the better of the two counts for each figure; its q8_0 cache needs flash attention. Ways to fill the caches:

- prefill: every engine reads the text itself, batch by batch, in turn. Engines that read densely and select only when
  they decode share the rows of our dense engine, as the index of a document; their time is that of an engine that
  reads as `octavo index` does.
- copy: our dense engine reads the text. llama.cpp gets a copy of its keys and values, and other engines get an index.
- random: no engine reads. Text, keys and values are random, and the same for all engines.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..convert.clusters import settings_for
from ..convert.pipeline import batches, calibrate, cluster, keep_whole, prefill_attention_share
from ..cpu_kernels.numba_support.machine import read_bandwidth
from ..cpu_kernels.prefill.sparse_prefill import FEWEST_BLOCKS
from ..cpu_kernels.prefill.tile_scratch import BLOCK
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
from ..runtime.store.model_library import Library
from ..settings import PREFILL_SPARSE, ModelSettings
from ..system.processors import default_threads
from ..system.sensors import peak_resident_bytes
from ..system.working_time import working_time
from .bench_record import machine, machine_now, model_record, peer_record, software, text_record
from .bench_rows import Rows
from .engines import Engine, context_for, llama_cpp_engines
from .llama_state import copy_sequence, refuse_windows
from .peer_engine import PeerEngine
from .peer_table import Peer
from .synthetic import fill_at_random

_Work = TypeVar("_Work")

_BATCH = 512
_WARM_UP = 2

#: Seconds in which an engine warms up: threads that have just started may share a core for so long.
_WARM_UP_S = 1 / 3

#: Most tokens that each engine decodes over nothing, and from how many on a document is read sparsely.
_WITHOUT_CONTEXT, _LONG = 16, FEWEST_BLOCKS * BLOCK

#: A peer is given up in a turn that takes these seconds and this number of our dense readings.
_PATIENCE_S, _PATIENCE = 60.0, 20


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
    n_question : int
        Tokens of a question over what was read; 0 for none.
    repetitions : int
        How often `n_decode` tokens are decoded and a question is read, one after another in the text.
    delay_s : float
        Seconds to wait before each repetition but the first, so that a warm machine cools down.
    alone : bool
        Whether engines run one after another; else they take turns, token by token.
    peers : mapping
        Other engines by name, which run in processes of their own and read the text themselves.
    """

    depths: list[int]
    attentions: list[Attention]
    n_decode: int
    fill: str = "prefill"
    draft: int | None = 0
    n_question: int = 0
    repetitions: int = 1
    delay_s: float = 0.0
    alone: bool = False
    peers: Mapping[str, Peer] = field(default_factory=dict)

    @property
    def n_tokens(self) -> int:
        """Tokens after the document."""
        return self.repetitions * (_WARM_UP + self.n_decode + self.n_question)


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
        self.longest = max(settings.depths) + settings.n_tokens
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
        self.peers = [
            PeerEngine(name, peer, way, self.n_threads)
            for name, peer in settings.peers.items()
            for way in peer.ways_for(model.cache_type)
        ]
        self.reader: Engine | None = None
        if settings.fill == "prefill" and max(settings.depths) >= _LONG and not all(map(self._reads, self.octavo)):
            self.reader = Engine(
                "index",
                Llama(self.model_path, attention=DENSE, device=model.device, **self.options),
                covers=prefill_attention_share(PREFILL_SPARSE, self.dense.llama),
            )
        if self.longest > SHORT:  # below it nothing is selected
            for engine in self.octavo:
                engine.llama.measure_steps()

    def close(self) -> None:
        """Free the models, and end the peers."""
        for engine in [*self.llama_cpp, self.dense, *self.octavo, *([self.reader] if self.reader is not None else [])]:
            engine.llama.close()
        for peer in self.peers:
            peer.close()

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

    def run(self) -> Iterator[dict[str, Any]]:
        """Measure all engines; yield the rows of `octavo bench -o json`, depth by depth."""
        self._load_peers()
        self._without_context()
        where = {
            "threads": self.n_threads,
            "read_bandwidth_gb_s": round(read_bandwidth(self.n_threads) / 1e9, 2),
        }
        for depth in sorted(set(self.settings.depths)):
            for row in self._at_depth(depth):
                yield {**row, **where}

    def _load_peers(self) -> None:
        settings = self.settings
        for engine in self.peers:
            self.progress.start(f"Loading {engine.name}", 1, "models")
            engine.load(
                self.model_path,
                n_ctx=context_for(self.longest),
                n_batch=_BATCH,
                n_threads=self.n_threads,
                cache_type=self.model.cache_type,
                n_vocab=self.dense.llama.n_vocab(),
                n_decode=settings.n_decode,
                n_most=settings.repetitions * (_WARM_UP + settings.n_decode),
            )
            self.progress.advance(1)

    @property
    def _engines(self) -> list[Engine | PeerEngine]:
        return [*self.llama_cpp, self.dense, *self.octavo, *self.peers]

    def _without_context(self) -> None:
        """Measure each engine's step over nothing, and forget it."""
        for ours in (self.dense, *self.octavo):
            ours.llama.compile_first(ours.llama.attention, 0)
        for engine in self._engines:
            engine.keep_state()
        tokens = self.tokens[: _WARM_UP + min(self.settings.n_decode, _WITHOUT_CONTEXT)]
        self._warm_up(tokens)
        self.progress.start("Decoding over nothing", len(tokens) * len(self._engines), "tokens")
        self._decode(tokens, self._engines, draft=0)
        for engine in self._engines:
            engine.step_s = engine.token_s
            self._forget(engine, 0)

    def _warm_up(self, tokens: list[int]) -> None:
        """Have each engine decode tokens over nothing, and forget them, again and again."""
        self.progress.start("Warming up", len(self._engines), "engines")
        for engine in self._engines:
            ends = working_time() + _WARM_UP_S
            while working_time() < ends:
                for token in tokens:
                    engine.decode(token, warm=False)
                self._forget(engine, 0)
            self.progress.advance(1)

    def _at_depth(self, depth: int) -> list[dict[str, Any]]:
        for ours in (self.dense, *self.octavo):
            ours.llama.compile_first(ours.llama.attention, depth)
        if depth:
            queries, layers = self._fill(depth)
            self._attach(depth, queries, layers)
        for engine in self._engines:
            engine.keep_state()
        self._answer(depth)
        self._score_peers(depth)
        rows = self._rows(depth)
        for engine in self._engines:
            self._forget(engine, depth)
        return rows

    def _forget(self, engine: Engine | PeerEngine, depth: int) -> None:
        """Forget all tokens after the first `depth`. The next depth has a document of its own."""
        if isinstance(engine, Engine) and any(engine is ours for ours in self.octavo):
            engine.start_over()
        else:
            engine.back_to(depth)

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
            reader = [self.reader] if self.reader is not None else []
            everyone = [*self.llama_cpp, dense, *reader, *filter(self._reads, self.octavo)]
            queries = self._read(depth, [*everyone, *self.peers] if fill == "prefill" else [dense])
        if fill != "prefill" and self.llama_cpp:
            self.progress.start(f"Copying {depth:,} tokens to llama.cpp", len(self.llama_cpp), "contexts")
            for engine in self.llama_cpp:
                copy_sequence(dense.llama, engine.llama)
                self.progress.advance(1)
        return queries, layers

    def _read(self, depth: int, engines: Sequence[Engine | PeerEngine]) -> list[np.ndarray]:
        """Have engines read the text to this depth, in turn; return dense attention's queries of the last tokens."""
        dense = self.dense
        n_last = min(self.clustering.exact_last, depth - dense.llama.n_tokens)
        self.progress.start(f"Reading to {depth:,}", sum(depth - engine.n_tokens for engine in engines), "tokens")
        queries: list[np.ndarray] = []
        work = [[(engine, batch) for batch in batches(engine.n_tokens, depth, _BATCH, n_last)] for engine in engines]
        for engine, batch in self._in_order(work):
            tokens = self.tokens[batch.start : batch.stop]
            last = batch.stop == depth
            if last and isinstance(engine, PeerEngine):
                engine.patience_s = _PATIENCE_S + _PATIENCE * dense.prefill_s
            captures = last and engine is dense
            with dense.llama.context.captured_queries(len(batch)) if captures else nullcontext(queries) as captured:
                engine.prefill(tokens, last)
            queries = captured
            self.progress.advance(len(batch))
        return queries

    def _in_order(self, work: Iterable[Iterable[_Work]]) -> Iterable[_Work]:
        """Put the work of engines in order: all of one engine first, or a piece of each in turn."""
        if self.settings.alone:
            return chain.from_iterable(work)
        return (piece for turn in zip_longest(*work) for piece in turn if piece is not None)

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
            read_s = (self.reader or self.dense).prefill_s
            if read_s:
                engine.prefill_s = read_s + working_time() - start
                engine.prefill_s += indexing_s

    def _answer(self, depth: int) -> None:
        """Decode the text's next tokens, and read a question, as often as asked."""
        settings, each = self.settings, self.settings.n_tokens // self.settings.repetitions
        self.progress.start(f"Decoding at {depth:,}", settings.n_tokens * len(self._engines), "tokens")
        for repetition in range(settings.repetitions):
            if repetition:
                time.sleep(settings.delay_s)
            tokens = self.tokens[depth + repetition * each : depth + (repetition + 1) * each]
            self._decode(tokens[: _WARM_UP + settings.n_decode], self._engines, settings.draft)
            for engine in self._engines if settings.n_question else ():
                engine.ask(tokens[-settings.n_question :])
                self.progress.advance(settings.n_question)

    def _decode(self, tokens: list[int], engines: Sequence[Engine | PeerEngine], draft: int | None) -> None:
        """Decode tokens with each engine; the first ones warm it up."""
        for engine, i in self._in_order([[(engine, i) for i in range(len(tokens))] for engine in engines]):
            if i == _WARM_UP:
                engine.begin(draft)
            engine.decode(tokens[i], warm=i >= _WARM_UP)
            self.progress.advance(1)
        for engine in engines:
            engine.end()

    def _score_peers(self, depth: int) -> None:
        """Have the peers score the tokens that all engines decoded."""
        lengths = [depth + i for i in self._scored()]
        for engine in self.peers if lengths else ():
            self.progress.start(f"Scoring by {engine.name}", 1, "texts")
            engine.score(self.tokens[: depth + self.settings.n_tokens], lengths, self.dense.llama.n_vocab())
            self.progress.advance(1)

    def _scored(self) -> dict[int, int]:
        """Return the places of decoded tokens with a next one: tokens after the document until there -> number."""
        settings = self.settings
        each = settings.n_tokens // settings.repetitions
        return {
            repetition * each + _WARM_UP + i + 1: repetition * settings.n_decode + i
            for repetition in range(settings.repetitions)
            for i in range(settings.n_decode - 1)
        }

    def _rows(self, depth: int) -> list[dict[str, Any]]:
        layers = self.dense.llama.context.cache.layers
        widths = [n for layer in layers for n in (layer.head_dim, 0 if layer.latent else layer.shape.value_dim)]
        heads = [layer.n_kv_head for layer in layers for _ in range(2)]
        row_bytes = sum(row_size(self.kv_number, n * width) for n, width in zip(heads, widths, strict=True))
        mean_length = depth + (self.settings.n_tokens - self.settings.n_question + _WARM_UP + 1) / 2
        next_tokens = {number: self.tokens[depth + place] for place, number in self._scored().items()}
        rows = Rows(depth, self.settings.n_question, self.model.cache_type, self.dense.logits, next_tokens)
        result = []
        for attention in self.settings.attentions:
            if attention.is_llama_cpp:
                best = min(self.llama_cpp, key=lambda engine: engine.token_s)
                n_rows = context_for(depth + self.settings.n_tokens)  # its own context holds the deepest depth
                n_bytes = n_rows * row_bytes, round(mean_length * row_bytes)
                result.append(rows.llama_cpp_row(best, self.llama_cpp, *n_bytes))
            else:
                best = next(engine for engine in (self.dense, *self.octavo) if engine.name == str(attention))
                result.append(rows.octavo_row(best, attention))
        return result + rows.peer_rows(self.peers)


def sweep(
    model: ModelSettings,
    library: Library,
    text: tuple[str, str] | None,
    settings: BenchSettings,
    threads: Iterable[int | None],
    cache_types: Iterable[str],
    progress: Progress,
) -> dict[str, Any]:
    """Run a benchmark with each number of threads and each type of keys and values.

    Parameters
    ----------
    library : Library
        The model's, which knows the hash of its file.
    text : tuple of str, optional
        Name and content of the text; None for random tokens.
    threads : iterable of int or None
        None for the default number.

    Returns
    -------
    dict
        The content of `octavo bench -o json`: what the figures depend on, the rows, and as `missing` a sentence for
        each run that failed after others had measured something.
    """
    before, rows, missing = machine_now(), [], []
    described: dict[str, Any] = {}
    builds: dict[str, str] = {}
    name, content = text or (None, None)
    for cache_type, n_threads in product(cache_types, threads):
        run = replace(model, n_threads=n_threads, cache_type=cache_type)
        try:
            with closing(Bench(run, content, settings, progress)) as bench:
                described = described or model_record(bench.dense.llama, Path(str(model.model)), library)
                device = bench.dense.llama.context.device.name
                for row in bench.run():
                    rows.append(row)
                    builds |= {engine.name: engine.build for engine in bench.peers}
        except Exception as problem:  # of any kind: the rows before it are kept
            if not rows:
                raise
            why = str(problem) or type(problem).__name__
            missing.append(f"{n_threads or default_threads()} threads, keys and values as {cache_type}: {why}")
            progress.notice(f"Not measured, or not all of it: {missing[-1]}")
    return {
        "software": {**software(), "peers": peer_record(settings.peers, builds)},
        "machine": {
            **machine(),
            "before": before,
            "after": machine_now(),
            "peak_resident_bytes": peak_resident_bytes(),
        },
        "model": described,
        "text": text_record(name, content),
        "settings": {
            "fill": settings.fill,
            "predict": settings.n_decode,
            "question": settings.n_question,
            "repetitions": settings.repetitions,
            "delay_s": settings.delay_s,
            "alone": settings.alone,
            "draft": settings.draft,
        },
        "device": device,
        "results": rows,
        "missing": missing,
    }
