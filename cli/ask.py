"""`octavo ask`: one question, one answer."""

from __future__ import annotations

import glob
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

import click

from ..settings import ModelSettings, ReadSettings, Sampling
from . import options
from .answers import JSON, JSON_LINES, TEXT, say_if_no_switch, show_answer, sources_option
from .open_conversation import (
    documents_of_chat,
    last_chat,
    open_session,
    reading_options,
    resume_chat,
    with_model_of,
)
from .sampling import sampling_options, system_prompt, think_option, thinks
from .short_help import ShortHelp

if TYPE_CHECKING:
    from ..runtime.methods.attention import Attention

#: An ending that names of files have, and words do not: a letter is in it.
_ENDING = re.compile(r"[^\s.]\.(?=\d*[A-Za-z])\w{1,5}$")

#: The name of standard input, as a document or a question.
_STANDARD_INPUT = "-"

#: How paths begin.
_ROOTS = ("/", "./", "../", "~/")


@click.command(
    cls=ShortHelp,
    groups={
        "Answer": ("--sources", "--continue", "-n", "--temp"),
        "Documents": ("--read", "--first-answer", "--ocr"),
        "Model": ("-m", "-hf", "-c"),
        "Output": ("-o", "-q"),
    },
    examples=(
        'octavo ask report.pdf "Who wrote it?" --sources',
        'octavo ask papers/ "Which paper measures noise?" -o json',
    ),
)
@click.argument("arguments", metavar="DOCUMENT... QUESTION", nargs=-1, required=True)
@click.option(
    "--continue",
    "continues",
    is_flag=True,
    help="Continue the last conversation about DOCUMENT; without any, the last one.",
)
@sources_option
@reading_options
@options.output_option(TEXT, JSON, JSON_LINES)
@options.quiet
@options.model_options
@options.attention_options
@sampling_options
@think_option
@system_prompt
def ask(
    arguments: tuple[str, ...],
    continues: bool,
    sources: bool,
    output: str,
    settings: ModelSettings,
    attention: Attention,
    sampling: Sampling,
    reading: ReadSettings,
    system_prompt: str,
    think: str | None,
) -> None:
    """Answer a question about documents.

    DOCUMENT is a text, a PDF, a file of Office or any other that octavo reads (docs/documents.md), a folder, or - for
    standard input. QUESTION comes last, in quotes or not; - reads it from standard input.

    octavo indexes DOCUMENT on first use (not with --read excerpts); if that takes longer than --first-answer, this
    answer comes from passages. Of several documents, or a folder, octavo finds those that the question is about. The
    answer goes to standard output, everything else to standard error. Question and answer are kept for --continue.
    """
    documents, question = split_arguments(arguments, may_lack_documents=continues)
    chat = last_chat(documents, settings) if continues else None
    if chat is not None:
        documents, settings = documents or documents_of_chat(chat), with_model_of(chat, settings)
    from ..errors import OctavoError
    from .input_lines import keys_kept

    start = time.perf_counter()
    types, has_pager = _STANDARD_INPUT in documents, not sys.stdout.isatty()
    with (
        nullcontext() if types or has_pager else keys_kept(),
        open_session(
            documents,
            settings,
            attention,
            replace(sampling, think=thinks(think)),
            reading=reading,
            sources=sources,
            system_prompt=system_prompt,
        ) as session,
    ):
        say_if_no_switch(session)
        if chat is not None:
            resume_chat(session, chat)
        facts = {
            "document": documents[0] if documents else None,
            "model": session.llama.model_path,
            "open_s": round(time.perf_counter() - start, 3),
        }
        show_answer(session, session.stream_parts(question), output, facts, sources, think)
        with suppress(OctavoError):
            session.keep(*((chat.name, chat.origin.kind) if chat else (None, "question")))


def split_arguments(arguments: Sequence[str], may_lack_documents: bool = False) -> tuple[tuple[str, ...], str]:
    """Return the documents and the question of a command.

    A last argument that has a blank was quoted: it is the question. Otherwise the question begins with the first
    argument that is not a document.

    Parameters
    ----------
    arguments : sequence of str
        Documents, then the question: one argument, or its words. A question of "-" is on standard input.
    may_lack_documents : bool
        Whether a question alone is enough.

    Raises
    ------
    click.UsageError
        The question or the documents are missing, a name of a file is among the words of the question, or the
        question is empty or not UTF-8 text.
    """
    last = arguments[-1]
    if last == _STANDARD_INPUT or not last or (re.search(r"\s", last) and not _is_there(last)):
        n_documents = len(arguments) - 1
    else:
        n_documents = len(list(takewhile(_is_there, arguments)))
        if not may_lack_documents or _looks_like_file(arguments[0]):
            n_documents = max(n_documents, 1)  # opening it reports that it does not exist
        while n_documents < len(arguments) and _looks_like_file(arguments[n_documents]):
            n_documents += 1
    documents, words = tuple(arguments[:n_documents]), list(arguments[n_documents:])
    if not words:
        raise click.UsageError(_without_question(documents))
    if not documents and not may_lack_documents:
        raise click.UsageError("The document is missing: name it before the question. `octavo chat` needs none.")
    for word in words[1:]:
        if _looks_like_file(word) and _is_there(word):
            raise click.UsageError(f"{word} is a file, after words of the question: name documents first, or quote it.")
    if words == [_STANDARD_INPUT] and _STANDARD_INPUT in documents:
        raise click.UsageError("Standard input holds the document or the question: give one of them otherwise.")
    return documents, options.question_text(" ".join(words))


def _without_question(documents: tuple[str, ...]) -> str:
    """Return a sentence for arguments that are all documents."""
    last = documents[-1]
    if len(documents) == 1 and not _is_there(last) and not _looks_like_file(last):
        return "The document is missing: name it before the question. `octavo chat` needs none."
    kind = "is a document" if _is_there(last) else "looks like a document"
    quoted = ' If it is the question, pass it on standard input: echo "..." | octavo ask DOCUMENT -'
    return f"The question is missing: {last} {kind}.{quoted if len(documents) > 1 else ''}"


def _is_there(argument: str) -> bool:
    """Return whether an argument is a document: a file, a folder, a pattern of files, or standard input."""
    if argument == _STANDARD_INPUT or os.path.lexists(argument):
        return True
    return glob.has_magic(argument) and next(glob.iglob(argument, recursive=True), None) is not None


def _looks_like_file(argument: str) -> bool:
    """Return whether an argument names a file rather than a word, though the file may be missing."""
    if argument.startswith(_ROOTS) or _ENDING.search(argument):
        return True
    return os.sep in argument and os.path.isdir(os.path.dirname(argument))
