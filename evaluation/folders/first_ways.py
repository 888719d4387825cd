"""Answer a question about a document that is not read yet in several ways: from passages, from its half, and so on.

The half and the whole need an index: they are measured only where the model's context holds the document. The half is
left out for models whose passages cannot follow it (partial_index.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np

from ...ask.context.answer_context import Context
from ...ask.context.document_set import DocumentSet, open_document_set
from ...ask.context.partial_index import ReadPart, rows_stand_alone
from ...ask.context.passages import PASSAGE_TOKENS, PassageFinder
from ...ask.search.ranking import Candidate, WordScores
from ...ask.sources.find_sources import TokenText
from ...convert.prefix_reuse import KnownRows
from ...library.file_texts import FileTexts
from ...library.open_index import Indexer
from ...library.source_text import SourceFile
from ...progress import Progress, Silent, of_many
from .folder_task import Asked
from .ways import ANSWER_TOKENS, Reading, Ways

#: Largest number of tokens of a question.
_QUESTION = 256


class FirstReading(Reading):
    """Documents that are asked about one by one, and a model.

    Parameters
    ----------
    indexer : Indexer
        Makes their indexes, and keeps their texts beside these.
    files : sequence of SourceFile
        The documents.
    """

    def __init__(self, indexer: Indexer, files: Sequence[SourceFile], progress: Progress) -> None:
        super().__init__(indexer.llama)
        texts = FileTexts(indexer.library, Silent())
        prompt, self._texts, self._finders = self.llama.prompt(), dict[str, str](), dict[str, PassageFinder]()
        for kept in texts.keep(texts.of(files)):
            self._texts[kept.name] = texts.load(kept).text
            self._finders[kept.name] = PassageFinder(self.llama, texts.store, [kept])
        self._tokens = {name: np.array(prompt.document(text), np.int32) for name, text in self._texts.items()}
        longest = len(prompt.head()) + max(map(len, self._tokens.values())) + _QUESTION + ANSWER_TOKENS
        self._read_set: DocumentSet | None = None
        if longest <= self.llama.n_ctx():
            self._read_set = open_document_set(indexer, files, texts, of_many(progress, 1), heads=[])
        self._half = lru_cache(1)(self._half_of)

    def can(self, way: str) -> bool:
        """Return whether the documents are indexed as a way needs it, and their halves can be used."""
        needs_index = self.ways[way] in (FirstReading.half, FirstReading.whole)
        needs_half = self.ways[way] is FirstReading.half
        return (self._read_set is not None or not needs_index) and (rows_stand_alone(self.llama) or not needs_half)

    def passages(self, asked: Asked) -> bool:
        """Read the passages that words find, as `octavo ask` does of an unread document."""
        finder = self._finders[asked.document]
        plan = finder.plan(*finder.search(asked.question))
        return self.attach_found(finder.evaluate(plan, lambda: self.llama.n_batch), asked)

    def half(self, asked: Asked) -> bool:
        """Attach the first half of the document, and passages behind it, as if half of it were read."""
        finder = self._finders[asked.document]
        candidates, found = [Candidate(finder.documents[0], 0.0, 0.0)], finder.search(asked.question)[1]
        plan = finder.plan(candidates, found, self._half(asked.document))
        return self.attach_found(finder.evaluate(plan, lambda: self.llama.n_batch), asked)

    def whole(self, asked: Asked) -> bool:
        """Attach the whole document."""
        self.attach(self._whole(asked.document))
        return True

    def chunks(self, asked: Asked) -> bool:
        """Read the chunks of 512 tokens with the highest BM25, as many tokens as passages have."""
        tokens = [self._tokens[asked.document]]
        return self.read(self.best_chunks(WordScores(tokens), tokens, asked, PASSAGE_TOKENS), asked)

    def _whole(self, name: str) -> Context:
        assert self._read_set is not None
        return self._read_set.whole(next(one for one in self._read_set.documents if one.name == name))

    def _half_of(self, name: str) -> ReadPart:
        """Return the first half of a document, as its unfinished index has it once half of it is read."""
        index, text = self._whole(name).index, self._texts[name]
        n_tokens = index.n_prefix + len(self.llama.prompt().document(text[: len(text) // 2]))
        own = index.tokens[index.n_prefix : n_tokens]
        rows = KnownRows(index.layers, len(index.tokens)).rows(0, n_tokens)
        return ReadPart(index.tokens[:n_tokens], index.n_prefix, rows, TokenText.of_beginning(self.llama, own, text))

    ways: ClassVar[Ways] = {
        "passages": passages,
        "half read, and passages": half,
        "the whole document": whole,
        "BM25 chunks, read": chunks,
    }
