"""Write the files of an index, and open them by mmap. This is their format:

1. An index is a folder: `manifest.json`, `document.safetensors`, and `layer-NNN.safetensors` for each cached layer.
2. The folder is written under another name, synced, and renamed when it is complete.
3. The manifest has the format version; the hashes of model and document; the path of the document's file, and its
   version: time and size ("mtime_ns", "bytes"), inode ("mark") and the SHA-256 of its bytes ("content"), which older
   indexes lack; other files with its text, with the same entries ("copies"); the starts of pages and headings
   ("places": first character of its text, page, headings); sentences about what its text lacks ("notices", of a
   document in parts with the first one); the settings (convert/identity.py); and the type of keys and values ("dtype":
   f16; q8_0, whose rows are I8, or U8 if they are flat; or q4_0, whose rows are U16; see cpu_kernels/rows/rows.py). For
   a part of a long document it has the range of characters of the file's text ("part"), the line that the part begins
   in ("first_line") and the most tokens of a part ("split"). It has the size of each file and the BLAKE3 checksum that
   the file itself contains (files.py), and its own checksum, of its JSON without the entry `blake3`. Older indexes have
   SHA-256 checksums of whole files instead, and none of the manifest.
4. Opening an index checks its arrays (index_check.py) and the size of each file, and the file's checksum if
   the rules of manifest.py require it. File names that these rules do not define, links and pipes are refused.
5. A layer's file holds the arrays of `IndexLayer` (runtime/document/index.py) under their names, `position` as one I64,
   and all but `mass`. Rows are sorted by cluster, and clusters by coarse cluster; a layer without clusters has empty
   arrays of centroids. `order` has each sorted row's position in the document. If values are the first part of their
   keys, `values` has rows without elements, and `split` their length (one I64).
6. `document.safetensors` holds the `tokens`, and the measurements on the last tokens after all layers are clustered:
   `mass.N` of cached layer N. Where there are clusters, it also holds the last tokens' queries, `queries.I` (F16), for
   each attention node whose layer has clusters: `query_layers` has the cached layer that the node attends to, and
   `query_softcaps` the soft cap of its scores.
7. In an index that was made with `duo`, those arrays hold the KV heads that store all rows. For the others, `streaming`
   has the numbers in the layer (I32), and `streaming_keys` and `streaming_values` the rows: first `streaming_sinks`
   (one I64) rows from the document's start, then those from its end. The manifest's `duo` has the [layer, head] of
   these heads, the numbers of sinks and recent tokens that they see, and the batches of reading. Layers without such
   heads, and indexes without such layers, have none of this.
8. `thresholds-CALIBRATION.safetensors` holds thresholds that an attention required, under the names of
   `ThresholdCurve`. They are measured on the queries the first time, by the `Calibration` (runtime/document/index.py)
   in the file's name, such as `thresholds-head-each-group-1.safetensors`, and then added to the manifest. Damaged ones
   are measured again.
9. `means.safetensors` holds the estimates of clusters that are not selected (`ClusterMeans` in
   runtime/document/mean_values.py), as `NAME.N` of cached layer N, for the layers with clusters. Older indexes have
   none: the means are then computed from the rows on demand.
10. An index of a hybrid model has `state-NNNNNNNN.safetensors` for each recurrent state that was kept. The name has the
   number of tokens before it, and runtime/document/kept_state.py defines its arrays. There is one after the last
   token, and one each so many tokens before. Older indexes have `state` (U8), the state as llama.cpp wrote it.
11. Every array begins at a multiple of 64 bytes of its file: blanks end the header, and arrays named `padding.N` fill
    gaps. A file without them is read too, but a Mac's GPU refuses it.
12. Readers share the lock of the index's folder while they open it; writers hold it alone. Files are replaced, never
    changed, so that open files stay readable.
13. `extras-NAME.safetensors` holds what a method derived from the rows the first time that it attended to them, by its
    `kept_name`, such as `extras-codes-4-1.safetensors`: for cached layer N the numbers of the heads in the layer,
    `heads.N` (I32), the extras of their chunks, `extras.N` (U8), and fields of the method's state, `FIELD.N`. It is
    then added to the manifest. A damaged one is derived again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from ...errors import OctavoError
from ...system.files import DamagedError, disk_errors, map_arrays, private_copy, stored_arrays, write_arrays
from ...system.locks import locked
from ..document.index import (
    Calibration,
    ClusterMeans,
    Index,
    IndexLayer,
    KeptExtras,
    LastQueries,
    StreamingRows,
    ThresholdCurve,
)
from ..document.kept_state import KeptState, kept_state
from ..document.stored_rows import is_format
from .index_check import ImpossibleError, check_curve, check_index, check_layer
from .manifest import DOCUMENT, EXTRAS, MANIFEST, THRESHOLDS, damages, describe, read_manifest, save_manifest

MEANS = "means.safetensors"

#: File of an index whose modification time is the time of its last use.
USED = "used"

#: Arrays of a layer with positions of others: they are copied, so that they cannot change after the check.
_SMALL = ("cluster_starts", "coarse_starts", "order")

#: Fields of `IndexLayer` that a layer's file does not hold directly: two numbers, one measured later, one with arrays
#: of its own, and one with a file of its own.
_NUMBER, _SPLIT, _MEASURED, _STREAMING, _MEANS = "position", "split", "mass", "streaming", "known_means"


def open_index(path: Path, model_hash: str, thorough: bool = False) -> tuple[Index, dict[str, Any]]:
    """Open an index by mmap.

    Parameters
    ----------
    model_hash : str
        SHA-256 of the attending model.
    thorough : bool
        Compare all files with their checksums, even those that are marked as verified.

    Returns
    -------
    index : Index
        Tokens, layers and queries, read from disk when they are touched. Measured thresholds are added to the folder.

    Raises
    ------
    DamagedError
        The index is damaged.
    OctavoError
        The folder is not an index, has another format, was made with another model, or cannot be read.
    """
    try:
        with disk_errors(path, doing="read"), locked(path, shared=True):
            return _open(path, model_hash, thorough)
    except OctavoError as problem:
        if (path / MANIFEST).exists():
            raise
        raise DamagedError(f"{path} is not an octavo index: it has no {MANIFEST}.") from problem


def _open(path: Path, model_hash: str, thorough: bool) -> tuple[Index, dict[str, Any]]:
    """Open an index while its lock is held."""
    manifest = read_manifest(path)
    if manifest["model"]["sha256"] != model_hash:
        raise OctavoError(
            f"The index {path} was made with another model ({manifest['model']['name']}): index the document again."
        )
    check = _unchanged(path, list(manifest["files"]))
    damage = {name: problem for name, problem in damages(path, manifest, thorough).items() if problem}
    for name, problem in damage.items():
        if not name.startswith((THRESHOLDS, EXTRAS)):  # these are made again
            raise DamagedError(problem)
    try:
        measured = map_arrays(path / DOCUMENT)
        n_layers = sum(name.startswith("layer-") for name in manifest["files"])
        layers = [read_layer(path, i, measured[f"mass.{i}"]) for i in range(n_layers)]
        if MEANS in manifest["files"]:
            layers = _with_means(layers, map_arrays(path / MEANS))
        nodes = enumerate(zip(measured["query_layers"], measured["query_softcaps"], strict=True))
        queries = [LastQueries(int(layer), float(softcap), measured[f"queries.{i}"]) for i, (layer, softcap) in nodes]
        states = [state for state in read_states(path) if state_path(path, state.n_tokens).name in manifest["files"]]
        index = Index(
            private_copy(measured["tokens"]),
            layers,
            queries,
            check=check,
            n_prefix=len(manifest["head"]),
            states=states,
        )
        check_index(index)
    except (ImpossibleError, KeyError, ValueError, TypeError, IndexError) as problem:
        raise DamagedError(f"The index {path} is damaged: its arrays contradict one another ({problem}).") from problem
    whole = [name for name in manifest["files"] if name not in damage]
    return replace(index, curves=Curves(path, index, whole), extras=Extras(path, index, whole)), manifest


def _unchanged(folder: Path, names: Sequence[str]) -> Callable[[], None]:
    """Return a function that raises OctavoError if one of these files changes in place.

    Removing or replacing one is allowed: its mapping stays valid.
    """
    opened = {name: (folder / name).lstat() for name in names if (folder / name).exists()}

    def check() -> None:
        for name, before in opened.items():
            with suppress(OSError):
                now = (folder / name).lstat()
                same = (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
                if now.st_ino == before.st_ino and not same:
                    raise OctavoError(
                        f"Another program changed {name} of the index {folder} while it was open, so answers may be "
                        "wrong: open the document again."
                    )

    return check


def note_use(folder: Path) -> None:
    """Record the use of an index, if possible."""
    with suppress(OSError):
        (folder / USED).touch()


def folder_bytes(folder: Path) -> int:
    """Return the bytes of an index on disk. Files that other processes move meanwhile may not count."""
    n_bytes = 0
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):
                status = (folder / name).stat()
                n_bytes += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return n_bytes


def layer_path(folder: Path, i: int) -> Path:
    """Return the file of layer i, counted among the layers that own a cache."""
    return folder / f"layer-{i:03d}.safetensors"


def write_layer(folder: Path, i: int, layer: IndexLayer) -> None:
    """Write one layer without its mass, which is measured after all layers are clustered."""
    apart = _NUMBER, _SPLIT, _MEASURED, _STREAMING, _MEANS
    arrays = {field.name: getattr(layer, field.name) for field in fields(layer) if field.name not in apart}
    arrays |= streaming_arrays(layer.streaming)
    if layer.split:
        arrays |= {_SPLIT: np.array([layer.split], np.int64)}
    write_arrays(layer_path(folder, i), {**arrays, _NUMBER: np.array([layer.position], np.int64)})


def streaming_arrays(streaming: StreamingRows | None, suffix: str = "") -> dict[str, np.ndarray]:
    """Return the arrays of heads that streamed, by name; names end with the suffix."""
    if streaming is None:
        return {}
    return {
        f"streaming{suffix}": np.array(streaming.heads, np.int32),
        f"streaming_sinks{suffix}": np.array([streaming.n_sinks], np.int64),
        f"streaming_keys{suffix}": streaming.keys,
        f"streaming_values{suffix}": streaming.values,
    }


def take_streaming(arrays: dict[str, np.ndarray], suffix: str = "") -> StreamingRows | None:
    """Take the arrays of `streaming_arrays` out of a file's arrays."""
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
        Mass of its rows, from `document.safetensors`. The default is 0: not measured yet.

    Returns
    -------
    IndexLayer
        The layer; its arrays are read from disk when they are touched.
    """
    arrays = map_arrays(layer_path(folder, i))
    position, streaming = int(arrays.pop(_NUMBER)[0]), take_streaming(arrays)
    split = int(arrays.pop(_SPLIT, np.zeros(1, np.int64))[0])
    if mass is None:
        mass = np.zeros(arrays["keys"].shape[:2], np.float32)
    arrays |= {name: private_copy(arrays[name]) for name in _SMALL}
    return IndexLayer(position=position, mass=mass, streaming=streaming, known_means=None, split=split, **arrays)


def read_tokens(folder: Path) -> np.ndarray:
    """Read only the tokens of an index, (n_tokens,) int32. Raise DamagedError if they are missing."""
    with stored_arrays(folder / DOCUMENT) as arrays:
        tokens = arrays["tokens"].read()
        if tokens.dtype != np.int32 or tokens.ndim != 1:
            raise ValueError
    return tokens


def read_keys(folder: Path, i: int, head: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Read only the keys of one KV head, in a layer whose window does not slide.

    Returns
    -------
    keys : array, shape (n_rows, elements of a row)
        Stored keys.
    order : int32 array, shape (n_rows,)
        Their positions. The pair is None if the head streamed while the document was read.

    Raises
    ------
    DamagedError
        They are missing.
    """
    with stored_arrays(layer_path(folder, i)) as arrays:
        streaming = arrays["streaming"].read() if "streaming" in arrays else np.zeros(0, np.int32)
        if head in streaming:
            return None
        place = head - int((streaming < head).sum())
        keys, order = arrays["keys"].part(place).read(), arrays["order"].part(place).read()
        if not len(order):  # rows are in order
            order = int(arrays[_NUMBER].read()[0]) + np.arange(len(keys), dtype=np.int32)
        if keys.ndim != 2 or order.shape != keys.shape[:1] or not is_format(keys):
            raise ValueError
    return keys, order


def whole_layer_of(folder: Path, i: int, n_tokens: int) -> IndexLayer | None:
    """Open one layer of an unfinished index; None if it is missing or damaged."""
    try:
        map_arrays(layer_path(folder, i), checked=True, in_place=True)
        check_layer(layer := read_layer(folder, i), n_tokens)
        return layer
    except (DamagedError, KeyError, ValueError, TypeError, IndexError):
        return None


def state_path(folder: Path, n_tokens: int) -> Path:
    """Return the file of the recurrent state after n_tokens tokens."""
    return folder / f"state-{n_tokens:08d}.safetensors"


def write_state(folder: Path, state: KeptState) -> None:
    """Write a recurrent state."""
    write_arrays(state_path(folder, state.n_tokens), dict(state.arrays))


def read_states(folder: Path) -> list[KeptState]:
    """Open the recurrent states in a folder by mmap, in rising order, without damaged ones."""
    states = []
    for path in sorted(folder.glob("state-*.safetensors")):
        with suppress(DamagedError, KeyError, ValueError):
            states.append(kept_state(int(path.stem.removeprefix("state-")), map_arrays(path)))
    return states


def write_document(folder: Path, index: Index) -> None:
    """Write the tokens, the queries, and the layers' mass."""
    arrays = {
        "tokens": index.tokens,
        "query_layers": np.array([node_queries.layer for node_queries in index.queries], np.int32),
        "query_softcaps": np.array([node_queries.softcap for node_queries in index.queries], np.float64),
    }
    arrays |= {f"queries.{i}": node_queries.queries for i, node_queries in enumerate(index.queries)}
    arrays |= {f"mass.{i}": layer.mass for i, layer in enumerate(index.layers)}
    write_arrays(folder / DOCUMENT, arrays)


def write_means(folder: Path, layers: Sequence[IndexLayer]) -> None:
    """Write the means of all layers' clusters, if there are any."""
    clustered = [(i, layer.means) for i, layer in enumerate(layers) if layer.n_clusters]
    if clustered:
        arrays = {f"{name}.{i}": array for i, means in clustered for name, array in means._asdict().items()}
        write_arrays(folder / MEANS, arrays)


def _with_means(layers: list[IndexLayer], arrays: dict[str, np.ndarray]) -> list[IndexLayer]:

    def means(i: int) -> ClusterMeans:
        return ClusterMeans(*(arrays[f"{name}.{i}"] for name in ClusterMeans._fields))

    return [replace(layer, known_means=means(i)) if layer.n_clusters else layer for i, layer in enumerate(layers)]


def write_manifest(folder: Path, n_layers: int, entries: dict[str, Any]) -> None:
    """Write the manifest of an index whose other files exist.

    Parameters
    ----------
    entries : dict
        All entries of the manifest but `files`.
    """
    paths = [folder / DOCUMENT, *(layer_path(folder, i) for i in range(n_layers))]
    paths += [folder / MEANS] if (folder / MEANS).exists() else []
    paths += [state_path(folder, state.n_tokens) for state in read_states(folder)]
    save_manifest(folder, {**entries, "files": {path.name: describe(path) for path in paths}})


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Kept(dict[_Key, _Value], Generic[_Key, _Value]):
    """What is kept, by a key that a file's name has. What is added is also written to the folder, if possible.

    Parameters
    ----------
    index : Index
        The index that it belongs to.
    names : sequence of str
        The index's undamaged files. Those that do not open, or hold what cannot be, are made again.
    """

    #: Beginning of the names of its files.
    prefix: ClassVar[str]

    def __init__(self, folder: Path, index: Index, names: Sequence[str]) -> None:
        super().__init__()
        self._folder = folder
        for name in names:
            if name.startswith(self.prefix):
                with suppress(DamagedError, ImpossibleError, ValueError, TypeError):
                    kept = self._read(name.removeprefix(self.prefix).split(".")[0], map_arrays(folder / name), index)
                    super().__setitem__(*kept)

    def _read(self, name: str, arrays: dict[str, np.ndarray], index: Index) -> tuple[_Key, _Value]:
        """Return the key and the value that a file's name, without prefix and suffix, and its arrays stand for."""
        raise NotImplementedError

    def _write(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Add a file to the index."""
        path = self._folder / f"{self.prefix}{name}.safetensors"
        with suppress(OctavoError, OSError), locked(self._folder):
            # the disk may be full or read-only, or the index removed: it is then made again next time
            write_arrays(path, arrays)
            manifest = read_manifest(self._folder)
            manifest["files"][path.name] = describe(path)
            save_manifest(self._folder, manifest)


class Curves(_Kept[Calibration, ThresholdCurve]):
    """The measured thresholds of an index."""

    prefix = THRESHOLDS

    def _read(self, name: str, arrays: dict[str, np.ndarray], index: Index) -> tuple[Calibration, ThresholdCurve]:
        threshold, queries, select, levels = name.split("-")
        check_curve(curve := ThresholdCurve(**{kind: private_copy(arrays[kind]) for kind in arrays}), index)
        return Calibration(threshold, queries, select, int(levels)), curve

    def __setitem__(self, calibration: Calibration, curve: ThresholdCurve) -> None:
        super().__setitem__(calibration, curve)
        self._write(str(calibration), {name: array for name, array in vars(curve).items() if array is not None})


class Extras(_Kept[str, KeptExtras]):
    """The extras that an index keeps, by the name that their method gives them."""

    prefix = EXTRAS

    def _read(self, name: str, arrays: dict[str, np.ndarray], index: Index) -> tuple[str, KeptExtras]:
        kept: KeptExtras = {}
        for array_name, array in arrays.items():
            what, layer = array_name.split(".")
            kept.setdefault(int(layer), {})[what] = array
        return name, kept

    def __setitem__(self, name: str, kept: KeptExtras) -> None:
        super().__setitem__(name, kept)
        self._write(name, {f"{what}.{layer}": array for layer, own in kept.items() for what, array in own.items()})
