"""Show answers, as text or JSON, with notices about them and their sources."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .fitting import columns_of, shortened, wrapped
from .render import ThoughtPrinter, as_json, is_quiet, notice, print_json, signs_of_life, stream
from .sampling import SHOW

if TYPE_CHECKING:
    from ..ask.answer.answer import ContextShare
    from ..ask.session import Session
    from ..ask.sources.find_sources import Passage
    from ..prompts.thought_splitter import Part

TEXT, JSON, JSON_LINES = "text", "json", "jsonl"

#: Options that change a limit, by the kind of a notice that names the limit (ask/answer/notices.py).
_OPTIONS = {
    "thought_cut": ": --think-budget sets the limit.",
    "length": ": -n sets the limit, -1 is none.",
    "context": ". -c gives a larger one.",
}

#: Most documents that are named below an answer, and fewest columns of a name.
_NAMED, _LEAST_OF_NAME = 3, 12

#: Printed for an answer that has no source, which does not mean that it is wrong.
NONE = "No passage stands out: check this answer."

#: Columns at which a quote wraps if the terminal is wider, and its indentation.
_WIDEST, _INDENT = 100, "   "


def sources_option(command: Any) -> Any:
    """Declare --sources."""
    return click.option("--sources", is_flag=True, help="List the passages of the document that an answer comes from.")(
        command
    )


def show_answer(
    session: Session,
    parts: Generator[Part, None, None],
    output: str,
    facts: dict[str, Any],
    sources: bool = False,
    think: str | None = None,
) -> None:
    """Print an answer as it comes, with a notice if it was cut. Thoughts go to stderr.

    Parameters
    ----------
    parts : generator of Part
        The answer, as `Session.stream_parts` yields it.
    output : str
        TEXT prints the parts as they come; JSON one object at the end; JSON_LINES an object a line: each part, and
        then the object of JSON.
    facts : dict
        Further entries of the object.
    sources : bool
        Whether to show the answer's sources. The session must record attention to a document, and the parts have marks.
    think : str, optional
        SHOW prints thoughts, as by default on a terminal; other values leave them out.
    """
    with closing(parts):
        if output == TEXT:
            shows = think == SHOW or (think is None and sys.stderr.isatty())
            with signs_of_life("Reading the question") as alive:
                stream(_with_thoughts(alive(parts)) if shows else alive(_answer_texts(parts)))
        else:
            for part in parts:
                if output == JSON_LINES and part.text:
                    print_line({"reasoning" if part.is_thought else "piece": part.text})
    if output == TEXT:
        say_notices(session)
        say_which(session)
        say_if_small(session)
        if sources:
            click.echo()
            show_sources(session, err=False)
        else:
            _show_passages_for_question(session)
        return
    facts = {**facts, **documents_as_json(session)}
    if sources:
        facts = {**facts, "sources": sources_as_json(session)}
    if output == JSON:
        print_json(answer_as_json(session, facts))
    else:
        print_line(answer_as_json(session, facts))


def _answer_texts(parts: Iterable[Part]) -> Iterator[str]:
    return (_with_marks(part) for part in parts if not part.is_thought and (part.text or part.marks))


def _with_marks(part: Part) -> str:
    """Return a part's text, and the numbers of the sources of the sentence that it ends."""
    return "".join([part.text, *(f" [{number}]" for number in part.marks or ())])


def _with_thoughts(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the texts of an answer, and print its thoughts before them."""
    printer = ThoughtPrinter()
    try:
        for part in parts:
            if part.is_thought:
                printer.add(part.text)
            elif part.text or part.marks:
                printer.end()
                yield _with_marks(part)
    finally:
        printer.end()


def say_if_no_switch(session: Session) -> None:
    """Print a notice if thinking should be off, and the model's template cannot turn it off."""
    from ..prompts.thought_form import NO_SWITCH

    if session.thinking.has_no_switch:
        notice(f"Note: {NO_SWITCH}")


def say_notices(session: Session) -> None:
    """Print what a user should know about the last answer, and which options change it."""
    assert session.answer is not None
    for kind, sentence in session.answer.notices.items():
        notice(f"({sentence.removesuffix('.')}{_OPTIONS.get(kind, '.')})")


def say_if_small(session: Session) -> None:
    """Print once, below the first answer of the default model, that it is small, and how to get a better one."""
    from ..runtime.models.find_model import BETTER, BETTER_SIZE, is_default
    from ..settings import state_folder

    if is_quiet() or not is_default(session.llama.model_path):
        return
    mark = state_folder() / "small_model_noted"
    try:
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    except OSError:
        pass  # the folder cannot be written: print it each time
    notice(f"(This model is small, to try octavo with. -hf {BETTER} fetches a better one, {BETTER_SIZE}.)")


def say_which(session: Session) -> None:
    """Print in a line what the last answer was given from, unless that is the only document, whole."""
    if not session.found:
        return
    basis = session.answer.read if session.answer else None
    assert basis is not None
    columns, names = columns_of(sys.stderr), _names_of(session, basis)
    lines = [_which(session, basis, _listed(names, n)) for n in range(min(_NAMED, len(names)), 0, -1)]
    line = next((line for line in lines if columns is None or len(line) <= columns), lines[-1])
    if columns and len(line) > columns:  # the names are long
        first = shortened(names[0], max(columns - len(line) + len(names[0]), _LEAST_OF_NAME))
        line = _which(session, basis, _listed([first, *names[1:]], 1))
    notice(line)


def _names_of(session: Session, basis: ContextShare) -> list[str]:
    """Return the documents of an answer as `octavo list` shows them, of excerpts without the parts, each once."""
    from ..library.document_parts import without_part

    names = session.names.values()
    is_of_many = basis.n_passages or basis.kind == "findings"
    return list(dict.fromkeys(map(without_part, names) if is_of_many else names))


def _listed(names: Sequence[str], n: int) -> str:
    """Return the first n names, and how many more there are."""
    more = [f"{len(names) - n:,} more"] if len(names) > n else []
    *first, last = [*names[:n], *more]
    return f"{', '.join(first)} and {last}" if first else last


def _which(session: Session, basis: ContextShare, names: str) -> str:
    """Return what an answer was given from, and how to have the rest read."""
    if basis.kind == "findings":
        how_much, rest = "all", ""
        if basis.share < 1:
            how_much, rest = f"{basis.share:.0%}", "; asked again, the question goes to the rest"
        return f"(From the answers of {how_much} of {names}{rest}.)"
    if basis.n_passages:
        passages = f"{basis.n_passages} passage{'s' if basis.n_passages > 1 else ''}"
        read = f"the part that was read and {passages}" if basis.is_begun else passages
        read += f" of {names}" if basis.share == 1 else f", {basis.share:.1%} of {names}"
    else:
        read = f"the {basis.share:.0%} of {names} that are read" if basis.is_begun else names
    if session.needs_whole:
        is_part = basis.kind == "part" and not basis.is_begun
        how = "the question may be about all of it" if is_part else "about all of it? Use --read document"
        return f"(From {read}; {how}.)"
    if basis.share < 1 and session.rest != "indexed":
        read += "; the rest is being read" if session.rest == "being read" else "; `octavo index` reads the rest"
    return f"(From {read}.)"


def show_sources(session: Session, err: bool) -> None:
    """Print the sources of the last answer, on stderr with `err`; on a terminal the quotes stand out."""
    found = session.sources()
    if not found:
        click.echo(NONE, err=err)
    _show_passages(found, session.names, err)


def _show_passages_for_question(session: Session) -> None:
    """Print the passages that share words with the question below an answer that was stopped: these may answer it."""
    assert session.answer is not None
    if session.answer.finish_reason != "loop" or is_quiet() or not (found := session.passages_for_question()):
        return
    notice("These passages have words of the question:")
    _show_passages(found, session.names, err=True)


def _show_passages(found: Sequence[Passage], names: Mapping[str, str], err: bool) -> None:
    columns = columns_of(sys.stderr if err else sys.stdout)
    width = min(columns or _WIDEST, _WIDEST)
    for number, passage in enumerate(found, 1):
        how = "by its words" if passage.by == "words" else f"{passage.share:.0%} of the attention"
        header = f"{number}. {_place(passage, names)} ({how})"
        click.echo(wrapped(header, columns and width, _INDENT), err=err)
        quote = f"{_INDENT}{' '.join(passage.quote.split())}"
        click.secho(wrapped(quote, width, _INDENT), err=err, fg="yellow")


def _place(passage: Passage, names: Mapping[str, str]) -> str:
    page = f"page {passage.page}" if passage.page else ""
    name = names.get(passage.document, Path(passage.document).name) if passage.document else ""
    return ", ".join(filter(None, (name, page, passage.heading, f"line {passage.line:,}")))


def sources_as_json(session: Session) -> list[dict[str, Any]]:
    """Return the sources of the last answer for programs."""
    return [passage.as_json() for passage in session.sources()]


def documents_as_json(session: Session) -> dict[str, Any]:
    """Return the documents of the last answer, and other candidates for the question; of several documents only."""
    if not session.found:
        return {}
    found = [{"path": str(candidate.document.path), "share": round(candidate.share, 4)} for candidate in session.found]
    names = list(map(str, session.read_from))
    described: dict[str, Any] = {"document": names[0], "read_from": names, "documents": found}
    if session.answer is not None and (basis := session.answer.read) is not None:
        described["basis"] = {**basis.as_json(), "rest": session.rest}
    if session.findings:
        described["findings"] = [finding.as_json() for finding in session.findings]
    return described


def answer_as_json(session: Session, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the last answer, with its tokens and seconds, and further entries, for programs."""
    answer, llama = session.answer, session.llama
    assert answer is not None
    timing = answer.timing
    return {
        "answer": answer.text,
        "reasoning": answer.reasoning,
        "finish_reason": answer.finish_reason,
        **facts,
        "tokens": {
            "document": session.n_document,
            "question": timing.prompt_tokens,
            "thought": timing.thought_tokens,
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
        "drafts": {"drafted": timing.drafted_tokens, "accepted": timing.accepted_tokens},
        "read": {
            "share": round(answer.kv_share, 4),
            "covered": None if answer.covered is None else round(answer.covered, 4),
        },
        "unfounded": list(answer.unfounded),
        "notices": list(answer.notices.values()),
    }


def print_line(value: dict[str, Any]) -> None:
    """Print an object as one line of JSON."""
    click.echo(as_json(value))
