"""The model `octavo`: documents are read once and kept as indexes; questions read only the part that matters."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import llm
from llm.parts import AttachmentPart, Message, StreamEvent, TextPart
from pydantic import Field

from .document_files import earlier_turn, turn_of

#: What stands between an answer and its sources.
_SOURCES = "\n\nSources:\n"

#: Seconds that an answer waits for documents to be read; it comes from passages of those that take longer.
_FIRST_ANSWER = 60.0

_TYPES = {
    "application/pdf",
    "application/epub+zip",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "application/vnd.oasis.opendocument.text",
    "text/html",
    "text/markdown",
    "text/plain",
}


#: The option that changes a limit, by the kind of a notice that names the limit.
_OPTIONS = {"length": ": -o max_tokens sets the limit."}


class Options(llm.Options):
    """How octavo answers."""

    model_file: str | None = Field(
        default=None,
        description="GGUF file, or a name such as hf:owner/repo:Q4_K_M. By default OCTAVO_MODEL, or SmolLM2-135M.",
    )
    attention: str = Field(default="auto", description="What attention reads: auto, dense, or another of octavo's.")
    temperature: float | None = Field(
        default=None, description="0 always takes the likeliest token; by default 0.2 over documents, else 0.8."
    )
    max_tokens: int = Field(default=1024, description="Most tokens of an answer.")
    sources: bool = Field(default=False, description="Whether the passages follow that an answer comes from.")


class _Answers:
    """The open conversation, with its model and documents."""

    def __init__(self) -> None:
        self._how: Any = None
        self._session: Any = None

    def stream(self, prompt: llm.Prompt, response: Any) -> Generator[str | StreamEvent, None, None]:
        """Answer a prompt. Raise llm.ModelError if octavo refuses it."""
        from octavo import OctavoError

        try:
            yield from self._stream(prompt, response)
        except OctavoError as problem:
            raise llm.ModelError(str(problem)) from problem

    def _stream(self, prompt: llm.Prompt, response: Any) -> Generator[str | StreamEvent, None, None]:
        turn, options = turn_of(prompt), prompt.options
        system, history, before = _chain(prompt.messages)
        documents = tuple(dict.fromkeys((*before, *turn.documents)))
        session = self._open((documents, system, tuple(sorted(options.model_dump().items(), key=str))), options)
        session.recall(history)
        for part in session.stream_parts(turn.question):
            if part.text:
                yield StreamEvent("reasoning", part.text) if part.is_thought else part.text
        answer = session.answer
        response.set_usage(
            input=answer.timing.prompt_tokens, output=answer.timing.answer_tokens + answer.timing.thought_tokens
        )
        basis = answer.read.as_json() if answer.read else None
        notices = list(answer.notices.values())
        response.response_json = {"finish_reason": answer.finish_reason, "basis": basis, "notices": notices}
        for kind, sentence in answer.notices.items():
            click.echo(f"({sentence.removesuffix('.')}{_OPTIONS.get(kind, '.')})", err=True)
        if answer.read is not None and answer.read.share < 1:
            click.echo(f"(From {answer.read.share:.1%} of the text.)", err=True)
        if options.sources and documents:
            found = session.sources()
            response.response_json["sources"] = [passage.as_json() for passage in found]
            lines = [_source(passage, session.names) for passage in found]
            yield _SOURCES + ("".join(lines) or "None: check this answer.")

    def _open(self, how: Any, options: Options) -> Any:
        """Return the conversation for documents, a system message and options; the one before, if it is the same."""
        if how == self._how:
            return self._session
        import octavo

        if self._session is not None:
            self._how, session, self._session = None, self._session, None
            session.close()
        documents, system, _ = how
        given: dict[str, Any] = {
            "model": options.model_file or os.environ.get("OCTAVO_MODEL"),
            "attention": options.attention,
            "sampling": octavo.Sampling(temperature=options.temperature, max_tokens=options.max_tokens),
            "system_prompt": system,
            "progress": _Notices(),
        }
        if documents:
            given |= {"reading": octavo.ReadSettings(first_answer=_FIRST_ANSWER), "sources": options.sources}
        if len(documents) > 1:
            self._session = octavo.open_documents(documents, **given)
        elif documents:
            self._session = octavo.open_document(documents[0], **given)
        else:
            self._session = octavo.open_session(**given)
        self._how = how
        return self._session


class Octavo(llm.Model):
    """The model."""

    model_id = "octavo"
    can_stream = True
    attachment_types = _TYPES

    class Options(Options):
        """How octavo answers."""

    def __init__(self) -> None:
        self._answers = _Answers()

    def execute(self, prompt: llm.Prompt, stream: bool, response: Any, conversation: Any) -> Generator[Any, None, None]:
        """Yield the pieces of an answer."""
        return self._answers.stream(prompt, response)


class AsyncOctavo(llm.AsyncModel):
    """The model for asynchronous programs: a thread computes."""

    model_id = "octavo"
    can_stream = True
    attachment_types = _TYPES

    class Options(Options):
        """How octavo answers."""

    def __init__(self) -> None:
        self._answers = _Answers()
        self._thread = ThreadPoolExecutor(1, "octavo")

    async def execute(
        self, prompt: llm.Prompt, stream: bool, response: Any, conversation: Any
    ) -> AsyncGenerator[Any, None]:
        """Yield the pieces of an answer."""
        loop, pieces = asyncio.get_running_loop(), self._answers.stream(prompt, response)
        try:
            while (piece := await loop.run_in_executor(self._thread, next, pieces, None)) is not None:
                yield piece
        finally:
            await loop.run_in_executor(self._thread, pieces.close)


class _Notices:
    """Writes notices to standard error, and what is read."""

    def notice(self, sentence: str) -> None:
        click.echo(sentence, err=True)

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        click.echo(f"{task}: {total - done:,} {unit}", err=True)

    def advance(self, amount: int) -> None:
        pass


def _chain(messages: list[Message]) -> tuple[str, list[dict[str, str]], list[Path]]:
    """Return the system message, the turns before the current one, and the documents that they brought."""
    system = ""
    history: list[dict[str, str]] = []
    documents: list[Path] = []
    for message in messages[:-1]:
        text = "".join(part.text for part in message.parts if isinstance(part, TextPart))
        if message.role == "system":
            system = text
        elif message.role == "user":
            attachments = [part.attachment for part in message.parts if isinstance(part, AttachmentPart)]
            turn = earlier_turn(text, [attachment for attachment in attachments if attachment])
            documents += turn.documents
            history.append({"role": "user", "content": turn.question})
        elif message.role == "assistant":
            history.append({"role": "assistant", "content": text.partition(_SOURCES)[0]})
    return system, history, documents


def _source(passage: Any, names: dict[str, str]) -> str:
    """Return the line of a source, with its document where several have names."""
    name = names.get(passage.document, "") if passage.document else ""
    page = f"page {passage.page}" if passage.page else ""
    where = ", ".join(filter(None, (name, page, passage.heading, f"line {passage.line:,}")))
    return f"- {where}: {passage.quote}\n"
