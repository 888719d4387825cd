"""Build the index of a document in a folder: read, cluster, calibrate, write.

Each part is written as soon as it is complete, so that an interrupted build resumes where it stopped: first the keys
and values, in pieces; then each clustered layer; then the measurements on all layers. A complete folder gets its
manifest and its final name. A build replaces parts that are damaged, and a damaged index becomes such a build.

A process locks the unfinished folder while it builds. Another process waits for it, and then finds the index.
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

from ..cpu_kernels.numba_support.compile import compiled_before
from ..documents.document import Document, hash_text
from ..errors import NoRoom, OctavoError
from ..progress import Progress
from ..runtime.document.cache_layer import Rows
from ..runtime.document.index import IndexLayer
from ..runtime.llama import Llama
from ..runtime.store.index_files import (
    layer_path,
    open_index,
    read_layer,
    read_states,
    streaming_arrays,
    take_streaming,
    whole_layer_of,
    write_document,
    write_layer,
    write_manifest,
    write_means,
)
from ..runtime.store.library_snapshot import LibrarySnapshot
from ..runtime.store.manifest import DATELESS_HEAD, file_entries, read_manifest
from ..system.files import (
    PARTIAL,
    TEMPORARY,
    DamagedError,
    disk_errors,
    map_arrays,
    read_json,
    sync_folder,
    write_arrays,
    write_json,
)
from ..system.free_memory import private_bytes
from ..system.locks import locked, locked_new
from ..version import __version__
from .build_pieces import ABOUT, HEAD, PIECE, Pieces
from .clusters import ClusterSettings, compute_means
from .identity import identity
from .pipeline import WHOLE, PrefillSettings, calibrate, cluster, prefill
from .prefix_reuse import KnownRows, keep_all_rows, known_rows

#: Memory of clustering, in f32 copies of a layer's keys for each thread; and memory of compiling, in bytes.
_CLUSTERING_COPIES, _COMPILING = 6, 128 << 20


class IndexBuilder:
    """Build the index of one text in a folder, or resume an earlier build.

    Parameters
    ----------
    llama : Llama
        The model that reads the text; it must attend densely, or by `duo`. It forgets its sequence.
    snapshot : LibrarySnapshot
        The model's indexes, whose rows are reused if they begin with the same text.
    tokens : list of int
        The text's `document_tokens`.
    reading : PrefillSettings
        How the text is read.

    Raises
    ------
    OctavoError
        Batches are smaller than the number of queries to measure on.
    """

    def __init__(
        self,
        llama: Llama,
        snapshot: LibrarySnapshot,
        path: Path,
        document: Document,
        tokens: list[int],
        settings: ClusterSettings,
        progress: Progress,
        n_jobs: int,
        reading: PrefillSettings = WHOLE,
    ) -> None:
        self.llama, self.path, self.document, self.tokens = llama, path, document, tokens
        self.snapshot, self.library = snapshot, snapshot.library
        self.settings, self.progress, self.n_jobs = settings, progress, n_jobs
        self.attention_share, self._state_every = reading.attention_share, reading.state_every
        self.folder = path.with_name(path.name + PARTIAL)
        self._identity = identity(llama, settings, reading.attention_share)
        self._head = llama.prompt().head()
        self._text = self.tokens[len(self._head) :]
        if llama.n_batch < settings.exact_last:
            raise OctavoError(f"Indexing needs larger batches: give n_batch={settings.exact_last} or more.")

    def build(self, begins: Callable[[], None] | None = None, waits: Callable[[], None] | None = None) -> None:
        """Do what is missing. The content of the model's cache is undefined afterwards.

        Parameters
        ----------
        begins : callable, optional
            Called before the work, unless another process has built the index.
        waits : callable, optional
            Called before waiting for another process that builds it.

        Raises
        ------
        OctavoError
            Disk or memory do not suffice.
        """
        with self._alone(waits) as needed:
            if needed:
                self.snapshot.refresh()  # a damaged index has become the beginning of this build
                self._keep_head()
                if begins is not None:
                    begins()
                self._build()

    @contextmanager
    def _alone(self, waits: Callable[[], None] | None) -> Iterator[bool]:
        """Lock the index against other processes. Yield False if one of them has built it."""
        self.library.make_folder()
        with ExitStack() as lock:
            with disk_errors(self.folder):
                lock.enter_context(locked_new(self.folder, waits))
                needed = not self._is_there()
                if not needed:
                    shutil.rmtree(self.folder, ignore_errors=True)
            yield needed

    @property
    def _head_changes(self) -> bool:
        """Return whether the head depends on the day."""
        return bool(self._head != self._identity["head"])

    def _keep_head(self) -> None:
        """Continue with the head of an earlier build, or of the index whose rows are reused, if the head has a date."""
        if not self._head_changes:
            return
        path = self.folder / HEAD
        try:
            self._head = read_json(path)["head"]
            self.tokens = [*self._head, *self._text]
        except (DamagedError, KeyError):
            if self.known is not None:
                self._head = list(self.known.head)
                self.tokens = [*self._head, *self._text]
            write_json(path, {"head": self._head})

    def _build(self) -> None:
        """Do what is missing, under the lock."""
        start = time.perf_counter()
        self._check_space()
        if self.settings.n_clusters(len(self.tokens)):
            threading.Thread(target=_import_clustering).start()
        with disk_errors(self.folder):
            for unfinished in self.folder.glob(f"*{TEMPORARY}"):
                unfinished.unlink()
        write_json(self.folder / ABOUT, self._about())
        queries = self._read()
        layers = self._cluster()
        self._finish(layers, queries, start)

    def _is_there(self) -> bool:
        """Return whether the index opens. Make its whole layers part of the build if it is damaged."""
        try:
            if self.path.exists():
                open_index(self.path, self.library.model_hash)
            return self.path.exists()
        except DamagedError:
            pass
        keeps_layers = not self._head_changes
        if self._head_changes:
            with suppress(DamagedError):
                write_json(self.folder / HEAD, {"head": read_manifest(self.path)["head"]})
                keeps_layers = True
        with suppress(FileNotFoundError), locked(self.path):  # another process may remove it just now
            for file in [*self.path.glob("layer-*"), *self.path.glob("state-*")] if keeps_layers else ():
                if stat.S_ISREG(file.lstat().st_mode):
                    file.replace(self.folder / file.name)
            shutil.rmtree(self.path)
        return False

    @cached_property
    def whole_layers(self) -> dict[int, IndexLayer]:
        """Return the undamaged layers of an earlier build, and remove the others."""
        found = {}
        for i in range(len(self.llama.context.cache.layers)):
            layer = whole_layer_of(self.folder, i, len(self.tokens))
            if layer is not None:
                found[i] = layer
            else:
                layer_path(self.folder, i).unlink(missing_ok=True)
        return found

    def _check_space(self) -> None:
        """Refuse if memory or disk cannot hold the index and the rows that it is made from."""
        self.llama.context.cache.check_memory(len(self.tokens), self._other_memory())
        needed = 2 * len(self.tokens) * self.llama.context.cache.row_bytes + self.n_state_bytes
        there = sum(file.stat().st_size for file in self.folder.glob("*")) if self.folder.exists() else 0
        free = shutil.disk_usage(self.library.folder).free
        if needed - there > free:
            name = self.document.name
            raise NoRoom(
                f"Indexing {name} takes {(needed - there) / 2**20:,.0f} MiB on the disk of {self.library.folder}, "
                f"which has {free / 2**20:,.0f} MiB left: free some, or give another folder with `index_dir`."
            )

    def _other_memory(self) -> dict[str, int]:
        """Return the memory that a build needs besides its KV cache, in bytes."""
        llama = self.llama
        keys = max(4 * len(self.tokens) * layer.n_kv_head * layer.head_dim for layer in llama.context.cache.layers)
        return {
            "the model": max(0, self.library.model_path.stat().st_size - private_bytes()),  # or copies exist already
            "clustering": int(_CLUSTERING_COPIES * self.n_jobs * keys),
            "compiling": 0 if compiled_before() else _COMPILING,
        }

    @cached_property
    def _pieces(self) -> Pieces:
        """Return the pieces of the text, whose head is known by now."""
        return Pieces(self.folder, self.llama, len(self.tokens), self._state_every)

    @cached_property
    def n_state_bytes(self) -> int:
        """Return the bytes of the recurrent states that the index will keep; 0 unless the model is a hybrid."""
        return self._pieces.n_states * self.llama.state_bytes

    def _read(self) -> list[np.ndarray]:
        """Read the tokens piece by piece. Return the queries of the last tokens, which are a piece of their own."""
        if self.llama.context.cache.evicts:
            return self._read_streaming()
        llama, n_tokens = self.llama, len(self.tokens)
        border = n_tokens - self.settings.n_queries(n_tokens)
        ends = [*range(PIECE, border, PIECE), border, n_tokens]
        llama.reset()
        llama.context.attach(None)
        done = 0
        for end, rows in self._pieces.known(ends, self.known):
            llama.extend(self.tokens[done:end], rows(), self._pieces.states(end, self.known))
            done = end
        self.progress.start(f"Reading {self.document.name}", n_tokens, "tokens", done)
        for end in ends[ends.index(done) + 1 if done else 0 :]:
            n_queries = end - done if end == n_tokens else 0
            queries = prefill(llama, self.tokens[done:end], self.progress, n_queries, self.attention_share)
            self._pieces.write(done, end, queries)
            done = end
        return self._pieces.queries()

    @cached_property
    def known(self) -> KnownRows | None:
        """Return the rows of the first tokens, from an earlier build or from the index of another text."""
        if self.llama.context.cache.evicts:
            return None
        n_last = self.settings.n_queries(len(self.tokens))
        layers = list(self.whole_layers.values())
        if len(layers) == len(self.llama.context.cache.layers) and keep_all_rows(layers):
            n_known = (len(self.tokens) - n_last) // PIECE * PIECE
            return KnownRows(layers, n_known, self._head, read_states(self.folder))
        kv_type = self.llama.context.kv_type
        return known_rows(self.snapshot, self._head, self._text, self._identity, kv_type, n_last, PIECE)

    def _read_streaming(self) -> list[np.ndarray]:
        """Read the tokens while heads stream, in one piece: pieces could not restore the rows that heads forget."""
        llama, n_tokens = self.llama, len(self.tokens)
        cache = llama.context.cache
        if self._pieces.arrays(n_tokens) is None:
            llama.reset()
            self.progress.start(f"Reading {self.document.name}", n_tokens, "tokens")
            queries = prefill(
                llama, self.tokens, self.progress, self.settings.n_queries(n_tokens), self.attention_share
            )
            arrays = {f"queries.{i}": array for i, array in enumerate(queries)}
            for i in range(len(cache.layers)):
                (keys, values), streaming = cache.document_rows(i)
                arrays |= {f"keys.{i}": keys, f"values.{i}": values, **streaming_arrays(streaming, f".{i}")}
            self._pieces.write_state()
            write_arrays(self._pieces.path(n_tokens), arrays)
        return self._pieces.queries()

    def _cluster(self) -> list[IndexLayer]:
        """Cluster the missing layers, and return all layers as stored."""
        cache = self.llama.context.cache
        numbers = range(len(cache.layers))
        missing = [i for i in numbers if i not in self.whole_layers]
        stored = map_arrays(self._pieces.path(len(self.tokens))) if cache.evicts else {}
        streaming = {i: take_streaming(stored, f".{i}") for i in numbers}

        def rows(layer: int) -> Rows:
            return (stored[f"keys.{layer}"], stored[f"values.{layer}"]) if cache.evicts else cache.rows(layer)

        clustered = cluster(
            cache, self.settings, self.progress, self.n_jobs, missing=missing, rows=rows, n_tokens=len(self.tokens)
        )
        for i, layer in zip(missing, clustered, strict=True):
            write_layer(self.folder, i, replace(layer, streaming=streaming[i]))
        return [read_layer(self.folder, i) for i in numbers]

    def _about(self) -> dict[str, Any]:
        """Return the manifest's entries that say what the index is of."""
        return {
            "document": self._described(),
            "model": {"name": self.library.model_path.name, "sha256": self.library.model_hash},
            "dtype": self.llama.context.kv_type,
        }

    def _described(self) -> dict[str, Any]:
        """Return the manifest's entry of the document; `places` are the character offsets of pages and headings."""
        document = self.document
        part = {"part": list(document.part), "first_line": document.first_line} if document.part else {}
        part |= {"split": document.split} if document.split else {}
        places = {"places": [list(place) for place in document.places]} if document.places else {}
        notices = {"notices": list(document.notices)} if document.notices else {}
        return {
            "name": document.name,
            "sha256": hash_text(document.text),
            "tokens": len(self.tokens),
            **file_entries(document.version),
            **part,
            **places,
            **notices,
        }

    def _finish(self, layers: list[IndexLayer], queries: list[np.ndarray], start: float) -> None:
        """Calibrate, write the rest, and give the folder its final name."""
        write_document(self.folder, calibrate(self.llama, layers, queries, self.tokens))
        compute_means(layers, self.n_jobs)
        write_means(self.folder, layers)
        entries = {
            "octavo": __version__,
            "created": datetime.now(UTC).isoformat(timespec="microseconds"),  # versions of a file may be a moment apart
            **self._about(),
            "seconds": round(time.perf_counter() - start, 1),
            **self._identity,
            "head": self._head,
            **({DATELESS_HEAD: self._identity["head"]} if self._head_changes else {}),
        }
        with disk_errors(self.path):
            self._pieces.forget_states()
        write_manifest(self.folder, len(layers), entries)
        with disk_errors(self.path):
            for piece in sorted(self.folder.glob("prefill-*")):
                piece.unlink()
            (self.folder / ABOUT).unlink()
            sync_folder(self.folder)
            shutil.rmtree(self.path, ignore_errors=True)
            self.folder.rename(self.path)
            sync_folder(self.path.parent)


def _import_clustering() -> None:
    """Import scikit-learn, which takes a second, while the model reads. Ctrl-C may interrupt the import."""
    with suppress(Exception):  # the later import reports errors
        importlib.import_module("sklearn.cluster")
