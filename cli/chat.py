"""`octavo chat`: a conversation about one document."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from ..settings import ModelSettings, ReadSettings, Sampling
from . import options
from .answers import JSON_LINES, TEXT, say_if_no_switch, show_answer, show_sources, sources_option
from .open_conversation import (
    chats_of,
    documents_of_chat,
    is_collection,
    last_chat,
    named_chat,
    open_session,
    reading_options,
    resume_chat,
    with_model_of,
)
from .render import notice, say, size
from .sampling import HIDE, OFF, SHOW, THINKS, sampling_options, system_prompt, think_option, thinks
from .short_help import ShortHelp

if TYPE_CHECKING:
    from ..ask.session import Session
    from ..prompts.thought_splitter import Part
    from ..runtime.methods.attention import Attention


@click.command(
    cls=ShortHelp,
    groups={
        "Conversation": ("--continue", "--resume", "--sources", "--think", "-n"),
        "Documents": ("--read", "--first-answer", "--ocr"),
        "Model": ("-m", "-hf", "-c"),
        "Output": ("-q",),
    },
    examples=("octavo chat report.pdf --sources", "octavo chat -hf bartowski/Llama-3.2-3B-Instruct-GGUF"),
)
@click.argument("documents", metavar="[DOCUMENT]...", nargs=-1)
@click.option(
    "--continue",
    "continues",
    is_flag=True,
    help="Resume the last conversation about DOCUMENT; without any, the last one.",
)
@click.option("--resume", metavar="NAME", help="Resume a conversation by its name or number in `octavo chats`.")
@sources_option
@reading_options
@options.output_option(TEXT, JSON_LINES)
@options.quiet
@options.model_options
@options.attention_options
@sampling_options
@think_option
@system_prompt
def chat(
    documents: tuple[str, ...],
    continues: bool,
    resume: str | None,
    sources: bool,
    output: str,
    settings: ModelSettings,
    attention: Attention,
    sampling: Sampling,
    reading: ReadSettings,
    system_prompt: str,
    think: str | None,
) -> None:
    """Talk about documents, or about anything.

    DOCUMENT is a text, a PDF, a file of Office or any other that octavo reads (docs/documents.md), or a folder. Without
    any, the model talks from memory. /help lists what you can do in the conversation.

    octavo indexes DOCUMENT on first use; if that takes longer than --first-answer, answers come from passages until
    then. Of several documents, or a folder, octavo finds those that each question is about. Without a terminal, each
    line of standard input is a question. Answers go to standard output, everything else to standard error.
    """
    if "-" in documents:
        raise click.UsageError("Standard input is where questions come from: give the document as a file.")
    from .input_lines import is_terminal, keys_kept, piped_lines, typed_lines

    if continues and resume is not None:
        raise click.UsageError("--resume names a conversation, --continue takes the last one: give one of them.")
    kept = last_chat(documents, settings) if continues else None
    if resume is not None:
        kept = named_chat(resume, chats_of(settings.model, settings.index_dir))
    if kept is not None:
        documents, settings = documents or documents_of_chat(kept), with_model_of(kept, settings)
    many = is_collection(documents)
    if sources and not documents:
        raise click.UsageError("--sources are passages of a document: give one.")
    interactive = is_terminal()
    recorded = bool(documents) and (sources or interactive)  # a terminal's user may type /sources
    document = Path(documents[0]) if len(documents) == 1 and not many else None
    with (
        keys_kept() if interactive else nullcontext(),
        open_session(
            documents,
            settings,
            attention,
            replace(sampling, think=thinks(think)),
            reading=reading,
            sources=recorded,
            system_prompt=system_prompt,
        ) as session,
    ):
        if interactive:
            notice(f"{_about(session, document)}/help lists what you can do here.")
        say_if_no_switch(session)
        loop = ChatLoop(session, interactive, output, document, sources, reading, think, documents)
        if kept is not None:
            resume_chat(session, kept)
            loop.kept, loop.keeps = kept.name, True
        try:
            loop.run(typed_lines() if interactive else piped_lines())
        finally:
            loop.keep()


def _about(session: Session, document: Path | None) -> str:
    if len(session.documents) > 1:
        return f"{len(session.documents):,} documents. "
    n_tokens = f"{session.n_tokens:,} tokens" if session.n_tokens else "answered from passages"
    return f"{document.name}: {n_tokens}. " if document else ""


def _is_path(name: str) -> bool:
    """Return whether a conversation is a file of the user's, not one beside the model's indexes."""
    return Path(name).name != name or bool(Path(name).suffix)


#: Cores of other programs that slow an answer.
_NOTICED = 0.25

#: How one leaves other programs' chats.
_AS_EXIT = ("/quit", "/bye")


class ChatLoop:
    """Answer questions and run commands, line by line.

    Parameters
    ----------
    interactive : bool
        Whether an interrupted or refused answer leads back to the prompt.
    output : str
        Form of answers: TEXT or JSON_LINES (answers.py).
    sources : bool
        Whether to show the sources of each answer.
    think : str, optional
        One of THINKS (sampling.py).
    begun_with : sequence of str
        Documents that the chat began with.
    """

    def __init__(
        self,
        session: Session,
        interactive: bool,
        output: str = TEXT,
        document: Path | None = None,
        sources: bool = False,
        reading: ReadSettings | None = None,
        think: str | None = None,
        begun_with: Sequence[str] = (),
    ) -> None:
        self.session, self.interactive, self.output, self.thinks = session, interactive, output, think
        self.document, self.with_sources, self.reading = document, sources, reading or ReadSettings()
        self.begun_with, self.n_answers = begun_with, 0
        self.kept: str | None = None  # the name under which the conversation is kept
        self.keeps = interactive  # whether to keep it after each answer and at the end: a script's is not
        self.cores_of_others = 0.0  # that other programs used during the last answer
        self.commands: dict[str, tuple[str, Callable[[], None]]] = {
            "/help": ("list these commands", self.help),
            "/regenerate": ("answer the last question anew", self.regenerate),
            "/sources": ("list the passages that the last answer comes from", self.sources),
            "/clear": ("forget all questions and answers; the document stays", self.clear),
            "/document": ("go back to the first documents", self.back),
            "/stats": ("say what the context holds and how fast the last answer was", self.stats),
            "/exit": ("leave; /quit, /bye and Ctrl-D do too", self.exit),
        }
        self.commands_of: dict[str, tuple[str, str, Callable[[str], None]]] = {
            "/save": ("NAME", "save the conversation", self.save),
            "/load": ("NAME", "resume one that was saved", self.load),
            "/document": ("FILE", "talk about another document, or a folder", self.open),
            "/think": ("HOW", f"{SHOW} or {HIDE} thoughts, or turn them {OFF}", self.think),
        }

    def run(self, lines: Iterator[str]) -> None:
        """Take lines until they end, or until /exit."""
        self._continues = True
        while self._continues and (line := next(lines, None)) is not None:
            try:
                self.take(line.strip())
            except KeyboardInterrupt:
                if not self.interactive:
                    raise
                say("(stopped)")

    def take(self, line: str) -> None:
        """Answer a line, or run it as a command."""
        if line.startswith("/") and "\n" not in line:
            name, _, argument = line.partition(" ")
            if line in _AS_EXIT:
                self.exit()
            elif line in self.commands:
                self.command_of(self.commands[line][1])
            elif name in self.commands_of:
                self.command(name, argument.strip())
            else:
                self.unknown(line)
        elif line:
            self.answer(line)

    def answer(self, question: str) -> None:
        self.show(lambda: self.session.stream_parts(question), {"question": question})

    def show(self, answer: Callable[[], Generator[Part, None, None]], facts: dict[str, str | None]) -> None:
        """Stream an answer, with further `facts` in JSON. Text that came before a Ctrl-C stays in the conversation."""
        from ..errors import OctavoError
        from ..system.processors import look

        before = look()
        if self.n_answers and self.output == TEXT and not self.interactive:
            click.echo()  # a blank line between answers
        try:
            if self.output != TEXT:
                document = str(self.document) if self.document else None
                facts = {**facts, "document": document, "model": self.session.llama.model_path}
            show_answer(self.session, answer(), self.output, facts, self.with_sources, self.thinks)
            self.n_answers += 1
            self.cores_of_others = before.cores_of_others(look())
            self.keep(with_rows=False)  # a process may be killed
        except OctavoError as problem:
            if not self.interactive:
                raise
            say(f"Error: {problem}")

    def regenerate(self) -> None:
        """Do /regenerate: answer the last question anew."""
        self.show(self.session.regenerate_parts, {})

    def sources(self) -> None:
        """Do /sources: list the sources of the last answer."""
        from ..errors import OctavoError

        try:
            show_sources(self.session, err=True)
        except OctavoError as problem:
            say(str(problem))

    def help(self) -> None:
        """Do /help: list the commands."""
        for name, (what, _) in self.commands.items():
            say(f"{name:<16}{what}", " " * 16)
        for name, (argument, what, _) in self.commands_of.items():
            say(f"{name + ' ' + argument:<16}{what}", " " * 16)
        say("Alt-Enter, or a backslash at the end of a line, adds a line. Ctrl-C stops an answer.")

    def command(self, name: str, argument: str) -> None:
        """Run a command that takes an argument."""
        if argument:
            self.command_of(lambda: self.commands_of[name][2](argument))
        else:
            say(f"{name} takes one thing: {name} {self.commands_of[name][0]}.")

    def command_of(self, run: Callable[[], None]) -> None:
        """Run a command that may fail: then print the reason and change nothing."""
        from ..errors import OctavoError

        try:
            run()
        except OctavoError as problem:
            if not self.interactive:
                raise
            say(f"Error: {problem}")

    def save(self, name: str) -> None:
        """Do /save: keep the conversation under a name, and no more under the one that octavo gave it."""
        saved = self.session.save(name)
        if self.keeps and self.kept is not None and saved.stem != self.kept:
            saved.with_stem(self.kept).unlink(missing_ok=True)
        if self.keeps and not _is_path(name):
            self.kept = name
        resumes = f"{name}: `octavo chat --resume {quote(name)}` resumes it."
        say(f"Saved as {saved if _is_path(name) else resumes}")

    def load(self, name: str) -> None:
        """Do /load: continue a saved conversation. The one before it is kept as it is."""
        self.keep()
        is_same = self.session.load(name)
        self.kept = None if _is_path(name) else name
        n_tokens = self.session.n_tokens - self.session.n_document
        say(f"The conversation continues{f': {n_tokens:,} tokens' if is_same else ', after the text as it is now'}.")

    def open(self, path: str) -> None:
        """Do /document: talk about another document, or a folder."""
        self._open([os.path.expanduser(path)])

    def back(self) -> None:
        """Do /document alone: return to the documents that the chat began with."""
        if self.begun_with:
            self._open(self.begun_with)
        else:
            say("This chat began without a document: /document FILE names one.")

    def _open(self, documents: Sequence[str]) -> None:
        """Talk about other documents. The conversation about the current one is kept as its last."""
        from .open_conversation import open_next

        self.keep()
        self.kept = None
        self.session = open_next(self.session, documents, self.reading, self.with_sources or self.interactive)
        self.document = None if is_collection(documents) else Path(documents[0])
        say(_about(self.session, self.document).strip())

    def think(self, how: str) -> None:
        """Do /think: show or hide thoughts, or turn thinking off."""
        from ..errors import OctavoError

        if how not in THINKS:
            raise OctavoError(f"/think takes {', '.join(THINKS[:-1])} or {THINKS[-1]}: not '{how}'.")
        self.thinks = how
        self.session.think(thinks(how))
        say_if_no_switch(self.session)
        say({SHOW: "Thoughts are shown.", HIDE: "Thoughts are hidden.", OFF: "The model answers at once."}[how])

    def keep(self, with_rows: bool = True) -> None:
        """Keep the conversation for --continue, if there is one and it can be kept."""
        from ..errors import OctavoError

        if not self.keeps:
            return
        with suppress(OctavoError):
            self.kept = self.session.keep(self.kept, with_rows=with_rows)

    def clear(self) -> None:
        """Do /clear: forget questions and answers."""
        self.session.clear()
        say("Cleared. The document stays." if self.session.n_document else "Cleared.")

    def stats(self) -> None:
        """Do /stats: print the tokens in the context, the figures of the last answer, and what may slow answers."""
        llama, answer = self.session.llama, self.session.answer
        cache = llama.context.cache
        length = "" if cache.rolls else f" of {llama.n_ctx():,}"
        say(f"context    {llama.n_tokens:,}{length} tokens, {cache.n_document:,} of them the document")
        say(f"KV cache   {size(cache.kv_bytes)}")
        attention = llama.attention
        budget = f", budget {attention.budget:g}" if attention.has_budget else ""
        resolved = f": {llama.resolved_attention}" if attention.auto else ""
        say(f"attention  {attention}{resolved}{budget}")
        self.speed()
        if answer:
            timing = answer.timing
            if timing.thought_tokens:
                say(f"thought    {timing.thought_tokens:,} tokens")
            say(
                f"answer     {timing.answer_tokens:,} tokens, the first after {timing.first_token_s:.2f} s, "
                f"then {timing.decode_tokens_per_s:.1f} tokens/s"
            )
            if timing.drafted_tokens:
                say(
                    f"drafts     {timing.accepted_tokens:,} of {timing.drafted_tokens:,} tokens drawn, "
                    f"{timing.tokens_per_step:.1f} tokens a step"
                )
            if timing.answer_tokens > 1:
                say(f"read       {size(answer.bytes_read)} a token, {answer.kv_share:.1%} of the KV cache")
            if answer.covered is not None:
                say(f"covered    {answer.covered:.1%} of the attention exactly; the rest is estimated")

    def speed(self) -> None:
        """Print what answers share the cores with."""
        from ..library.background.reading_queue import ReadingQueue
        from ..system.processors import default_threads

        n_threads, n_cores = self.session.llama.context.params.n_threads, default_threads()
        fewer = f"; -t {n_cores} takes all" if n_threads < n_cores else ""
        say(f"threads    {n_threads} on {n_cores} core{'s' if n_cores > 1 else ''}{fewer}")
        if self.n_answers and self.cores_of_others >= _NOTICED:
            say(f"others     other programs used {self.cores_of_others:.1f} cores during the last answer")
        queue = ReadingQueue()
        if queue.has_reader and (pending := [each for each in queue.documents() if each.is_pending]):
            names = f"{pending[0].name}{f' and {len(pending) - 1:,} more' if len(pending) > 1 else ''}"
            say(f"reading    {names}, in the background, between answers: `octavo list` shows how far it is")

    def exit(self) -> None:
        """Do /exit: leave."""
        self._continues = False

    def unknown(self, line: str) -> None:
        """Print that the command does not exist."""
        say(f"There is no command {line.split()[0]}: /help lists them.")
