"""What the tools return, as JSON."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

#: Why texts or files are left out, and other sentences for the reader.
_Notices = list[str]


class ListedDocument(BaseModel):
    """A document."""

    name: str
    bytes: int = Field(description="Size of its file.")
    characters: int | None = Field(description="Length of its text; null if the text was not taken from the file yet.")
    pages: int | None = Field(description="Number of its pages, of a text that is known and has pages.")
    is_read: bool = Field(description="Whether the model has read it whole, so that questions start at once.")


class DocumentList(BaseModel):
    """All documents."""

    documents: list[ListedDocument]
    notices: _Notices


class FoundPassage(BaseModel):
    """A passage that shares words with a question."""

    document: str
    page: str | None = Field(description="The page on which it begins.")
    heading: str | None
    start: int = Field(description="First character in the document's text; read_range reads around it.")
    stop: int
    text: str = Field(description="Lines that begin with --- say the page and the headings of what follows.")


class FoundPassages(BaseModel):
    """The passages, the best first."""

    passages: list[FoundPassage]
    notices: _Notices


class AnswerSource(BaseModel):
    """A passage that an answer comes from."""

    document: str
    page: str | None
    heading: str | None
    line: int
    start: int = Field(description="First character of the quote in the document's text.")
    stop: int
    quote: str
    share: float = Field(description="Its share of the attention of the answer; 0 if its words found it.")
    by: Literal["attention", "words"] = Field(
        description="How it was found: where the model looked, or by words that the answer has of it."
    )


class AnswerBasis(BaseModel):
    """What was read for an answer."""

    kind: Literal["document", "part", "excerpts", "findings"]
    passages: int | None
    share: float = Field(description="Share of the text of these documents that was read; 1 is all.")
    rest: str | None = Field(description="What becomes of the others: indexed, being read, or unread.")
    documents: list[str] = Field(description="The documents that were read, the likeliest first.")


class GivenAnswer(BaseModel):
    """An answer with its sources."""

    answer: str
    finish_reason: str = Field(description="stop, or why the answer was cut: length, context or loop.")
    sources: list[AnswerSource] = Field(description="Empty if no passage is likely: check such an answer.")
    basis: AnswerBasis
    notices: _Notices
