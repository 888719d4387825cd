"""Open a document for questions, or its parts if it exceeds the model's context."""

from __future__ import annotations

from ..library.document_file import HashedDocument
from ..library.open_index import Indexer
from ..progress import Progress, ProgressOfMany, of_many
from ..settings import Sampling
from .collection import Collection
from .document_session import Document
from .document_set import index_set
from .retrieval_heads import source_heads


def open_or_split(
    indexer: Indexer,
    document: HashedDocument,
    sampling: Sampling,
    system: str,
    sources: bool,
    progress: Progress | ProgressOfMany,
) -> Document | Collection:
    """Open a document with a model that was loaded and is empty, and make what it lacks of indexes.

    Parameters
    ----------
    indexer : Indexer
        Finds and makes indexes with the model.
    document : HashedDocument
        The document.
    sampling : Sampling
        How answers are drawn.
    system : str
        What the model reads before the first question.
    sources : bool
        Whether the answers' sources can be asked for.
    progress : Progress or ProgressOfMany
        Receives how far reading and clustering are.

    Returns
    -------
    Document or Collection
        The document; if it is longer than the context, its parts.

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
        return Collection(llama, sampling, document_set, system, recorded, indexer.library)
    many.begin(1)
    of_document = many.document(document.name)
    described = indexer.attach(parts[0], of_document)
    of_document.end()
    return Document(llama, sampling, document.path, system, described, recorded, indexer.library)
