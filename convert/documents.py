"""Find a document's index, or make it first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..cpu_kernels import ahead
from ..runtime.llama import Llama
from ..runtime.methods import DENSE
from ..runtime.store.index_files import open_index
from ..runtime.store.library import Library, hash_text
from .clusters import ClusterSettings, settings_for
from .index import IndexBuilder, identity
from .pipeline import PREFILL_SPARSE, covers_by
from .progress import Progress
from .texts import read_document


def index_document(
    llama: Llama,
    library: Library,
    document_path: str | os.PathLike[str],
    progress: Progress,
    n_jobs: int,
    notice: Callable[[str], None],
    prefill: str = PREFILL_SPARSE,
) -> Path:
    """Make the index of a document unless it is there already, with what the model's attention needs of it.

    Parameters
    ----------
    llama : Llama
        The model that reads the document. It is empty afterwards, and attends as before.
    library : Library
        Where the model's indexes live.
    document_path : path
        A text file.
    progress : Progress
        Is told how far the work is.
    n_jobs : int
        Threads that cluster.
    notice : callable
        Receives a sentence that says what happens to the document.
    prefill : str
        How the document is read, one of PREFILLS (pipeline.py). An index of a dense reading serves any.

    Returns
    -------
    Path
        The folder of the index.

    Raises
    ------
    OctavoError
        The document cannot be read or is too long, or disk or memory do not suffice.
    """
    text, path, covers = _locate(llama, library, document_path, prefill)
    if path.exists():
        notice(f"{Path(document_path).name} is indexed already: {path}")
    else:
        _build(llama, library, path, Path(document_path).name, text, progress, n_jobs, notice, covers)
    index, _ = open_index(path, library.model_hash)
    for assignment in llama.context.cache.assignments:
        assignment.method.measure(index)
    return path


def attach_document(
    llama: Llama,
    library: Library,
    document_path: str | os.PathLike[str],
    progress: Progress,
    n_jobs: int,
    notice: Callable[[str], None],
    prefill: str = PREFILL_SPARSE,
) -> None:
    """Attach a document's index to a model, and make the index first if there is none.

    Parameters
    ----------
    llama, library, document_path, progress, n_jobs, notice, prefill
        As in `index_document`. The model holds the document afterwards.

    Raises
    ------
    OctavoError
        The index cannot be made or opened.
    """
    text, path, covers = _locate(llama, library, document_path, prefill)
    if not path.exists():
        _build(llama, library, path, Path(document_path).name, text, progress, n_jobs, notice, covers)
    index, _ = open_index(path, library.model_hash)
    llama.attach(index)


def _settings(llama: Llama) -> ClusterSettings:
    """How a document is clustered for the attention that the model was loaded with."""
    return settings_for(llama.context.kv_type, llama.composition.clustering)


def _locate(
    llama: Llama, library: Library, document_path: str | os.PathLike[str], prefill: str
) -> tuple[str, Path, float]:
    """A document's text, where its index lies or will lie, and what share of its attention a batch covers."""
    text, settings, shares = read_document(document_path), _settings(llama), (0.0, covers_by(prefill, llama))
    found = [(library.index_path(document_path, text, identity(llama, settings, each)), each) for each in shares]
    return text, *next((each for each in found if each[0].exists()), found[-1])


def _build(
    llama: Llama,
    library: Library,
    path: Path,
    name: str,
    text: str,
    progress: Progress,
    n_jobs: int,
    notice: Callable[[str], None],
    covers: float,
) -> None:
    """Make an index. Meanwhile all heads attend densely, but those that stream by `duo`."""
    documents = [manifest["document"] for _, manifest in library.indexes()]
    indexed = {document["sha256"] for document in documents if document["name"] == name}
    changed = indexed and hash_text(text) not in indexed  # the index of another cache type or model is no change
    notice(f"{name} has changed since it was indexed: indexing it again." if changed else f"Indexing {name}, once.")
    attention, budget, duo = llama.attention, llama.budget, llama.composition.duo
    builder = IndexBuilder(llama, library, path, name, text, _settings(llama), progress, n_jobs, covers)
    llama.compile_ahead(len(builder.tokens))
    llama.set_attention(duo.words if duo else DENSE)
    try:
        builder.build()
        ahead.wait()
    finally:
        llama.reset()
        llama.set_attention(attention, budget)
