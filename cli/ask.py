"""`octavo ask`: one question, one answer."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..settings import ModelSettings, ReadSettings, Sampling
from . import options
from .answers import JSON, JSON_LINES, TEXT, say_if_no_switch, show_answer
from .open_conversation import open_session, reading_options
from .question_arguments import split_arguments
from .resuming import documents_of_chat, last_chat, resume_chat, with_model_of
from .sampling import sampling_options, system_prompt, think_option, thinks
from .show_sources import sources_option

if TYPE_CHECKING:
    from ..runtime.methods.attention import Attention


@click.command()
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

    DOCUMENT is a text, a PDF, a file of Office or any other that octavo reads (docs/documents.md), or - for standard
    input. octavo indexes it on first use (not with --read excerpts); if that takes longer than --first-answer, this
    answer comes from passages. Of several documents, or a folder, octavo finds those that the question is about.
    QUESTION is the question, in quotes or not, or - to read it from standard input. The answer goes to standard
    output, everything else to standard error. Question and answer are kept for --continue: `octavo chats` lists them.
    """
    documents, question = split_arguments(arguments, may_lack_documents=continues)
    chat = last_chat(documents, settings) if continues else None
    if chat is not None:
        documents, settings = documents or documents_of_chat(chat), with_model_of(chat, settings)
    from ..errors import OctavoError

    start = time.perf_counter()
    with open_session(
        documents,
        settings,
        attention,
        replace(sampling, think=thinks(think)),
        reading=reading,
        sources=sources,
        system_prompt=system_prompt,
    ) as session:
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
