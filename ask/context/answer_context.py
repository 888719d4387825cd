"""The context of an answer: an index that the model attaches, and where its tokens come from."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ...library.source_text import SourceText
from ...runtime.document.index import Index
from ..answer.answer import Basis
from ..search.ranking import Candidate, Span
from ..sources.find_sources import Passage, TokenText, passages

_Result = TypeVar("_Result")

#: A computation in steps: other sequences may be computed between two of them.
Steps: TypeAlias = Generator[object, None, _Result]

#: The text that an answer was not given from: it has an index, is being indexed in the background, or is left alone.
Rest = Literal["indexed", "being read", "unread"]


class BatchRead(NamedTuple):
    """How many tokens of a text are evaluated after a batch, and how many there are."""

    done: int
    total: int


@dataclass(frozen=True, eq=False)
class Context:
    """The text before the questions: a whole document, excerpts of several, or passages.

    Parameters
    ----------
    index : Index
        What the model attaches: the prompt's head and the tokens of the spans, in this order.
    spans : sequence of Span
        The tokens of the documents, at least one span. A span counts the tokens that `text_of` returns.
    documents : sequence of SourceText
        The documents, the likeliest first.
    share : Basis
        How much of the documents it is.
    text_of : callable
        Returns the text of a document, with its tokens.
    key : object
        What the context was made of: two contexts with equal keys are the same text.
    candidates : sequence of Candidate
        The documents that the question may be about, the likeliest first; none if there is no choice.
    """

    index: Index
    spans: Sequence[Span]
    documents: Sequence[SourceText]
    share: Basis
    text_of: Callable[[SourceText], TokenText]
    key: object
    candidates: Sequence[Candidate] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether it is all of an index, of a document or of a part of one."""
        return isinstance(self.key, SourceText)

    def passages(self, attended: np.ndarray, most: int) -> list[tuple[SourceText, Passage]]:
        """Find the passages of the documents with most attention, the largest shares first.

        Parameters
        ----------
        attended : float32 array, shape (n_parts, n_tokens)
            Attention of each part of an answer to the index's tokens (`Recorder.attended`).
        most : int
            Most passages to return.
        """
        texts = {document: self.text_of(document) for document in self.documents}
        of_documents = {
            document: np.zeros((len(attended), len(text.starts)), np.float32) for document, text in texts.items()
        }
        at = self.index.n_prefix
        for document, start, stop in self.spans:
            of_documents[document][:, start:stop] = attended[:, at : at + stop - start]
            at += stop - start
        found = [
            (document, passage)
            for document, text in texts.items()
            for passage in passages(text, of_documents[document], most)
        ]
        return sorted(found, key=lambda found: -found[1].share)[:most]


def at_once(steps: Steps[_Result]) -> _Result:
    """Take all steps of a computation, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
