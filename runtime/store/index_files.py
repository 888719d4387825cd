"""The files of an index: what each is called and holds, how they are written, and how they are opened by mmap.

1. An index is a folder: `manifest.json`, `document.safetensors`, and `layer-NNN.safetensors` for each cached layer.
2. The folder is written under another name, synced, and renamed when everything is in it.
3. The manifest names the format version, the hashes of model and document, where the document's file lay and where its
   pages and headings begin ("places": first character of its text, page, headings), the settings, and the type of keys
   and values ("dtype": f16; q8_0, whose rows are U8; or q4_0, whose rows are U16; see cpu_kernels/rows/rows.py). Of a
   part of a long document it says which characters of the file's text ("part") it is, and which line it begins in
   ("first_line"). For each file it has the size and the BLAKE3 checksum that the file itself names (files.py), and for
   itself that of its JSON without the entry `blake3`. Indexes from before have SHA-256 checksums of whole files in
   their place, and none of the manifest.
4. Whoever opens an index checks what its arrays say (index_check.py), and the size of each file; its checksum too,
   when verified_checksums.py says so. Names of files that rule 1 and 8 do not know, links and pipes are refused.
5. A layer's file holds the arrays of `IndexLayer` (runtime/document/index.py) under their names, `position` as one I64,
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
   `ThresholdCurve`. They are measured on the queries the first time, by the `Calibration` (runtime/document/index.py)
   that the file is named after, such as `thresholds-head-each-group-1.safetensors`, and then added to the manifest.
   Those that are damaged are measured again.
9. `means.safetensors` holds what estimates clusters that are not selected (`ClusterMeans` in
   runtime/document/mean_values.py), as `NAME.N` of cached layer N, for the layers that have clusters. An index from
   before has none: the means are computed from its rows when an attention needs them.
10. Every array begins at a multiple of 64 bytes of its file: blanks end the header, and arrays named `padding.N` fill
   gaps. A file without them is read too, but a Mac's GPU refuses it.
11. Who opens an index shares the lock of its folder for that moment; who changes or removes it holds the lock alone.
    Files are replaced, never changed, so that those who have them open read on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import OctavoError
from ..document.index import Calibration, Index, IndexLayer, LastQueries, StreamingRows, ThresholdCurve
from ..document.mean_values import ClusterMeans
from .files import DamagedError, disk_errors, map_arrays, write_arrays
from .index_check import ImpossibleError, check_curve, check_index, check_layer
from .locks import locked
from .manifest import DOCUMENT, MANIFEST, THRESHOLDS, damages, describe, read_manifest, save_manifest

MEANS = "means.safetensors"

#: Arrays of a layer that say where others are: they are copied, so that nothing changes them after they were checked.
_SMALL = ("cluster_starts", "coarse_starts", "order")

#: Fields of `IndexLayer` that a layer's file does not hold as they are: one is a number, one is measured later, one has
#: arrays of its own, and one has a file of its own.
_NUMBER, _MEASURED, _STREAMING, _MEANS = "position", "mass", "streaming", "known_means"


def open_index(path: Path, model_hash: str, thorough: bool = False) -> tuple[Index, dict[str, Any]]:
    """Open an index by mmap.

    Parameters
    ----------
    model_hash : str
        SHA-256 of the model that is to attend it.
    thorough : bool
        Compare all files with their checksums, not only those that verified_checksums.py names.

    Returns
    -------
    index : Index
        Tokens, layers and queries; the arrays are read from disk when they are touched. Thresholds that are measured
        are kept in the folder.

    Raises
    ------
    DamagedError
        The index is not as it was written.
    OctavoError
        The folder is not an index, has another format, was made with another model, or cannot be read.
    """
    if not (path / MANIFEST).exists():
        raise DamagedError(f"{path} is not an octavo index: it has no {MANIFEST}.")
    with disk_errors(path, doing="read"), locked(path, shared=True):
        return _open(path, model_hash, thorough)


def _open(path: Path, model_hash: str, thorough: bool) -> tuple[Index, dict[str, Any]]:
    """Open an index whose lock is held."""
    manifest = read_manifest(path)
    if manifest["model"]["sha256"] != model_hash:
        raise OctavoError(
            f"The index {path} was made with another model ({manifest['model']['name']}): index the document again."
        )
    check = _unchanged(path, list(manifest["files"]))
    damage = {name: problem for name, problem in damages(path, manifest, thorough).items() if problem}
    for name, problem in damage.items():
        if not name.startswith(THRESHOLDS):  # these are measured again
            raise DamagedError(problem)
    try:
        measured = map_arrays(path / DOCUMENT)
        n_layers = sum(name.startswith("layer-") for name in manifest["files"])
        layers = [read_layer(path, i, measured[f"mass.{i}"]) for i in range(n_layers)]
        if MEANS in manifest["files"]:
            layers = _with_means(layers, map_arrays(path / MEANS))
        nodes = enumerate(zip(measured["query_layers"], measured["query_softcaps"], strict=True))
        queries = [LastQueries(int(layer), float(softcap), measured[f"queries.{i}"]) for i, (layer, softcap) in nodes]
        index = Index(_private(measured["tokens"]), layers, queries, check=check)
        check_index(index)
    except (ImpossibleError, KeyError, ValueError, TypeError, IndexError) as problem:
        raise DamagedError(f"The index {path} is damaged: its arrays contradict one another ({problem}).") from problem
    curves = _Curves(path, index, [name for name in manifest["files"] if name not in damage])
    return replace(index, curves=curves), manifest


def _unchanged(folder: Path, names: Sequence[str]) -> Callable[[], None]:
    """Return a function that raises OctavoError if one of these files is changed from now on.

    One that is removed or replaced is not: whoever has mapped it keeps it.
    """
    known = {name: (folder / name).lstat() for name in names if (folder / name).exists()}

    def check() -> None:
        for name, before in known.items():
            with suppress(OSError):
                now = (folder / name).lstat()
                same = (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
                if now.st_ino == before.st_ino and not same:
                    raise OctavoError(
                        f"Another program changed {name} of the index {folder} while it was open, so answers may be "
                        "wrong: open the document again."
                    )

    return check


def layer_path(folder: Path, i: int) -> Path:
    """Return the file of cached layer i.

    Parameters
    ----------
    i : int
        Number of the layer among those that own a cache.
    """
    return folder / f"layer-{i:03d}.safetensors"


def write_layer(folder: Path, i: int, layer: IndexLayer) -> None:
    """Write one layer, without its mass: that is measured when all layers are clustered."""
    names = [field.name for field in fields(layer) if field.name not in (_NUMBER, _MEASURED, _STREAMING, _MEANS)]
    arrays = {name: getattr(layer, name) for name in names}
    arrays |= streaming_arrays(layer.streaming)
    write_arrays(layer_path(folder, i), {**arrays, _NUMBER: np.array([layer.position], np.int64)})


def streaming_arrays(streaming: StreamingRows | None, suffix: str = "") -> dict[str, np.ndarray]:
    """Return the arrays that a file has of heads that streamed, by name.

    Parameters
    ----------
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
    arrays |= {name: _private(arrays[name]) for name in _SMALL}
    return IndexLayer(position=position, mass=mass, streaming=streaming, known_means=None, **arrays)


def read_tokens(folder: Path) -> np.ndarray:
    """Open the tokens of an index by mmap, without the rest: int32, shape (n_tokens,).

    Raises
    ------
    DamagedError
        They are not there.
    """
    tokens = _mapped(folder / DOCUMENT).get("tokens")
    if tokens is None or tokens.dtype != np.int32 or tokens.ndim != 1:
        raise DamagedError(f"{folder / DOCUMENT} is damaged: it has no tokens.")
    return tokens


def read_keys(folder: Path, i: int, head: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Open the keys of one KV head by mmap, without the rest of an index.

    Parameters
    ----------
    folder, i
        As in `read_layer`. The layer's window does not slide.

    Returns
    -------
    keys : array, shape (n_rows, elements of a row)
        As in `IndexLayer`.
    order : int32 array, shape (n_rows,)
        Position of each.
    Or None if the head streamed while the document was read.

    Raises
    ------
    DamagedError
        They are not there.
    """
    arrays = _mapped(layer_path(folder, i))
    streaming = arrays.get("streaming", np.zeros(0, np.int32))
    if head in streaming:
        return None
    try:
        place = head - int((streaming < head).sum())
        keys, order = arrays["keys"][place], arrays["order"][place]
        if not len(order):  # they lie in order
            order = int(arrays[_NUMBER][0]) + np.arange(len(keys), dtype=np.int32)
        if keys.ndim != 2 or order.shape != keys.shape[:1] or keys.dtype not in (np.float16, np.uint8, np.uint16):
            raise ValueError
    except (KeyError, IndexError, ValueError) as problem:
        raise DamagedError(f"{layer_path(folder, i)} is damaged: its arrays contradict one another.") from problem
    return keys, order


def _mapped(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file. Raise DamagedError if it is missing."""
    if not path.exists():
        raise DamagedError(f"{path} is missing.")
    return map_arrays(path)


def _private(array: np.ndarray) -> np.ndarray:
    """Return a read-only copy of an array, in memory."""
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


def whole_layer_of(folder: Path, i: int, n_tokens: int) -> IndexLayer | None:
    """Open one layer of an index that is not finished, if it is there and as it was written."""
    try:
        map_arrays(layer_path(folder, i), checked=True, in_place=True)
        check_layer(layer := read_layer(folder, i), n_tokens)
        return layer
    except (DamagedError, KeyError, ValueError, TypeError, IndexError):
        return None


def write_document(folder: Path, index: Index) -> None:
    """Write what an index holds besides its layers and thresholds: tokens, queries, and the layers' mass."""
    arrays = {
        "tokens": index.tokens,
        "query_layers": np.array([each.layer for each in index.queries], np.int32),
        "query_softcaps": np.array([each.softcap for each in index.queries], np.float64),
    }
    arrays |= {f"queries.{i}": each.queries for i, each in enumerate(index.queries)}
    arrays |= {f"mass.{i}": layer.mass for i, layer in enumerate(index.layers)}
    write_arrays(folder / DOCUMENT, arrays)


def write_means(folder: Path, layers: Sequence[IndexLayer]) -> None:
    """Write the means of all layers' clusters; nothing for a document without clusters."""
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
    names : sequence of str
        Its files that are whole.
    """

    def __init__(self, folder: Path, index: Index, names: Sequence[str]) -> None:
        super().__init__()
        self._folder = folder
        for name in names:
            if name.startswith(THRESHOLDS):
                with suppress(DamagedError, ImpossibleError, ValueError, TypeError):  # these are measured again
                    threshold, queries, select, levels = name.removeprefix(THRESHOLDS).split(".")[0].split("-")
                    arrays = {kind: _private(array) for kind, array in map_arrays(folder / name).items()}
                    check_curve(curve := ThresholdCurve(**arrays), index)
                    super().__setitem__(Calibration(threshold, queries, select, int(levels)), curve)

    def __setitem__(self, calibration: Calibration, curve: ThresholdCurve) -> None:
        super().__setitem__(calibration, curve)
        arrays = {name: array for name, array in vars(curve).items() if array is not None}
        path = self._folder / f"{THRESHOLDS}{calibration}.safetensors"
        with suppress(OctavoError, OSError), locked(self._folder):
            # of a disk that is full, or not ours, or of an index that was removed: they are measured again next time
            write_arrays(path, arrays)
            manifest = read_manifest(self._folder)
            manifest["files"][path.name] = describe(path)
            save_manifest(self._folder, manifest)


def write_manifest(folder: Path, n_layers: int, entries: dict[str, Any]) -> None:
    """Write the manifest of an index whose other files are all there.

    Parameters
    ----------
    entries : dict
        All entries of the manifest but `files`.
    """
    paths = [folder / DOCUMENT, *(layer_path(folder, i) for i in range(n_layers))]
    paths += [folder / MEANS] if (folder / MEANS).exists() else []
    save_manifest(folder, {**entries, "files": {path.name: describe(path) for path in paths}})
