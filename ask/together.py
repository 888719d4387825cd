"""Attend to all documents at once that a question may be about, each in the measure in which it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..documents.document import Place
from ..runtime.document.index import Index
from ..runtime.document.together import Together
from .document_set import Shelf, Shelved
from .passages import Passage, TokenText, passages_of_all
from .ranking import Look

#: Documents of a lower weight are not attended.
_LEAST_WEIGHT = 0.01


@dataclass(frozen=True, eq=False)
class AtOnce:
    """Documents that are attended at once.

    Parameters
    ----------
    documents : sequence of Shelved
        The documents, the likeliest first.
    index : Index
        Their indexes with their weights; of a single one, its own.
    n_head : int
        Tokens of the prompt's head.
    """

    documents: Sequence[Shelved]
    index: Index
    n_head: int

    def passages(
        self, attended: np.ndarray, text_of: Callable[[Shelved], tuple[TokenText, list[Place]]], most: int
    ) -> list[tuple[Shelved, Passage]]:
        """Find the passages of the documents that were attended most, as `LaidOut.passages` does."""
        own, at = {}, 0
        for document, (part, _) in zip(self.documents, self.index.parts, strict=True):
            own[document] = attended[:, at + self.n_head : at + len(part.tokens)]
            at += len(part.tokens)
        return passages_of_all(own, {document: text_of(document) for document in self.documents}, most)


def attend_at_once(shelf: Shelf, look: Look) -> AtOnce:
    """Open the documents that a question may be about, with weights that fall with how far they stand out less.

    Parameters
    ----------
    shelf : Shelf
        The documents.
    look : Look
        What was seen of them.

    Returns
    -------
    AtOnce
        The documents.

    Raises
    ------
    OctavoError
        An index cannot be opened.
    """
    scores = np.array([found.score for found in look.found])
    weights = np.exp(scores - scores[0])
    chosen = np.flatnonzero(weights >= _LEAST_WEIGHT * weights.sum()).tolist()
    documents = [look.found[i].document for i in chosen]
    indexes = [shelf.open(document)[0] for document in documents]
    index = indexes[0] if len(indexes) == 1 else Together.of(indexes, weights[chosen].tolist())
    return AtOnce(documents, index, shelf.n_head)
