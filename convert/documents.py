"""Find a document's index, or make it first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..cpu_kernels import ahead
from ..runtime.llama import Llama
from ..runtime.methods import DENSE
from ..runtime.store.index_files import open_index
from ..runtime.store.library import Library, hash_text
from .catalogue import note_use
from .clusters import ClusterSettings, settings_for
from .index import IndexBuilder, identity
from .pipeline import PREFILL_SPARSE, covers_by
from .progress import Progress
from .readers.document import Document


def index_document(
    llama: Llama,
    library: Library,
    document: Document,
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
    document : Document
        The document, as it was read from its file.
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
        The document is too long, or disk or memory do not suffice.
    """
    path, covers = _locate(llama, library, document, prefill)
    if path.exists():
        notice(f"{document.name} is indexed already: {path}")
    else:
        _build(llama, library, path, document, progress, n_jobs, notice, covers)
    index, _ = open_index(path, library.model_hash)
    for assignment in llama.context.cache.assignments:
        assignment.method.measure(index)
    return path


def attach_document(
    llama: Llama,
    library: Library,
    document: Document,
    progress: Progress,
    n_jobs: int,
    notice: Callable[[str], None],
    prefill: str = PREFILL_SPARSE,
) -> None:
    """Attach a document's index to a model, and make the index first if there is none.

    Parameters
    ----------
    llama, library, document, progress, n_jobs, notice, prefill
        As in `index_document`. The model holds the document afterwards.

    Raises
    ------
    OctavoError
        The index cannot be made or opened.
    """
    path, covers = _locate(llama, library, document, prefill)
    if not path.exists():
        _build(llama, library, path, document, progress, n_jobs, notice, covers)
    index, _ = open_index(path, library.model_hash)
    note_use(path)
    llama.attach(index)


def _settings(llama: Llama) -> ClusterSettings:
    """How a document is clustered for the attention that the model was loaded with."""
    return settings_for(llama.context.kv_type, llama.composition.clustering)


def _locate(llama: Llama, library: Library, document: Document, prefill: str) -> tuple[Path, float]:
    """Where a document's index lies or will lie, and what share of its attention a batch covers."""
    settings, shares = _settings(llama), (0.0, covers_by(prefill, llama))
    found = [
        (library.index_path(document.name, document.text, identity(llama, settings, each)), each) for each in shares
    ]
    return next((each for each in found if each[0].exists()), found[-1])


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
    indexed = {each["sha256"] for each in known if document.path and each.get("path") == document.path}
    changed = indexed and hash_text(document.text) not in indexed  # another cache type or model is no change
    name = document.name
    notice(f"{name} has changed since it was indexed: indexing it again." if changed else f"Indexing {name}, once.")
    attention, budget, duo = llama.attention, llama.budget, llama.composition.duo
    builder = IndexBuilder(llama, library, path, document, _settings(llama), progress, n_jobs, covers)
    llama.compile_ahead(len(builder.tokens))
    llama.set_attention(duo.words if duo else DENSE)
    try:
        builder.build()
        ahead.wait()
    finally:
        llama.reset()
        llama.set_attention(attention, budget)
