"""Answer a question about a whole in several ways: from all parts or documents, from excerpts, or from the best one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...ask.context.answer_context import at_once
from ...ask.context.whole.ask_all import AskAll
from .folder_task import Asked
from .ways import FolderReading, Ways


class WholeReading(FolderReading):
    """Documents of a folder, or parts of a long one, that are all asked. Lists are answered by code (items.py)."""

    answer_tokens: ClassVar[int] = 256
    _listed = ""

    def every(self, question: Asked) -> bool:
        """Ask all documents or parts, as `--whole on` does."""
        heads, ignore = self._document_set.heads, lambda news: None
        asking = AskAll(self.llama, heads, ignore, ignore, lambda: self.llama.n_batch)
        context = at_once(asking.context(question.question, [self._document_set], []))
        if context is None:
            self.llama.reset()
            return False
        self.attach(context)
        self._listed = context.listed
        return self.has(context.index.tokens.tolist(), question)

    def can(self, way: str) -> bool:
        """Return whether the context holds what a way reads: always."""
        return True

    def answer(self, question: str, n_tokens: int) -> Iterator[str]:
        """Yield the list, or else the pieces of a greedy answer."""
        if listed := self._listed:
            self._listed = ""
            yield listed
        elif self.llama.n_tokens:
            yield from super().answer(question, n_tokens)

    ways: ClassVar[Ways] = {
        "all": every,
        "excerpts": FolderReading.excerpts,
        "the best one": FolderReading.document,
    }
