"""Build the index of a document in a folder: read, cluster, calibrate, write.

Each part is written as soon as it is complete, so that an interrupted build resumes where it stopped: the keys and
values of what is read, in pieces; then each clustered layer; then what is measured on all layers. When all parts are
there, the folder gets its manifest and its name. A part that is not as it was written is made again, and an index that
is not becomes such a build.

A process holds the lock of the unfinished folder while it builds. Another one waits for it, and finds the index then.
"""

from __future__ import annotations

import importlib
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..cpu_kernels.numba_support.compile import F16, compiled_before
from ..documents.document import Document
from ..errors import OctavoError
from ..progress import Progress
from ..runtime.cache.free_memory import private_bytes
from ..runtime.document.cache_layer import Rows
from ..runtime.document.index import IndexLayer
from ..runtime.llama import Llama
from ..runtime.store.files import (
    PARTIAL,
    TEMPORARY,
    DamagedError,
    disk_errors,
    make_private,
    map_arrays,
    sync_folder,
    write_arrays,
)
from ..runtime.store.index_files import (
    layer_path,
    open_index,
    read_layer,
    streaming_arrays,
    take_streaming,
    whole_layer_of,
    write_document,
    write_layer,
    write_manifest,
    write_means,
)
from ..runtime.store.locks import locked
from ..runtime.store.manifest import INDEX_VERSION
from ..runtime.store.model_library import Library, hash_text
from .calibrate import calibrate
from .clusters import ClusterSettings, compute_means
from .pipeline import cluster, document_tokens, read
from .prefix_reuse import KnownRows, keep_all_rows, known_rows

#: Memory that clustering takes for each thread, in copies of a layer's keys as f32, and that compiling takes, in bytes.
_CLUSTERING_COPIES, _COMPILING = 6, 128 << 20

#: Tokens of a piece of what is read: the most that an interruption can lose.
_PIECE = 1024


def identity(llama: Llama, settings: ClusterSettings, covers: float = 0.0) -> dict[str, Any]:
    """Return what an index depends on besides the model file and the text.

    Parameters
    ----------
    covers : float
        Share of its attention that a batch covers that is read; 0 if everything is.

    Returns
    -------
    dict
        Entries of the manifest. What indexes from before q8_0 and sparse reading have is not named, so that they are
        still found.
    """
    kv_type = llama.context.kv_type
    return {
        "format_version": INDEX_VERSION,
        "head": llama.prompt().head(),
        "clustering": settings.as_json(),
        "rope": rope_settings(llama),
        **({} if kv_type == F16 else {"dtype": kv_type}),
        **({"prefill_covers": covers} if covers else {}),
        **streaming_heads(llama),
    }


def streaming_heads(llama: Llama) -> dict[str, Any]:
    """Return what an index depends on if heads stream while the document is read.

    Returns
    -------
    dict
        The manifest's entry `duo`, or nothing.
    """
    attention = llama.attention
    if attention.duo is None or attention.plan is None:
        return {}
    return {"duo": attention.duo.reading(attention.plan, attention.retrieval_heads, llama.n_batch)}


def rope_settings(llama: Llama) -> list[float]:
    """Return what positions depend on besides the model file.

    Returns
    -------
    list of float
        Base and scale of the frequencies, and llama.cpp's number of the way to stretch positions, if it stretches them.
    """
    params = llama.context_params
    stretched = [params.rope_scaling_type] if params.rope_scaling_type > 0 else []
    return [params.rope_freq_base, params.rope_freq_scale, *stretched]


class IndexBuilder:
    """Build the index of one text in a folder, from wherever an earlier build stopped.

    Parameters
    ----------
    llama : Llama
        The model that reads the text; it has to attend densely, or by `duo`. What it held is forgotten.
    covers : float
        Share of its attention that a batch must cover; 0 to read everything.

    Raises
    ------
    OctavoError
        The context is too short for the text, or batches are smaller than the number of queries to measure on.
    """

    def __init__(
        self,
        llama: Llama,
        library: Library,
        path: Path,
        document: Document,
        settings: ClusterSettings,
        progress: Progress,
        n_jobs: int,
        covers: float = 0.0,
    ) -> None:
        self.llama, self.library, self.path, self.document = llama, library, path, document
        self.settings, self.progress, self.n_jobs, self.covers = settings, progress, n_jobs, covers
        self.folder = path.with_name(path.name + PARTIAL)
        self.tokens = document_tokens(llama, document.name, document.text)
        if llama.n_batch < settings.exact_last:
            raise OctavoError(f"Indexing needs larger batches: give n_batch={settings.exact_last} or more.")

    def build(self, begins: Callable[[], None] | None = None, waits: Callable[[], None] | None = None) -> None:
        """Do everything that is not done yet. What the model's cache holds afterwards is not defined.

        Parameters
        ----------
        begins : callable, optional
            Is called before the work, unless another process has done it.
        waits : callable, optional
            Is called before a wait for another process that does it.

        Raises
        ------
        OctavoError
            Disk or memory do not suffice.
        """
        with self._alone(waits) as needed:
            if needed:
                if begins is not None:
                    begins()
                self._build()

    @contextmanager
    def _alone(self, waits: Callable[[], None] | None) -> Iterator[bool]:
        """Keep other processes from building the same index. Yields False if one of them has built it."""
        self.library.make_folder()
        with ExitStack() as lock:
            with disk_errors(self.folder):
                while True:
                    make_private(self.folder)
                    try:
                        lock.enter_context(locked(self.folder, waiting=waits))
                        break
                    except FileNotFoundError:  # it was finished, or removed, in this moment
                        continue
                needed = not self._is_there()
                if not needed:
                    shutil.rmtree(self.folder, ignore_errors=True)
            yield needed

    def _build(self) -> None:
        """Do everything that is not done yet."""
        start = time.perf_counter()
        self._check_space()
        threading.Thread(target=_import_clustering).start()
        with disk_errors(self.folder):
            for unfinished in self.folder.glob(f"*{TEMPORARY}"):
                unfinished.unlink()
        queries = self._read()
        layers = self._cluster()
        self._finish(layers, queries, start)

    def _is_there(self) -> bool:
        """Return whether the index can be opened. If it cannot, a build resumes from its whole parts."""
        try:
            if self.path.exists():
                open_index(self.path, self.library.model_hash)
            return self.path.exists()
        except DamagedError:
            pass
        with locked(self.path):
            for file in self.path.glob("layer-*"):
                if stat.S_ISREG(file.lstat().st_mode):
                    file.replace(self.folder / file.name)
            shutil.rmtree(self.path)
        return False

    @cached_property
    def whole_layers(self) -> dict[int, IndexLayer]:
        """Return the layers of an earlier build that are as they were written, and remove the others."""
        found = {}
        for i in range(len(self.llama.context.cache.layers)):
            layer = whole_layer_of(self.folder, i, len(self.tokens))
            if layer is not None:
                found[i] = layer
            else:
                layer_path(self.folder, i).unlink(missing_ok=True)
        return found

    def _check_space(self) -> None:
        """Refuse, with the figures, if the disk cannot hold the index and the rows that it is made from."""
        self.llama.context.cache.check_memory(len(self.tokens), self._other_memory())
        needed = 2 * len(self.tokens) * self.llama.context.cache.row_bytes
        there = sum(file.stat().st_size for file in self.folder.glob("*")) if self.folder.exists() else 0
        free = shutil.disk_usage(self.library.folder).free
        if needed - there > free:
            name = self.document.name
            raise OctavoError(
                f"Indexing {name} takes {(needed - there) / 2**20:,.0f} MiB on the disk of {self.library.folder}, "
                f"which has {free / 2**20:,.0f} MiB left: free some, or give another folder with --index-dir."
            )

    def _other_memory(self) -> dict[str, int]:
        """What a build needs besides its KV cache."""
        llama = self.llama
        keys = max(4 * len(self.tokens) * layer.n_kv_head * layer.head_dim for layer in llama.context.cache.layers)
        return {
            "the model": max(0, self.library.model_path.stat().st_size - private_bytes()),  # or it has copies already
            "clustering": int(_CLUSTERING_COPIES * self.n_jobs * keys),
            "compiling": 0 if compiled_before() else _COMPILING,
        }

    def _read(self) -> list[np.ndarray]:
        """Read the tokens, piece by piece; returns the queries of the last ones, which are a piece of their own."""
        if self.llama.context.cache.evicts:
            return self._read_streaming()
        llama, n_tokens = self.llama, len(self.tokens)
        border = n_tokens - self.settings.n_queries(n_tokens)
        ends = [*range(_PIECE, border, _PIECE), border, n_tokens]
        llama.reset()
        llama.context.attach(None)
        done = 0
        known = self.known
        while ends:
            if known is not None and ends[0] <= known.n_tokens:
                rows = known.rows(done, ends[0])
            elif (arrays := _whole(self._piece(ends[0]))) is not None:
                rows = _rows_of(arrays)
            else:
                break
            llama.extend(self.tokens[done : ends[0]], rows)
            done = ends.pop(0)
        self.progress.start(f"Reading {self.document.name}", n_tokens, "tokens", done)
        for end in ends:
            n_queries = end - done if end == n_tokens else 0
            queries = read(llama, self.tokens[done:end], self.progress, n_queries, self.covers)
            self._write_piece(done, end, queries)
            done = end
        return self._queries()

    @cached_property
    def known(self) -> KnownRows | None:
        """Return the rows of the first tokens, if an earlier build or another text's index has them."""
        if self.llama.context.cache.evicts:
            return None
        n_last = self.settings.n_queries(len(self.tokens))
        layers = list(self.whole_layers.values())
        if len(layers) == len(self.llama.context.cache.layers) and keep_all_rows(layers):
            return KnownRows(layers, (len(self.tokens) - n_last) // _PIECE * _PIECE)
        settings, kv_type = identity(self.llama, self.settings, self.covers), self.llama.context.kv_type
        return known_rows(self.library, self.tokens, settings, kv_type, n_last, _PIECE)

    def _read_streaming(self) -> list[np.ndarray]:
        """Read the tokens while heads stream, in one piece: what they forget cannot be read again from pieces."""
        llama, n_tokens = self.llama, len(self.tokens)
        path, cache = self._piece(n_tokens), llama.context.cache
        if _whole(path) is None:
            llama.reset()
            self.progress.start(f"Reading {self.document.name}", n_tokens, "tokens")
            queries = read(llama, self.tokens, self.progress, self.settings.n_queries(n_tokens), self.covers)
            arrays = {f"queries.{i}": array for i, array in enumerate(queries)}
            for i in range(len(cache.layers)):
                (keys, values), streaming = cache.document_rows(i)
                arrays |= {f"keys.{i}": keys, f"values.{i}": values, **streaming_arrays(streaming, f".{i}")}
            write_arrays(path, arrays)
        return self._queries()

    def _queries(self) -> list[np.ndarray]:
        """The captured queries of the last tokens."""
        stored = map_arrays(self._piece(len(self.tokens)))
        return [stored[f"queries.{i}"] for i in range(len(self.llama.context.nodes))]

    def _piece(self, end: int) -> Path:
        """The file of the piece that ends before this position."""
        return self.folder / f"prefill-{end:08d}.safetensors"

    def _write_piece(self, start: int, end: int, queries: list[np.ndarray]) -> None:
        """Write keys and values from a position on, and the captured queries."""
        cache = self.llama.context.cache
        rows = {
            f"{kind}.{i}": array
            for i in range(len(cache.layers))
            for kind, array in zip(("keys", "values"), cache.rows(i, start), strict=True)
        }
        write_arrays(self._piece(end), rows | {f"queries.{i}": array for i, array in enumerate(queries)})

    def _cluster(self) -> list[IndexLayer]:
        """Cluster the layers that are not clustered yet; returns all of them, as they were written."""
        cache = self.llama.context.cache
        numbers = range(len(cache.layers))
        missing = [i for i in numbers if i not in self.whole_layers]
        stored = map_arrays(self._piece(len(self.tokens))) if cache.evicts else {}
        streaming = {i: take_streaming(stored, f".{i}") for i in numbers}

        def rows(layer: int) -> Rows:
            return (stored[f"keys.{layer}"], stored[f"values.{layer}"]) if cache.evicts else cache.rows(layer)

        clustered = cluster(
            cache, self.settings, self.progress, self.n_jobs, missing=missing, rows=rows, n_tokens=len(self.tokens)
        )
        for i, layer in zip(missing, clustered, strict=True):
            write_layer(self.folder, i, replace(layer, streaming=streaming[i]))
        return [read_layer(self.folder, i) for i in numbers]

    def _described(self) -> dict[str, Any]:
        """What the manifest says of the document; `places` is where its pages and headings begin, in characters."""
        document = self.document
        where: dict[str, Any] = {}
        if document.path is not None:
            where = {"path": document.path, "mtime_ns": document.mtime_ns, "bytes": document.n_bytes}
        part = {"part": list(document.part), "first_line": document.first_line} if document.part else {}
        places = {"places": [list(place) for place in document.places]} if document.places else {}
        return {
            "name": document.name,
            "sha256": hash_text(document.text),
            "tokens": len(self.tokens),
            **where,
            **part,
            **places,
        }

    def _finish(self, layers: list[IndexLayer], queries: list[np.ndarray], start: float) -> None:
        """Calibrate, write what is left, and give the index its name."""
        write_document(self.folder, calibrate(self.llama, layers, queries, self.tokens))
        compute_means(layers, self.n_jobs)
        write_means(self.folder, layers)
        entries = {
            "octavo": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "document": self._described(),
            "model": {"name": self.library.model_path.name, "sha256": self.library.model_hash},
            "dtype": self.llama.context.kv_type,
            "seconds": round(time.perf_counter() - start, 1),
            **identity(self.llama, self.settings, self.covers),
        }
        write_manifest(self.folder, len(layers), entries)
        with disk_errors(self.path):
            for piece in sorted(self.folder.glob("prefill-*")):
                piece.unlink()
            sync_folder(self.folder)
            shutil.rmtree(self.path, ignore_errors=True)
            self.folder.rename(self.path)
            sync_folder(self.path.parent)


def _import_clustering() -> None:
    """Import scikit-learn while the model reads: it takes a second. At Ctrl-C, an import may fail half-way."""
    with suppress(Exception):  # its use reports what is wrong
        importlib.import_module("sklearn.cluster")


def _whole(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of a file that an earlier build wrote; None if it is missing or damaged."""
    try:
        return map_arrays(path, checked=True, in_place=True)
    except DamagedError:
        return None


def _rows_of(arrays: dict[str, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The keys and values of each layer in a piece."""
    n_layers = sum(name.startswith("keys.") for name in arrays)
    return [(arrays[f"keys.{i}"], arrays[f"values.{i}"]) for i in range(n_layers)]
