"""`octavo chat`: a conversation about one document."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import options
from .answers import JSON_LINES, TEXT, show_answer
from .render import notice, size
from .sampling import SamplingOptions, sampling_options
from .sources import show_sources, sources_option

if TYPE_CHECKING:
    from ..runtime.session import Session


@click.command()
@click.argument("document", type=click.Path(path_type=Path), required=False)
@sources_option
@options.password
@options.output_option(TEXT, JSON_LINES)
@options.model_options
@options.attention_options
@sampling_options
def chat(
    document: Path | None,
    sources: bool,
    password: str | None,
    output: str,
    model_options: options.ModelOptions,
    attention_options: options.AttentionOptions,
    sampling_options: SamplingOptions,
) -> None:
    """Talk about a document, or about anything.

    DOCUMENT is text, Markdown, HTML, PDF, EPUB or DOCX; it is indexed first where that was not done yet. Without one,
    the model talks from memory. Without a terminal, each line of standard input is a question. Answers go to standard
    output, everything else to standard error.
    """
    if document is not None and os.fspath(document) == "-":
        raise click.UsageError("Standard input is where questions come from: give the document as a file.")
    from .documents import open_session
    from .input_lines import is_terminal, piped_lines, typed_lines

    if sources and document is None:
        raise click.UsageError("--sources are passages of a document: give one.")
    interactive = is_terminal()
    recorded = document is not None and (sources or interactive)  # on a terminal /sources may come
    with open_session(document, model_options, attention_options, sampling_options, password, recorded) as session:
        if interactive:
            about = f"{document.name}: {session.n_tokens:,} tokens. " if document else ""
            notice(f"{about}/help lists what you can do here.")
        facts = {"document": document and str(document), "model": session.llama.model_path}
        ChatLoop(session, interactive, output, facts, sources).run(typed_lines() if interactive else piped_lines())


class ChatLoop:
    """Answers lines, or does what they command, until they end.

    Parameters
    ----------
    session : Session
        The conversation.
    interactive : bool
        Whether an interrupted or refused answer leads back to the prompt.
    output : str
        How answers are shown: TEXT or JSON_LINES (answers.py).
    facts : dict, optional
        What JSON says of each answer besides: the document and the model.
    sources : bool
        Whether each answer is followed by its sources.
    """

    def __init__(
        self,
        session: Session,
        interactive: bool,
        output: str = TEXT,
        facts: dict[str, str | None] | None = None,
        sources: bool = False,
    ) -> None:
        self.session, self.interactive, self.output, self.facts = session, interactive, output, facts or {}
        self.with_sources = sources
        self.n_answers = 0
        self.commands: dict[str, tuple[str, Callable[[], None]]] = {
            "/help": ("list these commands", self.help),
            "/regenerate": ("answer the last question anew", self.regenerate),
            "/sources": ("list the passages that the last answer comes from", self.sources),
            "/clear": ("forget all questions and answers; the document stays", self.clear),
            "/stats": ("say what the context holds and how fast the last answer was", self.stats),
            "/exit": ("leave; Ctrl-D does too", self.exit),
        }

    def run(self, lines: Iterator[str]) -> None:
        """Take lines until they end, or until /exit.

        Parameters
        ----------
        lines : iterator of str
            What the user types.
        """
        self._goes_on = True
        while self._goes_on and (line := next(lines, None)) is not None:
            try:
                self.take(line.strip())
            except KeyboardInterrupt:
                if not self.interactive:
                    raise
                notice("(stopped)")

    def take(self, line: str) -> None:
        """Answer a line, or do what it commands.

        Parameters
        ----------
        line : str
            What the user typed.
        """
        if line.startswith("/") and "\n" not in line:
            if line in self.commands:
                self.commands[line][1]()
            else:
                self.unknown(line)
        elif line:
            self.answer(line)

    def answer(self, question: str) -> None:
        """Answer a question.

        Parameters
        ----------
        question : str
            The question.
        """
        self.show(lambda: self.session.stream(question), {"question": question})

    def show(self, answer: Callable[[], Generator[str, None, None]], facts: dict[str, str | None]) -> None:
        """Stream an answer. What was shown before a Ctrl-C stays in the conversation.

        Parameters
        ----------
        answer : callable
            Begins the answer, and returns its pieces.
        facts : dict
            What JSON says of it besides.
        """
        from ..errors import OctavoError

        if self.n_answers and self.output == TEXT and not self.interactive:
            click.echo()  # a blank line between answers
        try:
            show_answer(self.session, answer(), self.output, facts | self.facts, self.with_sources)
            self.n_answers += 1
        except OctavoError as problem:
            if not self.interactive:
                raise
            notice(f"Error: {problem}")

    def regenerate(self) -> None:
        """Do /regenerate: answer the last question anew."""
        self.show(self.session.regenerate, {})

    def sources(self) -> None:
        """Do /sources: list where the last answer comes from."""
        from ..api import Document
        from ..errors import OctavoError

        if not isinstance(self.session, Document):
            notice("There is no document that answers could come from.")
            return
        try:
            show_sources(self.session, err=True)
        except OctavoError as problem:
            notice(str(problem))

    def help(self) -> None:
        """Do /help: list the commands."""
        for name, (what, _) in self.commands.items():
            notice(f"{name:<13}{what}")
        notice("Alt-Enter, or a backslash at the end of a line, adds a line. Ctrl-C stops an answer.")

    def clear(self) -> None:
        """Do /clear: forget questions and answers."""
        self.session.clear()
        notice("Cleared. The document stays." if self.session.n_document else "Cleared.")

    def stats(self) -> None:
        """Do /stats: say what the context holds, and what the last answer took."""
        llama, answer = self.session.llama, self.session.answer
        cache = llama.context.cache
        length = "" if cache.rolls else f" of {llama.n_ctx():,}"
        notice(f"context    {llama.n_tokens:,}{length} tokens, {cache.n_document:,} of them the document")
        notice(f"KV cache   {size(cache.kv_bytes)}")
        budget = f", budget {llama.budget:g}" if llama.composition.has_budget else ""
        chosen = f": {llama.chosen}" if llama.composition.auto else ""
        notice(f"attention  {llama.attention}{chosen}{budget}")
        if answer:
            timing = answer.timing
            notice(
                f"answer     {timing.answer_tokens:,} tokens, the first after {timing.first_token_s:.2f} s, "
                f"then {timing.decode_tokens_per_s:.1f} tokens/s"
            )
            if timing.answer_tokens > 1:
                notice(f"read       {size(answer.bytes_read)} a token, {answer.kv_share:.1%} of the KV cache")
            if answer.covered is not None:
                notice(f"covered    {answer.covered:.1%} of the attention exactly; the rest is estimated")

    def exit(self) -> None:
        """Do /exit: leave."""
        self._goes_on = False

    def unknown(self, line: str) -> None:
        """Say that there is no such command.

        Parameters
        ----------
        line : str
            What the user typed.
        """
        notice(f"There is no command {line.split()[0]}: /help lists them.")
