"""`octavo ask`: one question, one answer."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import click

from . import options
from .render import print_json, stream


@click.command()
@click.argument("document", type=click.Path(path_type=Path))
@click.argument("question")
@options.output_option("text", "json")
@options.model_options
@options.attention_options
@options.sampling_options
def ask(
    document: Path,
    question: str,
    output: str,
    model_options: options.ModelOptions,
    attention_options: options.AttentionOptions,
    sampling_options: options.SamplingOptions,
) -> None:
    """Answer a question about a document.

    DOCUMENT is a text or Markdown file; it is indexed first where that was not done yet. QUESTION is the question,
    or - to read it from standard input. The answer goes to standard output, everything else to standard error.
    """
    from .documents import open_session

    question = options.question_text(question)
    start = time.perf_counter()
    with open_session(document, model_options, attention_options, sampling_options) as session:
        open_s = time.perf_counter() - start
        if output == "text":
            with closing(session.stream(question)) as pieces:
                stream(pieces)
            return
        answer = session.ask(question)
    print_json(
        {
            "answer": answer.text,
            "attention": session.llama.attention,
            "chosen": session.llama.chosen,
            "budget": session.llama.budget if session.llama.composition.has_budget else 1.0,
            "timing": {
                "open_s": round(open_s, 3),
                "first_token_s": round(answer.timing.first_token_s, 3),
                "decode_tokens_per_s": round(answer.timing.decode_tokens_per_s, 2),
            },
            "read": {
                "share": round(answer.kv_share, 4),
                "covered": None if answer.covered is None else round(answer.covered, 4),
            },
        }
    )
