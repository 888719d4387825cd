"""Open a document for questions: find its index, or make it first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from octavo.runtime.llama import Llama

from .clusters import ClusterSettings
from .index import IndexBuilder, identity, open_index
from .library import Library, read_document
from .progress import Progress


def index_document(
    llama: Llama,
    library: Library,
    document_path: str | os.PathLike[str],
    progress: Progress,
    n_jobs: int,
    notice: Callable[[str], None],
) -> Path:
    """Make the index of a document unless it is there already; returns its folder."""
    text, path = _locate(llama, library, document_path)
    if path.exists():
        notice(f"{Path(document_path).name} is indexed already: {path}")
    else:
        _build(llama, library, path, Path(document_path).name, text, progress, n_jobs, notice)
    return path


def attach_document(
    llama: Llama,
    library: Library,
    document_path: str | os.PathLike[str],
    progress: Progress,
    n_jobs: int,
    notice: Callable[[str], None],
) -> None:
    """Attach a document's index to a model, making it first where there is none."""
    text, path = _locate(llama, library, document_path)
    if not path.exists():
        _build(llama, library, path, Path(document_path).name, text, progress, n_jobs, notice)
    document, _ = open_index(path, library.model_hash)
    llama.attach(document)


def _locate(llama: Llama, library: Library, document_path: str | os.PathLike[str]) -> tuple[str, Path]:
    """A document's text, and where its index lies or will lie."""
    text = read_document(document_path)
    return text, library.index_path(document_path, text, identity(llama, ClusterSettings()))


def _build(
    llama: Llama,
    library: Library,
    path: Path,
    name: str,
    text: str,
    progress: Progress,
    n_jobs: int,
    notice: Callable[[str], None],
) -> None:
    """Make an index, attending densely meanwhile."""
    changed = [other for other, manifest in library.indexes() if manifest["document"]["name"] == name]
    notice(f"{name} has changed since it was indexed: indexing it again." if changed else f"Indexing {name}, once.")
    attention, budget = llama.attention, llama.budget
    llama.set_attention("dense")
    try:
        IndexBuilder(llama, library, path, name, text, ClusterSettings(), progress, n_jobs).build()
    finally:
        llama.set_attention(attention, budget)
