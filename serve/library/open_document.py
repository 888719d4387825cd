"""The text to answer from: an indexed document, or excerpts of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ...ask.excerpts import LaidOut
from ...ask.passages import Passage, TokenText, passages
from ...documents.document import Place
from ...library.indexed_document import IndexedDocument
from ...runtime.document.index import Index
from ...runtime.llama import Llama
from ...runtime.query_recorder import Recorder

#: Largest number of an answer's sources.
_MOST_SOURCES = 3


@dataclass(frozen=True, eq=False)
class OpenDocument:
    """An open indexed document.

    Parameters
    ----------
    id : str
        Id for clients.
    path : Path
        Folder of its index.
    index : Index
        The index, which all conversations share.
    described : dict
        The manifest's description of the document.
    offset : int
        Offset of its text in the client's file, in characters.
    """

    id: str
    path: Path
    index: Index
    described: dict[str, Any]
    offset: int = 0

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return str(self.described["name"])

    @property
    def documents(self) -> list[OpenDocument]:
        """Return the documents of the text."""
        return [self]

    @property
    def n_tokens(self) -> int:
        """Return its number of tokens, with the prompt's head."""
        return len(self.index.tokens)

    @property
    def n_bytes(self) -> int:
        """Return the memory of its keys and values, which are mapped."""
        return 0

    def text(self, llama: Llama) -> TokenText:
        """Return its text, as the model read it."""
        if not self._texts:
            self._texts.append(TokenText.of_document(llama, self.index.tokens[self.index.n_prefix :], self.described))
        return self._texts[0]

    @cached_property
    def _texts(self) -> list[TokenText]:
        return []

    @property
    def places(self) -> list[Place]:
        """Return the places of its pages and headings."""
        return [Place(*place) for place in self.described.get("places", ())]

    def sources(self, llama: Llama, recorder: Recorder) -> list[Source]:
        """Return the passages that the recorded answer comes from."""
        attended = recorder.attended(self.index)[:, self.index.n_prefix :]
        return [self.source(passage) for passage in passages(self.text(llama), self.places, attended, _MOST_SOURCES)]

    def source(self, passage: Passage) -> Source:
        """Return a passage of its text as a source."""
        start, stop = passage.start + self.offset, passage.stop + self.offset
        return Source(self, replace(passage, start=start, stop=stop))


@dataclass(frozen=True, eq=False)
class OpenExcerpts:
    """Excerpts of documents, in place of a document.

    Parameters
    ----------
    laid_out : LaidOut
        The excerpts as one context.
    opened : mapping of IndexedDocument to OpenDocument
        Their documents, the likeliest first.
    """

    laid_out: LaidOut
    opened: Mapping[IndexedDocument, OpenDocument]

    @property
    def documents(self) -> list[OpenDocument]:
        """Return the documents of the excerpts, the likeliest first."""
        return list(self.opened.values())

    @property
    def index(self) -> Index:
        """Return the index of the excerpts."""
        return self.laid_out.index

    @property
    def n_tokens(self) -> int:
        """Return their number of tokens, with the prompt's head."""
        return len(self.index.tokens)

    @property
    def n_bytes(self) -> int:
        """Return the memory of their keys and values."""
        return self.index.n_bytes

    def sources(self, llama: Llama, recorder: Recorder) -> list[Source]:
        """Return the passages that the recorded answer comes from, each with its document."""

        def text_of(document: IndexedDocument) -> tuple[TokenText, list[Place]]:
            opened = self.opened[document]
            return opened.text(llama), opened.places

        found = self.laid_out.passages(recorder.attended(self.index), text_of, _MOST_SOURCES)
        return [self.opened[document].source(passage) for document, passage in found]


class Source(NamedTuple):
    """A passage of an answer's sources, and its document."""

    document: OpenDocument
    passage: Passage


#: Text before a prompt.
Opened = OpenDocument | OpenExcerpts
