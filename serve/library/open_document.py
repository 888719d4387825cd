"""The text to answer from: an indexed document, or excerpts of documents."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ...ask.answer.answer import Basis
from ...ask.context.context import Context
from ...ask.sources.find_sources import Passage, TokenText, passages
from ...library.source_text import SourceText
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
    share : float
        Share of the file's tokens that it has.
    """

    id: str
    path: Path
    index: Index
    described: dict[str, Any]
    offset: int = 0
    share: float = 1.0

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return str(self.described["name"])

    @property
    def documents(self) -> Sequence[OpenDocument | OpenText]:
        """Return the documents of the text."""
        return [self]

    @property
    def basis(self) -> Basis:
        """Return what an answer from it is given from."""
        return Basis("part" if "part" in self.described else "document", share=self.share)

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

    def sources(self, llama: Llama, recorder: Recorder) -> list[Source]:
        """Return the passages that the recorded answer comes from."""
        attended = recorder.attended(self.index)[:, self.index.n_prefix :]
        found = passages(self.text(llama), attended, _MOST_SOURCES)
        return [_source(self, passage) for passage in found]


@dataclass(frozen=True, eq=False)
class OpenText:
    """The text of a document of which only passages are read.

    Parameters
    ----------
    id, name : str
        Id and name for clients.
    read : TokenText
        The text, with the tokens that are read.
    offset : int
        Offset of the text in the client's file, in characters.
    """

    id: str
    name: str
    read: TokenText
    offset: int = 0

    @property
    def n_bytes(self) -> int:
        """Return the memory of the text."""
        return sys.getsizeof(self.read.text)

    def text(self, llama: Llama) -> TokenText:
        """Return its text."""
        return self.read


@dataclass(frozen=True, eq=False)
class OpenExcerpts:
    """Excerpts of documents, in place of a document.

    Parameters
    ----------
    context : Context
        The excerpts.
    opened : mapping of SourceText to OpenDocument or OpenText
        Their documents, the likeliest first.
    """

    context: Context
    opened: Mapping[SourceText, OpenDocument | OpenText]

    @property
    def documents(self) -> Sequence[OpenDocument | OpenText]:
        """Return the documents of the excerpts, the likeliest first."""
        return list(self.opened.values())

    @property
    def basis(self) -> Basis:
        """Return what an answer from them is given from."""
        return self.context.share

    @property
    def index(self) -> Index:
        """Return the index of the excerpts."""
        return self.context.index

    @property
    def n_tokens(self) -> int:
        """Return their number of tokens, with the prompt's head."""
        return len(self.index.tokens)

    @property
    def n_bytes(self) -> int:
        """Return the memory of their keys and values, and of texts."""
        return self.index.n_bytes + sum(document.n_bytes for document in self.opened.values())

    def sources(self, llama: Llama, recorder: Recorder) -> list[Source]:
        """Return the passages that the recorded answer comes from, each with its document."""
        context = replace(self.context, text_of=lambda document: self.opened[document].text(llama))
        found = context.passages(recorder.attended(self.index), _MOST_SOURCES)
        return [_source(self.opened[document], passage) for document, passage in found]


class Source(NamedTuple):
    """A passage of an answer's sources, and its document."""

    document: OpenDocument | OpenText
    passage: Passage


def _source(document: OpenDocument | OpenText, passage: Passage) -> Source:
    """Return a passage of a document's text as a source, with its place in the client's file."""
    start, stop = passage.start + document.offset, passage.stop + document.offset
    return Source(document, replace(passage, start=start, stop=stop))


#: Text before a prompt.
Opened = OpenDocument | OpenExcerpts
