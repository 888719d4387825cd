"""Show answers, as text or JSON, with the reason why one was cut."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from .render import notice, print_json, signs_of_life, stream
from .show_sources import show_sources, sources_as_json

if TYPE_CHECKING:
    from ..ask.session import Session

TEXT, JSON, JSON_LINES = "text", "json", "jsonl"


def show_answer(
    session: Session, pieces: Generator[str, None, None], output: str, facts: dict[str, Any], sources: bool = False
) -> None:
    """Print an answer as it comes, with a notice if it was cut.

    Parameters
    ----------
    pieces : generator of str
        The answer, as `Session.stream` yields it.
    output : str
        TEXT prints the pieces as they come; JSON one object at the end; JSON_LINES an object a line: each piece, and
        then the object of JSON.
    facts : dict
        Further entries of the object.
    sources : bool
        Whether to show the answer's sources. The session must record attention to a document.
    """
    with closing(pieces):
        if output == TEXT:
            with signs_of_life("Reading the question") as alive:
                stream(alive(pieces))
        else:
            for piece in pieces:
                if output == JSON_LINES and piece:
                    print_line({"piece": piece})
    if output == TEXT:
        say_if_cut(session)
        say_which(session)
        if sources:
            click.echo()
            show_sources(session, err=False)
        return
    facts = {**facts, **documents_as_json(session)}
    if sources:
        facts = {**facts, "sources": sources_as_json(session)}
    if output == JSON:
        print_json(answer_as_json(session, facts))
    else:
        print_line(answer_as_json(session, facts))


def say_if_cut(session: Session) -> None:
    """Print a notice if the last answer ended before the model ended it."""
    answer = session.answer
    assert answer is not None
    if answer.finish_reason == "length":
        notice(f"(The answer was cut after {answer.timing.answer_tokens:,} tokens: -n sets the limit, -1 is none.)")
    elif answer.finish_reason == "context":
        notice(f"(The answer was cut: the context of {session.n_ctx:,} tokens is full. -c gives a larger one.)")


def say_which(session: Session) -> None:
    """Print the documents of the last answer, if there are several."""
    if names := documents_as_json(session).get("read_from"):
        notice(f"(From {', '.join(names)}.)")


def documents_as_json(session: Session) -> dict[str, Any]:
    """Return the documents of the last answer, and other candidates for the question; of several documents only."""
    from ..ask.collection import Collection

    if not isinstance(session, Collection) or not session.found:
        return {}
    found = [{"path": str(candidate.document.path), "share": round(candidate.share, 4)} for candidate in session.found]
    names = list(map(str, session.read_from))
    return {"document": names[0], "read_from": names, "documents": found}


def answer_as_json(session: Session, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the last answer, with its tokens and seconds, and further entries, for programs."""
    answer, llama = session.answer, session.llama
    assert answer is not None
    timing = answer.timing
    return {
        "answer": answer.text,
        "finish_reason": answer.finish_reason,
        **facts,
        "tokens": {
            "document": session.n_document,
            "question": timing.prompt_tokens,
            "answer": timing.answer_tokens,
            "context": session.n_tokens,
        },
        "attention": str(llama.attention),
        "chosen": str(llama.resolved_attention),
        "budget": llama.attention.budget if llama.attention.has_budget else 1.0,
        "timing": {
            "first_token_s": round(timing.first_token_s, 3),
            "decode_tokens_per_s": round(timing.decode_tokens_per_s, 2),
        },
        "read": {
            "share": round(answer.kv_share, 4),
            "covered": None if answer.covered is None else round(answer.covered, 4),
        },
    }


def print_line(value: dict[str, Any]) -> None:
    """Print an object as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False))
