"""`octavo ask`: one question, one answer."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..settings import ModelSettings, ReadSettings, Sampling
from . import options
from .answers import JSON, JSON_LINES, TEXT, say_if_no_switch, show_answer
from .open_conversation import open_session, reading_options
from .sampling import sampling_options, system_prompt, think_option, thinks
from .show_sources import sources_option

if TYPE_CHECKING:
    from ..runtime.methods.attention import Attention


@click.command()
@click.argument("documents", metavar="DOCUMENT...", nargs=-1, required=True)
@click.argument("question")
@sources_option
@reading_options
@options.output_option(TEXT, JSON, JSON_LINES)
@options.model_options
@options.attention_options
@sampling_options
@think_option
@system_prompt
def ask(
    documents: tuple[str, ...],
    question: str,
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

    DOCUMENT is text, Markdown, HTML, PDF, EPUB or DOCX, or - for standard input; it is indexed first where that was
    not done yet, unless with --read excerpts. Of several documents, or a folder, octavo finds what the question is
    about. QUESTION is the question, or - to read it from standard input. The answer goes to standard output, everything
    else to standard error.
    """
    if question == "-" and "-" in documents:
        raise click.UsageError("Standard input holds the document or the question: give one of them otherwise.")
    question = options.question_text(question)
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
        facts = {
            "document": documents[0],
            "model": session.llama.model_path,
            "open_s": round(time.perf_counter() - start, 3),
        }
        show_answer(session, session.stream_parts(question), output, facts, sources, think)
