"""Open a document for questions, or its parts if it exceeds the model's context."""

from __future__ import annotations

from ..library.document_file import HashedDocument
from ..library.open_index import Indexer
from ..progress import Progress, ProgressOfMany, of_many
from ..settings import Sampling
from .collection import Collection
from .document_session import Document
from .document_set import index_set
from .finder import IndexFinder
from .retrieval_heads import source_heads


def open_or_split(
    indexer: Indexer,
    document: HashedDocument,
    sampling: Sampling,
    system: str,
    sources: bool,
    progress: Progress | ProgressOfMany,
) -> Document | Collection:
    """Open a document, or its parts, with a loaded, empty model; make the missing indexes.

    Parameters
    ----------
    sources : bool
        Whether the session records the sources of answers.

    Returns
    -------
    Document or Collection
        The document, or its parts if it is longer than the context.

    Raises
    ------
    OctavoError
        The document cannot be used, or disk or memory do not suffice.
    """
    parts, llama, many = indexer.fit(document), indexer.llama, of_many(progress, 1)
    split = len(parts) > 1
    heads = source_heads(llama, indexer.library, indexer.notice) if sources or split else []
    recorded = heads if sources else None
    if split:
        document_set = index_set(indexer, parts, heads, many)
        return Collection(llama, sampling, IndexFinder(llama, document_set), system, recorded, indexer.library)
    many.begin(1)
    of_document = many.document(document.name)
    described = indexer.attach(parts[0], of_document)
    of_document.end()
    return Document(llama, sampling, document.path, system, described, recorded, indexer.library)
