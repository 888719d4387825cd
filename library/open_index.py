"""Find a document's index, or make it first."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path
from typing import Any

from ..convert.clusters import ClusterSettings, settings_for
from ..convert.index_builder import IndexBuilder, identity
from ..convert.pipeline import covers_by
from ..cpu_kernels.numba_support import background_compile
from ..documents.document import Document
from ..documents.read import read_document
from ..progress import Progress
from ..runtime.document.index import Index
from ..runtime.llama import Llama
from ..runtime.store.files import DamagedError
from ..runtime.store.index_files import open_index
from ..runtime.store.model_library import Library, hash_text
from ..settings import PREFILL_SPARSE
from .catalogue import folder_bytes, note_use

#: Bytes of an index for each byte of keys and values: clusters and what is measured on the last tokens.
_MORE_THAN_ROWS = 1.1

#: What an index takes to open before that is said: it is compared with its checksums the first time.
_SHOWN_SECONDS = 0.5

#: Share of the time that tokens take whose rows are known: they are clustered anew.
_CLUSTERING = 0.3


class Source:
    """A document's file. It is read when its text is needed, once: not if the file is as it was when it was indexed.

    Parameters
    ----------
    path : path
        The file; "-" is standard input.
    password : str, optional
        Opens an encrypted PDF.
    document : Document, optional
        What was read from it already.
    """

    def __init__(
        self, path: str | os.PathLike[str], password: str | None = None, document: Document | None = None
    ) -> None:
        self.path, self.password = path, password
        if document is not None:
            self.document = document

    @cached_property
    def document(self) -> Document:
        """The document, as it is read from the file."""
        return read_document(self.path, self.password)

    @property
    def is_file(self) -> bool:
        """Whether the document is a file that can be read again: no pipe."""
        return os.path.isfile(self.path)

    def sha256(self, library: Library) -> str:
        """Return the hash of the document's text, from an index in a library if one was made of this very file.

        Raises
        ------
        OctavoError
            The document cannot be read.
        """
        if "document" in vars(self) or not self.is_file:
            return hash_text(self.document.text)
        status, where = os.stat(self.path), os.path.realpath(self.path)
        file = where, status.st_mtime_ns, status.st_size
        for _, manifest in library.indexes():
            known = manifest["document"]
            if (known.get("path"), known.get("mtime_ns"), known.get("bytes")) == file and "part" not in known:
                return str(known["sha256"])
        return hash_text(self.document.text)

    @property
    def name(self) -> str:
        """Return what messages call the document."""
        return self.document.name if "document" in vars(self) else Path(self.path).name


def refuse_early(source: Source, library: Library, notice: Callable[[str], None]) -> None:
    """Read a document before the model is loaded, if it has to be read, and say what there is to know about it.

    Parameters
    ----------
    source : Source
        The document.
    library : Library
        The model's indexes.
    notice : callable
        Receives what there is to know.

    Raises
    ------
    OctavoError
        The document cannot be read.
    """
    source.sha256(library)
    if "document" in vars(source):
        for sentence in source.document.notices:
            notice(sentence)


def index_document(
    llama: Llama,
    library: Library,
    source: Source,
    progress: Progress,
    n_jobs: int,
    notice: Callable[[str], None],
    prefill: str = PREFILL_SPARSE,
    known: Collection[str] = (),
) -> Path:
    """Make the index of a document unless it is there already, with what the model's attention needs of it.

    Parameters
    ----------
    llama : Llama
        The model that reads the document. It is empty afterwards, and attends as before.
    library : Library
        Where the model's indexes live.
    source : Source
        The document's file.
    progress : Progress
        Is told how far the work is.
    n_jobs : int
        Threads that cluster.
    notice : callable
        Receives a sentence that says what happens to the document.
    prefill : str
        How the document is read, one of PREFILLS (settings.py). An index of a dense reading serves any.
    known : collection of str
        Names of indexes that another library has: the document's is not made if it is one of them.

    Returns
    -------
    Path
        The folder of the index.

    Raises
    ------
    OctavoError
        The document cannot be read or is too long, or disk or memory do not suffice.
    """
    path, covers = locate(llama, library, source, prefill)
    for name in known:
        if name.rpartition("-")[2] == path.name.rpartition("-")[2]:  # named after another copy of the document
            return path.with_name(name)
    if (opened := _opened(path, library, source, notice)) is not None:
        notice(f"{source.name} is indexed already: {path}")
    else:
        _build(llama, library, path, source.document, progress, n_jobs, notice, covers)
        opened = open_index(path, library.model_hash)
    index, _ = opened
    for assignment in llama.context.cache.assignments:
        assignment.method.measure(index)
    return path


def attach_document(
    llama: Llama,
    library: Library,
    source: Source,
    progress: Progress,
    n_jobs: int,
    notice: Callable[[str], None],
    prefill: str = PREFILL_SPARSE,
) -> dict[str, Any]:
    """Attach a document's index to a model, and make the index first if there is none.

    Parameters
    ----------
    llama, library, source, progress, n_jobs, notice, prefill
        As in `index_document`. The model holds the document afterwards.

    Returns
    -------
    dict
        What the index's manifest says of the document.

    Raises
    ------
    OctavoError
        The index cannot be made or opened.
    """
    path, covers = locate(llama, library, source, prefill)
    opened = _opened(path, library, source, notice)
    if opened is None:
        _build(llama, library, path, source.document, progress, n_jobs, notice, covers)
        opened = open_index(path, library.model_hash)
    index, manifest = opened
    note_use(path)
    llama.attach(index)
    described: dict[str, Any] = manifest["document"]
    return described


def _settings(llama: Llama) -> ClusterSettings:
    """How a document is clustered for the attention that the model was loaded with."""
    return settings_for(llama.context.kv_type, llama.attention.clustering)


def locate(llama: Llama, library: Library, source: Source, prefill: str = PREFILL_SPARSE) -> tuple[Path, float]:
    """Find where a document's index lies or will lie.

    Parameters
    ----------
    llama, library, source, prefill
        As in `index_document`.

    Returns
    -------
    path : Path
        The folder of the index.
    covers : float
        Share of its attention that a batch of the document covers, or is to cover; 0 for everything.

    Raises
    ------
    OctavoError
        The document cannot be read.
    """
    settings, shares, sha256 = _settings(llama), (0.0, covers_by(prefill, llama)), source.sha256(library)
    found = [(library.index_path(source.name, sha256, identity(llama, settings, each)), each) for each in shares]
    return next((each for each in found if each[0].exists()), found[-1])


def _opened(
    path: Path, library: Library, source: Source, notice: Callable[[str], None]
) -> tuple[Index, dict[str, Any]] | None:
    """Open an index; None if it is missing, or damaged, which is said."""
    if not path.exists():
        return None
    start = time.perf_counter()
    try:
        opened = open_index(path, library.model_hash)
    except DamagedError as problem:
        notice(f"The index of {source.name} is damaged, so it is made again; what is whole is kept. {problem}")
        return None
    if (seconds := time.perf_counter() - start) >= _SHOWN_SECONDS:
        notice(f"Checked the index of {source.name}, {_size(folder_bytes(path))}, in {seconds:.1f} s.")
    return opened


def _build(
    llama: Llama,
    library: Library,
    path: Path,
    document: Document,
    progress: Progress,
    n_jobs: int,
    notice: Callable[[str], None],
    covers: float,
) -> None:
    """Make an index. Meanwhile all heads attend densely, but those that stream by `duo`."""
    known = [manifest["document"] for _, manifest in library.indexes()]
    of_file = [each for each in known if document.path and each.get("path") == document.path]
    part = document.name if document.part else None
    indexed = {each["sha256"] for each in of_file if (each["name"] if "part" in each else None) == part}
    changed = indexed and hash_text(document.text) not in indexed  # another cache type or model is no change
    name = document.name
    attention = llama.attention
    builder = IndexBuilder(llama, library, path, document, _settings(llama), progress, n_jobs, covers)
    what = f"{name} has changed since it was indexed, so it is indexed again" if changed else f"Indexing {name}, once"
    began: list[float] = []

    def begins() -> None:
        notice(f"{what}: {_expected(builder)}.")
        began.append(time.perf_counter())
        llama.compile_ahead(attention, len(builder.tokens))

    with llama.attending(attention.for_indexing):
        builder.build(begins, lambda: notice(f"Another octavo is indexing {name}: waiting for it."))
        background_compile.wait()
    if began:
        seconds = time.perf_counter() - began[0]
        notice(f"Indexed {len(builder.tokens):,} tokens in {_time(seconds)}: {_size(folder_bytes(path))}.")


def _expected(builder: IndexBuilder) -> str:
    """What an index will take, by the one of the library that is nearest in length; the time only if there is one."""
    n_tokens, row_bytes = len(builder.tokens), builder.llama.context.cache.row_bytes
    n_known = builder.known.n_tokens if builder.known else 0
    made = [
        (path, manifest)
        for path, manifest in builder.library.indexes()
        if manifest["dtype"] == builder.llama.context.kv_type
    ]
    n_bytes, seconds = _MORE_THAN_ROWS * n_tokens * row_bytes, 0.0
    if made:
        path, manifest = min(made, key=lambda index: abs(index[1]["document"]["tokens"] - n_tokens))
        own, n_new = manifest["document"]["tokens"], n_tokens - (1 - _CLUSTERING) * n_known
        n_bytes, seconds = folder_bytes(path) / own * n_tokens, manifest.get("seconds", 0) / own * n_new
    known = f", {n_known:,} of them known" if n_known else ""
    return f"{n_tokens:,} tokens{known}, about {_size(n_bytes)}" + (f" and {_time(seconds)}" if seconds else "")


def _size(n_bytes: float) -> str:
    return f"{max(n_bytes / 2**20, 1):,.0f} MiB"


def _time(seconds: float) -> str:
    return f"{max(seconds, 1):,.0f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"
