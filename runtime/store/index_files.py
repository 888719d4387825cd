"""The files of an index: what each is called and holds, how they are written, and how they are opened by mmap.

1. An index is a folder: `manifest.json`, `document.safetensors`, and `layer-NNN.safetensors` for each cached layer.
2. The folder is written under another name, synced, and renamed when everything is in it.
3. The manifest names the format version, the hashes of model and document, where the document's file lay and where its
   pages and headings begin ("places": first character of its text, page, headings), the settings, and the type of keys
   and values ("dtype": f16; q8_0, whose rows are U8; or q4_0, whose rows are U16; see cpu_kernels/rows.py). For each
   file it has the size, the modification time and the SHA-256.
4. A file whose size differs from the manifest is refused. A file whose time differs is read whole and compared with
   its checksum first.
5. A layer's file holds the arrays of `IndexLayer` (runtime/cache/index.py) under their names, `position` as one I64,
   and all but `mass`. Rows are sorted by cluster, and clusters by coarse cluster; a layer without clusters has arrays
   of no centroids. `order` has each sorted row's position in the document.
6. `document.safetensors` holds the `tokens`, and what is measured on the last tokens when all layers are clustered:
   `mass.N` of cached layer N. Where there are clusters, it also holds the last tokens' queries, `queries.I` (F16), for
   each attention node whose layer has some: `query_layers` has the cached layer that it attends to, and
   `query_softcaps` the soft cap of its scores.
7. In an index that was made with `duo`, those arrays hold the KV heads that store all rows. Of the others, `streaming`
   has the numbers in the layer (I32), and `streaming_keys` and `streaming_values` the rows: first those of the
   document's first tokens, as many as `streaming_sinks` says (one I64), then those of its last tokens. The manifest's
   `duo` has the [layer, head] of these heads, how many sinks and recent tokens they see, and how batches were read. A
   layer without such heads, and an index without such layers, has none of this.
8. `thresholds-CALIBRATION.safetensors` holds thresholds that an attention asked for, under the names of
   `ThresholdCurve`. They are measured on the queries the first time, by the `Calibration` (runtime/cache/index.py) that
   the file is named after, such as `thresholds-head-each-group-1.safetensors`, and then added to the manifest.
9. `means.safetensors` holds what estimates clusters that are not selected (`ClusterMeans` in
   runtime/cache/cluster_means.py), as `NAME.N` of cached layer N, for the layers that have clusters. An index from
   before has none: the means are computed from its rows when an attention needs them.
10. Every array begins at a multiple of 64 bytes of its file: blanks end the header, and arrays named `padding.N` fill
   gaps. A file without them is read too, but a Mac's GPU refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import OctavoError
from ..cache.cluster_means import ClusterMeans
from ..cache.index import Calibration, Index, IndexLayer, LastQueries, StreamingRows, ThresholdCurve
from .files import map_arrays, read_json, sha256_of, write_arrays, write_json

INDEX_VERSION = 4
MANIFEST = "manifest.json"
DOCUMENT = "document.safetensors"
MEANS = "means.safetensors"
_THRESHOLDS = "thresholds-"

#: Fields of `IndexLayer` that a layer's file does not hold as they are: one is a number, one is measured later, one has
#: arrays of its own, and one has a file of its own.
_NUMBER, _MEASURED, _STREAMING, _MEANS = "position", "mass", "streaming", "known_means"


def open_index(path: Path, model_hash: str, thorough: bool = False) -> tuple[Index, dict[str, Any]]:
    """Open an index by mmap.

    Parameters
    ----------
    path : Path
        Folder of the index.
    model_hash : str
        SHA-256 of the model that is to attend it.
    thorough : bool
        Compare all files with their checksums, not only those whose modification time changed.

    Returns
    -------
    index : Index
        Tokens, layers and queries; the arrays are read from disk when they are touched. Thresholds that are measured
        are kept in the folder.
    manifest : dict
        What `manifest.json` says.

    Raises
    ------
    OctavoError
        The folder is no index, has another format, was made with another model, or was changed on disk.
    """
    if not (path / MANIFEST).exists():
        raise OctavoError(f"{path} is not an octavo index: it has no {MANIFEST}.")
    manifest = read_manifest(path)
    if manifest.get("format_version") != INDEX_VERSION:
        raise OctavoError(
            f"The index {path} has format {manifest.get('format_version')}, and this octavo reads {INDEX_VERSION}: "
            "index the document again."
        )
    if manifest["model"]["sha256"] != model_hash:
        raise OctavoError(
            f"The index {path} was made with another model ({manifest['model']['name']}): index the document again."
        )
    for name, described in manifest["files"].items():
        check_file(path / name, described, thorough)
    measured = map_arrays(path / DOCUMENT)
    n_layers = sum(name.startswith("layer-") for name in manifest["files"])
    layers = [read_layer(path, i, measured[f"mass.{i}"]) for i in range(n_layers)]
    if MEANS in manifest["files"]:
        layers = _with_means(layers, map_arrays(path / MEANS))
    nodes = enumerate(zip(measured["query_layers"], measured["query_softcaps"], strict=True))
    queries = [LastQueries(int(layer), float(softcap), measured[f"queries.{i}"]) for i, (layer, softcap) in nodes]
    return Index(measured["tokens"], layers, queries, _Curves(path)), manifest


def layer_path(folder: Path, i: int) -> Path:
    """Return the file of cached layer i.

    Parameters
    ----------
    folder : Path
        Folder of the index.
    i : int
        Number of the layer among those that own a cache.
    """
    return folder / f"layer-{i:03d}.safetensors"


def write_layer(folder: Path, i: int, layer: IndexLayer) -> None:
    """Write one layer, without its mass: that is measured when all layers are clustered.

    Parameters
    ----------
    folder : Path
        Folder of the index.
    i : int
        Number of the layer among those that own a cache.
    layer : IndexLayer
        What to write.
    """
    names = [field.name for field in fields(layer) if field.name not in (_NUMBER, _MEASURED, _STREAMING, _MEANS)]
    arrays = {name: getattr(layer, name) for name in names}
    arrays |= streaming_arrays(layer.streaming)
    write_arrays(layer_path(folder, i), {**arrays, _NUMBER: np.array([layer.position], np.int64)})


def streaming_arrays(streaming: StreamingRows | None, suffix: str = "") -> dict[str, np.ndarray]:
    """Return the arrays that a file has of heads that streamed, by name.

    Parameters
    ----------
    streaming : StreamingRows or None
        Their rows.
    suffix : str
        What the names end with.
    """
    if streaming is None:
        return {}
    return {
        f"streaming{suffix}": np.array(streaming.heads, np.int32),
        f"streaming_sinks{suffix}": np.array([streaming.n_sinks], np.int64),
        f"streaming_keys{suffix}": streaming.keys,
        f"streaming_values{suffix}": streaming.values,
    }


def take_streaming(arrays: dict[str, np.ndarray], suffix: str = "") -> StreamingRows | None:
    """Take what `streaming_arrays` gave out of a file's arrays, and return it."""
    if f"streaming{suffix}" not in arrays:
        return None
    names = (f"{name}{suffix}" for name in ("streaming", "streaming_sinks", "streaming_keys", "streaming_values"))
    heads, n_sinks, keys, values = (arrays.pop(name) for name in names)
    return StreamingRows(tuple(heads.tolist()), int(n_sinks[0]), keys, values)


def read_layer(folder: Path, i: int, mass: np.ndarray | None = None) -> IndexLayer:
    """Open one layer by mmap.

    Parameters
    ----------
    folder : Path
        Folder of the index.
    i : int
        Number of the layer among those that own a cache.
    mass : float32 array, shape (n_kv_head, n_rows), optional
        Its rows' mass, from the file of the document. Without it the mass is 0, as it was not measured yet.

    Returns
    -------
    IndexLayer
        The layer; its arrays are read from disk when they are touched.
    """
    arrays = map_arrays(layer_path(folder, i))
    position, streaming = int(arrays.pop(_NUMBER)[0]), take_streaming(arrays)
    if mass is None:
        mass = np.zeros(arrays["keys"].shape[:2], np.float32)
    return IndexLayer(position=position, mass=mass, streaming=streaming, known_means=None, **arrays)


def write_document(folder: Path, index: Index) -> None:
    """Write what an index holds besides its layers and thresholds: tokens, queries, and the layers' mass.

    Parameters
    ----------
    folder : Path
        Folder of the index.
    index : Index
        What to write.
    """
    arrays = {
        "tokens": index.tokens,
        "query_layers": np.array([each.layer for each in index.queries], np.int32),
        "query_softcaps": np.array([each.softcap for each in index.queries], np.float64),
    }
    arrays |= {f"queries.{i}": each.queries for i, each in enumerate(index.queries)}
    arrays |= {f"mass.{i}": layer.mass for i, layer in enumerate(index.layers)}
    write_arrays(folder / DOCUMENT, arrays)


def write_means(folder: Path, layers: Sequence[IndexLayer]) -> None:
    """Write the means of all layers' clusters; nothing for a document without clusters.

    Parameters
    ----------
    folder : Path
        Folder of the index.
    layers : sequence of IndexLayer
        All layers that own a cache.
    """
    clustered = [(i, layer.means) for i, layer in enumerate(layers) if layer.n_clusters]
    if clustered:
        arrays = {f"{name}.{i}": array for i, means in clustered for name, array in means._asdict().items()}
        write_arrays(folder / MEANS, arrays)


def _with_means(layers: list[IndexLayer], arrays: dict[str, np.ndarray]) -> list[IndexLayer]:
    """Return the layers with the means that a file holds."""

    def means(i: int) -> ClusterMeans:
        return ClusterMeans(*(arrays[f"{name}.{i}"] for name in ClusterMeans._fields))

    return [replace(layer, known_means=means(i)) if layer.n_clusters else layer for i, layer in enumerate(layers)]


class _Curves(dict[Calibration, ThresholdCurve]):
    """The thresholds of an index that were measured so far. What is added is kept in its folder, if that can be.

    Parameters
    ----------
    folder : Path
        Folder of the index.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        for name in read_manifest(folder)["files"]:
            if name.startswith(_THRESHOLDS):
                threshold, queries, select, levels = name.removeprefix(_THRESHOLDS).split(".")[0].split("-")
                curve = ThresholdCurve(**map_arrays(folder / name))
                super().__setitem__(Calibration(threshold, queries, select, int(levels)), curve)

    def __setitem__(self, calibration: Calibration, curve: ThresholdCurve) -> None:
        super().__setitem__(calibration, curve)
        arrays = {name: array for name, array in vars(curve).items() if array is not None}
        path = self._folder / f"{_THRESHOLDS}{calibration}.safetensors"
        with suppress(OctavoError):  # of a disk that is full, or not ours: they are measured again next time
            write_arrays(path, arrays)
            manifest = read_manifest(self._folder)
            write_json(self._folder / MANIFEST, manifest | {"files": manifest["files"] | {path.name: _describe(path)}})


def write_manifest(folder: Path, n_layers: int, entries: dict[str, Any]) -> None:
    """Write the manifest of an index whose other files are all there.

    Parameters
    ----------
    folder : Path
        Folder of the index.
    n_layers : int
        Number of layers that own a cache.
    entries : dict
        All entries of the manifest but `files`.
    """
    paths = [folder / DOCUMENT, *(layer_path(folder, i) for i in range(n_layers))]
    paths += [folder / MEANS] if (folder / MEANS).exists() else []
    write_json(folder / MANIFEST, {**entries, "files": {path.name: _describe(path) for path in paths}})


def _describe(path: Path) -> dict[str, Any]:
    """What the manifest says of a file."""
    status = path.stat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": sha256_of(path)}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of an index.

    Parameters
    ----------
    folder : Path
        Folder of the index.

    Returns
    -------
    dict
        The manifest; the entries that octavo relies on are there.

    Raises
    ------
    OctavoError
        The manifest cannot be read, or lacks an entry.
    """
    path = folder / MANIFEST
    manifest = read_json(path)
    try:
        complete = {"name", "sha256", "tokens"} <= manifest["document"].keys()
        complete = complete and {"name", "sha256"} <= manifest["model"].keys()
        complete = complete and {"created", "dtype"} <= manifest.keys()
        complete = complete and all(
            known.keys() >= {"size", "mtime_ns", "sha256"} for known in manifest["files"].values()
        )
    except (KeyError, AttributeError):
        complete = False
    if not complete:
        raise OctavoError(f"{path} is incomplete: delete {folder} and index the document again.")
    return manifest


def check_file(path: Path, described: dict[str, Any], thorough: bool = False) -> None:
    """Compare a file with what the manifest says of it.

    Parameters
    ----------
    path : Path
        The file.
    described : dict
        Its size, modification time and checksum, from the manifest.
    thorough : bool
        Compare the checksum even if the modification time is as it was.

    Raises
    ------
    OctavoError
        The file is missing, or not as it was written.
    """
    try:
        status = path.stat()
    except OSError as problem:
        raise OctavoError(_damaged(path, "is missing")) from problem
    if status.st_size != described["size"]:
        raise OctavoError(_damaged(path, "has another size than when it was written"))
    untouched = status.st_mtime_ns == described["mtime_ns"]
    if (thorough or not untouched) and sha256_of(path) != described["sha256"]:
        raise OctavoError(_damaged(path, "has changed since it was written"))


def _damaged(path: Path, what: str) -> str:
    return f"{path.name} of the index {path.parent} {what}: delete that folder and index the document again."
