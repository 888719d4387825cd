"""The context of an answer: an index that the model attaches, and where its tokens come from."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

from ...documents.document import Place
from ...library.source_text import SourceText
from ...runtime.document.index import Index
from ...runtime.llama import Llama
from ...runtime.query_recorder import Recorder
from ..answer.answer import ContextShare
from ..search.ranking import Candidate, Span
from ..sources.answer_marks import OF_SENTENCE, FindSources, Found
from ..sources.answer_words import ReadSentences
from ..sources.find_sources import Passage, TokenText, likely_passages

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
    share : ContextShare
        How much of the documents it is.
    text_of : callable
        Returns the text of a document, with its tokens.
    key : object
        What the context was made of: two contexts with equal keys are the same text.
    candidates : sequence of Candidate
        The documents that the question may be about, the likeliest first; none if there is no choice.
    serves_all : bool
        Whether it serves every question, so that no question needs another context.
    """

    index: Index
    spans: Sequence[Span]
    documents: Sequence[SourceText]
    share: ContextShare
    text_of: Callable[[SourceText], TokenText]
    key: object
    candidates: Sequence[Candidate] = ()
    serves_all: bool = False

    @classmethod
    def of_whole(
        cls, llama: Llama, index: Index, described: dict[str, Any], document: SourceText, share: ContextShare
    ) -> Self:
        """Return all of an index, by its document and the manifest's description of that."""

        @cache
        def text_of(document: SourceText) -> TokenText:
            pieces = [llama.piece(token) for token in index.tokens[index.n_prefix :].tolist()]
            places = [Place(*place) for place in described.get("places", ())]
            return TokenText.of(pieces, described["sha256"], places, described.get("first_line", 1))

        spans = [Span(document, 0, len(index.tokens) - index.n_prefix)]
        return cls(index, spans, [document], share, text_of, document)

    @property
    def is_whole(self) -> bool:
        """Return whether it is all of an index, of a document or of a part of one."""
        return isinstance(self.key, SourceText)

    def using(self, sources: Sequence[tuple[SourceText, Passage]]) -> Self:
        """Return the context with the documents of an answer's sources before the others."""
        return replace(self, documents=list(dict.fromkeys([*(document for document, _ in sources), *self.documents])))

    def passages_for(self, question: str, most: int) -> Found:
        """Find the sentences that share most rare words with a question, the likeliest first."""
        makers, sentences = self._sentences
        return [makers[number]() for number in sentences.likeliest(question, most)]

    def finder(self, recorder: Recorder, question: str) -> FindSources:
        """Return what finds the sources of an answer's sentences by their steps and texts, for `AnswerMarks`."""

        def find(start: int, stop: int | None, sentence: str) -> Found:
            return self.sources(recorder.attended(self.index, start, stop), sentence, question, OF_SENTENCE)

        return find

    def sources(self, attended: np.ndarray, answer: str, question: str, most: int) -> Found:
        """Find the passages of the documents with most attention, the largest shares first, or else one by its words.

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
            of_documents[document][:, start:stop] += attended[:, at : at + stop - start]
            at += stop - start
        found = [
            (document, passage)
            for document, text in texts.items()
            for passage in likely_passages(text, of_documents[document], answer, question, most)
        ]
        if not found:
            return self._by_words(answer, question)
        chosen = sorted(found, key=lambda found: -found[1].share)[:most]
        total = max(sum(passage.share for _, passage in chosen), 1.0)
        return [(document, replace(passage, share=passage.share / total)) for document, passage in chosen]

    def _by_words(self, answer: str, question: str) -> Found:
        """Return the sentence that an answer was taken from, as its words say, if they say anything."""
        makers, sentences = self._sentences
        best = sentences.best(answer, question)
        return [] if best is None else [makers[best]()]

    @cached_property
    def _sentences(self) -> tuple[list[Callable[[], tuple[SourceText, Passage]]], ReadSentences]:
        """Return what makes the passage of each sentence that the model saw, and the sentences."""
        makers, sentences = list[Callable[[], tuple[SourceText, Passage]]](), []
        for document in self.documents:
            text = self.text_of(document)
            for number in np.unique(text.sentence_of).tolist():
                start, stop = text.borders[number : number + 2].tolist()
                sentences.append(text.text[start:stop])
                makers.append(partial(_passage, document, text, start, stop))
        return makers, ReadSentences(sentences)


def _passage(document: SourceText, text: TokenText, start: int, stop: int) -> tuple[SourceText, Passage]:
    return document, text.passage(start, stop)


def at_once(steps: Steps[_Result]) -> _Result:
    """Take all steps of a computation, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
