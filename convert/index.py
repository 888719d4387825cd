"""Build an index of a document, and open it: prefill, cluster, calibrate, write.

The parts are written as they are completed, so that an interrupted build goes on where it stopped: the prefill in
pieces, then each clustered layer, then what is measured on all of them. When all are there, the folder gets its
manifest and its name.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..cpu_kernels.compile import F16
from ..errors import OctavoError
from ..runtime.cache.index import Index, IndexLayer, ThresholdCurve, TwoLevelCurve
from ..runtime.llama import Llama
from ..runtime.prompt import Prompt
from ..runtime.store.files import (
    FORMAT_VERSION,
    MANIFEST,
    check_file,
    describe_file,
    disk_errors,
    map_arrays,
    read_manifest,
    sync_folder,
    write_arrays,
    write_json,
)
from ..runtime.store.library import Library, hash_text
from .calibrate import Attention, attention_mass, one_level_curve, two_level_curve
from .clusters import ClusterSettings, document_layers, no_mass
from .progress import Progress

#: Tokens of a piece of the prefill: what an interruption can lose.
_PIECE = 1024

Layers = list[tuple[np.ndarray, np.ndarray]]


def identity(llama: Llama, settings: ClusterSettings) -> dict[str, Any]:
    """What an index depends on besides the model and the text.

    f16 goes without saying: so indexes are found that were made when there was nothing else.
    """
    kv_type = llama.context.kv_type
    return {
        "format_version": FORMAT_VERSION,
        "head": Prompt(llama).head(),
        "clustering": settings.as_json(),
        "rope": rope_settings(llama),
        **({} if kv_type == F16 else {"dtype": kv_type}),
    }


def rope_settings(llama: Llama) -> list[float]:
    """What positions depend on besides the model; how they are stretched goes without saying where they are not."""
    params = llama.context_params
    stretched = [params.rope_scaling_type] if params.rope_scaling_type > 0 else []
    return [params.rope_freq_base, params.rope_freq_scale, *stretched]


def document_tokens(llama: Llama, name: str, text: str) -> list[int]:
    """Tokens of the prompt's head and the document. Raises OctavoError where the model's context is too short."""
    prompt = Prompt(llama)
    tokens = prompt.head() + prompt.document(text)
    if len(tokens) >= llama.n_ctx():
        raise OctavoError(
            f"{name} has {len(tokens):,} tokens but this context holds {llama.n_ctx():,}: split it, or give a "
            "long-context model with -m."
        )
    return tokens


class IndexBuilder:
    """Builds the index of one text in a folder, from wherever an earlier build stopped.

    The model attends densely meanwhile, and its batches hold at least the tokens that stay exact.
    """

    def __init__(
        self,
        llama: Llama,
        library: Library,
        path: Path,
        name: str,
        text: str,
        settings: ClusterSettings,
        progress: Progress,
        n_jobs: int,
    ) -> None:
        self.llama, self.library, self.path, self.name, self.text = llama, library, path, name, text
        self.settings, self.progress, self.n_jobs = settings, progress, n_jobs
        self.folder = path.with_name(path.name + ".partial")
        self.tokens = document_tokens(llama, name, text)
        if llama.n_batch < settings.exact_last:
            raise OctavoError(f"Indexing needs larger batches: give n_batch={settings.exact_last} or more.")

    def build(self) -> None:
        """Do all that is not done yet. The text's tokens and rows are in the model's cache afterwards, or not."""
        self._check_space()
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for unfinished in self.folder.glob("*.tmp"):
                unfinished.unlink()
        queries = self._prefill()
        layers = self._cluster()
        self._finish(layers, queries)

    def _check_space(self) -> None:
        """Refuse, with the figures, where the disk cannot hold the index and the prefill that it is made from."""
        self.library.make_folder()
        self.llama.context.cache.check_memory(len(self.tokens))
        needed = 2 * len(self.tokens) * self.llama.context.cache.row_bytes
        there = sum(file.stat().st_size for file in self.folder.glob("*")) if self.folder.exists() else 0
        free = shutil.disk_usage(self.library.folder).free
        if needed - there > free:
            raise OctavoError(
                f"Indexing {self.name} takes {(needed - there) / 2**20:,.0f} MiB on the disk of {self.library.folder}, "
                f"which has {free / 2**20:,.0f} MiB left: free some, or give another folder with --index-dir."
            )

    def _prefill(self) -> list[np.ndarray]:
        """Evaluate the tokens, piece by piece; returns the queries of the last ones."""
        llama, n_tokens = self.llama, len(self.tokens)
        n_last = min(self.settings.exact_last, n_tokens - 1)
        ends = [*range(_PIECE, n_tokens - n_last, _PIECE), n_tokens - n_last, n_tokens]
        llama.reset()
        llama.context.attach(None)
        done = 0
        for end in ends:
            piece = self._piece(end)
            if not piece.exists():
                break
            arrays = map_arrays(piece)
            llama.extend(self.tokens[done:end], _as_layers(arrays))
            done = end
        self.progress.start(f"Reading {self.name}", n_tokens, "tokens", done)
        for end in ends[ends.index(done) + 1 if done else 0 :]:
            last = end == n_tokens
            queries: list[np.ndarray] = []
            if last:
                with llama.context.captured_queries(end - done) as queries:
                    self._evaluate(done, end)
            else:
                self._evaluate(done, end)
            rows = {
                f"{kind}.{i}": array
                for i in range(len(llama.context.cache.layers))
                for kind, array in zip(("keys", "values"), llama.context.cache.rows(i, done), strict=True)
            }
            if last:
                rows |= {f"queries.{i}": array for i, array in enumerate(queries)}
            write_arrays(self._piece(end), rows)
            done = end
        stored = map_arrays(self._piece(n_tokens))
        return [stored[f"queries.{i}"] for i in range(len(llama.context.nodes))]

    def _evaluate(self, start: int, stop: int) -> None:
        for first in range(start, stop, self.llama.n_batch):
            batch = self.tokens[first : min(first + self.llama.n_batch, stop)]
            self.llama.eval(batch)
            self.progress.advance(len(batch))

    def _piece(self, end: int) -> Path:
        return self.folder / f"prefill-{end:08d}.safetensors"

    def _cluster(self) -> list[IndexLayer]:
        """Cluster the layers that are not clustered yet."""
        cache = self.llama.context.cache
        paths = [self.folder / layer_file(i) for i in range(len(cache.layers))]
        missing = [i for i, path in enumerate(paths) if not path.exists()]
        self.progress.start("Clustering keys", len(paths), "layers", len(paths) - len(missing))
        for i, layer in zip(missing, document_layers(cache, missing, self.settings, self.n_jobs), strict=True):
            _write_layer(paths[i], layer)
            self.progress.advance(1)
        return [_read_layer(path) for path in paths]

    def _finish(self, layers: list[IndexLayer], queries: list[np.ndarray]) -> None:
        """Calibrate, write what is left, and give the index its name."""
        document = calibrate(self.llama, layers, queries, self.tokens, self.settings)
        write_arrays(self.folder / "document.safetensors", _document_arrays(document))
        pieces = set(self.folder.glob("prefill-*"))
        files = {file.name: describe_file(file) for file in sorted(set(self.folder.glob("*.safetensors")) - pieces)}
        write_json(
            self.folder / MANIFEST,
            {
                "octavo": __version__,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "document": {"name": self.name, "sha256": hash_text(self.text), "tokens": len(self.tokens)},
                "model": {"name": self.library.model_path.name, "sha256": self.library.model_hash},
                "dtype": self.llama.context.kv_type,
                **identity(self.llama, self.settings),
                "files": files,
            },
        )
        with disk_errors(self.path):
            for piece in pieces:
                piece.unlink()
            sync_folder(self.folder)
            shutil.rmtree(self.path, ignore_errors=True)
            self.folder.rename(self.path)
            sync_folder(self.path.parent)


def calibrate(
    llama: Llama,
    layers: Sequence[IndexLayer],
    queries: list[np.ndarray],
    tokens: list[int],
    settings: ClusterSettings,
) -> Index:
    """The document of these layers, with its rows' mass and, where it has clusters, the thresholds for each budget.

    queries : of the document's last tokens, for each attention node, as `captured_queries` gives them
    """
    clustered: list[Attention] = []
    n_heads = [layer.n_kv_head for layer in llama.context.cache.layers]
    mass = [no_mass(layer.keys) for layer in layers]
    for node, captured in zip(llama.context.nodes, queries, strict=True):
        if not llama.context.cache.layers[node.kv_layer].window:
            first_head = sum(n_heads[: node.kv_layer])
            attention = Attention(layers[node.kv_layer], first_head, captured, node.softcap)
            mass[node.kv_layer] += attention_mass(attention)
            if attention.layer.n_clusters:
                clustered.append(attention)
    measured = [replace(layer, mass=each) for layer, each in zip(layers, mass, strict=True)]
    curve = one_level_curve(clustered, sum(n_heads), len(tokens), settings) if clustered else None
    two_level = two_level_curve(clustered, sum(n_heads), len(tokens), settings) if clustered else None
    return Index(np.asarray(tokens, np.int32), measured, curve, two_level)


def open_index(path: Path, model_hash: str, thorough: bool = False) -> tuple[Index, dict[str, Any]]:
    """Open an index by mmap; returns the document and its manifest.

    Raises OctavoError for one of another format or model, and for one that was changed on disk.
    """
    if not (path / MANIFEST).exists():
        raise OctavoError(f"{path} is not an octavo index: it has no {MANIFEST}.")
    manifest = read_manifest(path)
    if manifest.get("format_version") != FORMAT_VERSION:
        raise OctavoError(
            f"The index {path} has format {manifest.get('format_version')}, and this octavo reads {FORMAT_VERSION}: "
            "index the document again."
        )
    if manifest["model"]["sha256"] != model_hash:
        raise OctavoError(
            f"The index {path} was made with another model ({manifest['model']['name']}): index the document again."
        )
    for name, described in manifest["files"].items():
        check_file(path / name, described, thorough)
    arrays = map_arrays(path / "document.safetensors")
    n_layers = sum(name.startswith("layer-") for name in manifest["files"])
    layers = [replace(_read_layer(path / layer_file(i)), mass=arrays[f"mass.{i}"]) for i in range(n_layers)]
    return Index(arrays["tokens"], layers, *_curves(arrays)), manifest


def layer_file(i: int) -> str:
    """Name of the file of cached layer i."""
    return f"layer-{i:03d}.safetensors"


def _as_layers(arrays: dict[str, np.ndarray]) -> Layers:
    n_layers = sum(name.startswith("keys.") for name in arrays)
    return [(arrays[f"keys.{i}"], arrays[f"values.{i}"]) for i in range(n_layers)]


def _write_layer(path: Path, layer: IndexLayer) -> None:
    """All of a layer but its mass, which is measured when all layers are clustered."""
    arrays = {
        field.name: getattr(layer, field.name) for field in fields(layer) if field.name not in ("position", "mass")
    }
    write_arrays(path, {**arrays, "position": np.array([layer.position], np.int64)})


def _read_layer(path: Path) -> IndexLayer:
    arrays = map_arrays(path)
    position = int(arrays.pop("position")[0])
    return IndexLayer(position=position, mass=no_mass(arrays["keys"]), **arrays)


def _document_arrays(document: Index) -> dict[str, np.ndarray]:
    """What a document is besides its layers, and their mass."""
    arrays = {"tokens": document.tokens}
    if document.curve is not None:
        arrays |= {"budgets": document.curve.budgets, "thresholds": document.curve.thresholds}
    if document.two_level is not None:
        fine = document.two_level.curve
        arrays |= {
            "coarse_thresholds": document.two_level.coarse_thresholds,
            "two_level_budgets": fine.budgets,
            "two_level_thresholds": fine.thresholds,
        }
    return arrays | {f"mass.{i}": layer.mass for i, layer in enumerate(document.layers)}


def _curves(arrays: dict[str, np.ndarray]) -> tuple[ThresholdCurve | None, TwoLevelCurve | None]:
    if "budgets" not in arrays:
        return None, None
    fine = ThresholdCurve(arrays["two_level_budgets"], arrays["two_level_thresholds"])
    return (
        ThresholdCurve(arrays["budgets"], arrays["thresholds"]),
        TwoLevelCurve(arrays["coarse_thresholds"], fine),
    )
