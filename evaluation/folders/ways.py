"""Answer a question from many documents in several ways, each with other texts in the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ...ask.context.answer_context import Context, Steps, at_once
from ...ask.context.document_set import DocumentSet
from ...ask.context.excerpts import EXCERPT_TOKENS, lay_out, n_excerpt_tokens
from ...ask.context.passages import PassageFinder
from ...ask.search.ranking import PART, WordScores
from ...prompts.direct_prompt import DirectPrompt
from ...runtime.llama import Llama
from ..prose import BORDER
from .folder_task import Asked

#: Largest number of tokens of an answer.
ANSWER_TOKENS = 48

#: Each way by its name: it brings a model to the place of a question, and returns whether the passage was read.
Ways = Mapping[str, Callable[[Any, Asked], bool]]


class Reading(ABC):
    """A model that answers questions about documents, in several ways.

    Attributes
    ----------
    ways : mapping
        What to read for an answer.
    answer_tokens : int
        Largest number of tokens of an answer.
    """

    ways: ClassVar[Ways]
    answer_tokens: ClassVar[int] = ANSWER_TOKENS

    def __init__(self, llama: Llama) -> None:
        self.llama, self._prompt = llama, DirectPrompt(llama)

    @abstractmethod
    def can(self, way: str) -> bool:
        """Return whether the model's context holds what a way reads."""

    def attach(self, context: Context) -> None:
        """Continue after a context."""
        self.llama.reset()
        self.llama.attach(context.index)

    def attach_found(self, steps: Steps[Context], asked: Asked) -> bool:
        """Continue after a context that is computed in steps. Return whether it has the passage of a question."""
        context = at_once(steps)
        self.attach(context)
        return self.has(context.index.tokens[context.index.n_prefix :].tolist(), asked)

    def read(self, texts: Sequence[list[int]], asked: Asked) -> bool:
        """Read texts anew. Return whether they have the passage of a question."""
        border = self.llama.tokenize(BORDER.encode(), add_bos=False)
        tokens = [token for text in texts for token in [*text, *border]]
        self.llama.reset()
        self.llama.prefill([*self._prompt.head(), *tokens])
        return self.has(tokens, asked)

    def has(self, tokens: Sequence[int], asked: Asked) -> bool:
        """Return whether tokens contain the passage that has the answer."""
        text = b"".join(map(self.llama.piece, tokens)).decode(errors="replace")
        return asked.passage in text

    def best_chunks(
        self, words: WordScores, texts: Sequence[np.ndarray], asked: Asked, n_tokens: int
    ) -> list[list[int]]:
        """Return the chunks of 512 tokens with the highest BM25, the best one last, until there are enough tokens."""
        scores = words.of_pieces(dict.fromkeys(self._prompt.question(f" {asked.question}"), 1.0))
        every = [(score, number, part) for number, own in enumerate(scores) for part, score in enumerate(own)]
        taken: set[tuple[int, int]] = set()
        chosen: list[list[int]] = []
        for _, number, part in sorted(every, key=lambda scored: -scored[0]):
            parts = {(number, part), (number, part + 1)}
            if not taken & parts:
                taken |= parts
                chosen.insert(0, texts[number][part * PART : (part + 2) * PART].tolist())
            if sum(map(len, chosen)) >= n_tokens:
                break
        return chosen

    def answer(self, question: str, n_tokens: int) -> Iterator[str]:
        """Yield the pieces of a greedy answer."""
        llama = self.llama
        generated = llama.generate(self._prompt.first_question(question), reset=False, temp=0.0)
        try:
            for _, token in zip(range(n_tokens), generated, strict=False):
                if llama.ends(token):
                    return
                yield llama.piece(token).decode(errors="replace")
        finally:
            generated.close()


class FolderReading(Reading):
    """Documents of a folder.

    Parameters
    ----------
    document_set : DocumentSet
        Documents that the model has read.
    finder : PassageFinder
        Finds passages of the same documents as if they were not read.
    """

    def __init__(self, llama: Llama, document_set: DocumentSet, finder: PassageFinder) -> None:
        super().__init__(llama)
        self._document_set, self._finder = document_set, finder
        self._by_name = {document.name: document for document in document_set.documents}
        self._texts = list(document_set.texts.values())

    def can(self, way: str) -> bool:
        """Return whether the context holds what a way reads: all documents, and as much as another one for the rest."""
        return self.ways[way] is not FolderReading.all or self.n_all + max(map(len, self._texts)) < self.llama.n_ctx()

    def right(self, asked: Asked) -> bool:
        """Attach the document that has the answer, whole: the upper bound of routing."""
        self.attach(self._document_set.whole(self._by_name[asked.document]))
        return True

    def document(self, asked: Asked) -> bool:
        """Attach the document that the question is about, whole, as `--read document` does."""
        best = self._document_set.rank(asked.question).candidates[0].document
        self.attach(self._document_set.whole(best))
        return best.name == asked.document

    def excerpts(self, asked: Asked) -> bool:
        """Lay out excerpts of all documents, as `--read excerpts` does."""
        spans = self._document_set.rank(asked.question).excerpts(n_excerpt_tokens(self.llama))
        return self.attach_found(lay_out(self.llama, self._document_set, spans, lambda: self.llama.n_batch), asked)

    def passages(self, asked: Asked) -> bool:
        """Read the passages that words find, as `octavo ask` does before the documents are read."""
        plan = self._finder.plan(*self._finder.search(asked.question))
        return self.attach_found(self._finder.evaluate(plan, lambda: self.llama.n_batch), asked)

    def chunks(self, asked: Asked) -> bool:
        """Read the chunks with the highest BM25."""
        return self.read(self.best_chunks(self._document_set.words, self._texts, asked, EXCERPT_TOKENS), asked)

    def all(self, asked: Asked) -> bool:
        """Read all documents, one after another. Raise OctavoError if they exceed the context."""
        return self.read([text.tolist() for text in self._texts], asked)

    @property
    def n_all(self) -> int:
        """Return the number of tokens of all documents."""
        return sum(map(len, self._texts))

    ways: ClassVar[Ways] = {
        "document": document,
        "excerpts": excerpts,
        "passages, not read before": passages,
        "BM25 chunks, read": chunks,
        "the right document": right,
        "all documents, read": all,
    }
