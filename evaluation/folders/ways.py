"""Answer a question from many documents in several ways, each with other texts in the model.

A way is a function that brings the model to the place of the question, and returns whether the text has the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...ask.document_set import DocumentSet
from ...ask.excerpts import EXCERPT_TOKENS, lay_out
from ...ask.word_scores import PART
from ...library.indexed_document import IndexedDocument
from ...runtime.llama import Llama
from ..direct_prompt import DirectPrompt
from ..prose import BORDER
from .folder_task import Asked


class Reading:
    """Documents, and a model that answers questions about them.

    Parameters
    ----------
    document_set : DocumentSet
        Documents that the model has read.
    """

    def __init__(self, llama: Llama, document_set: DocumentSet) -> None:
        self.llama, self._document_set, self._prompt = llama, document_set, DirectPrompt(llama)
        self._by_name = {document.name: document for document in document_set.documents}
        self._texts = list(document_set.texts.values())

    def right(self, asked: Asked) -> bool:
        """Attach the document that has the answer, whole: the upper bound of routing."""
        self._attach(self._by_name[asked.document])
        return True

    def document(self, asked: Asked) -> bool:
        """Attach the document that the question is about, whole, as `--read document` does."""
        best: IndexedDocument = self._document_set.rank(asked.question).candidates[0].document
        self._attach(best)
        return best.name == asked.document

    def excerpts(self, asked: Asked) -> bool:
        """Lay out excerpts of all documents, as `--read excerpts` does."""
        excerpts = self._document_set.rank(asked.question).excerpts(EXCERPT_TOKENS)
        index = lay_out(self.llama, self._document_set, excerpts).index
        self.llama.reset()
        self.llama.attach(index)
        return self._has(index.tokens[index.n_prefix :].tolist(), asked)

    def chunks(self, asked: Asked) -> bool:
        """Read the chunks of 512 tokens with the highest BM25, the best one last."""
        scores = self._document_set.words.of_pieces(self._prompt.question(f" {asked.question}"))
        every = [(score, number, part) for number, own in enumerate(scores) for part, score in enumerate(own)]
        taken: set[tuple[int, int]] = set()
        chosen: list[list[int]] = []
        for _, number, part in sorted(every, key=lambda scored: -scored[0]):
            parts = {(number, part), (number, part + 1)}
            if not taken & parts:
                taken |= parts
                chosen.insert(0, self._texts[number][part * PART : (part + 2) * PART].tolist())
            if sum(map(len, chosen)) >= EXCERPT_TOKENS:
                break
        return self._read(chosen, asked)

    def all(self, asked: Asked) -> bool:
        """Read all documents, one after another. Raise OctavoError if they exceed the context."""
        return self._read([text.tolist() for text in self._texts], asked)

    @property
    def n_all(self) -> int:
        """Return the number of tokens of all documents."""
        return sum(map(len, self._texts))

    def _attach(self, document: IndexedDocument) -> None:
        self.llama.reset()
        self.llama.attach(self._document_set.open(document)[0])

    def _read(self, texts: Sequence[list[int]], asked: Asked) -> bool:
        """Read texts anew."""
        border = self.llama.tokenize(BORDER.encode(), add_bos=False)
        tokens = [token for text in texts for token in [*text, *border]]
        self.llama.reset()
        self.llama.read([*self._prompt.head(), *tokens])
        return self._has(tokens, asked)

    def _has(self, tokens: Sequence[int], asked: Asked) -> bool:
        """Return whether tokens contain the passage that has the answer."""
        text = b"".join(map(self.llama.piece, tokens)).decode(errors="replace")
        return asked.passage in text

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


#: The ways, by name; the last one only where all documents fit the context.
WAYS: dict[str, Callable[[Reading, Asked], bool]] = {
    "document": Reading.document,
    "excerpts": Reading.excerpts,
    "BM25 chunks, read": Reading.chunks,
    "the right document": Reading.right,
    "all documents, read": Reading.all,
}
