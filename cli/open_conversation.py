"""Open a conversation, or one that is kept, with its documents and its model: shared by `ask` and `chat`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..settings import (
    BY_QUESTION,
    READS,
    WHOLE_BY_QUESTION,
    WHOLES,
    AnyPath,
    Extraction,
    ModelSettings,
    ReadSettings,
    Sampling,
)
from . import options
from .batch_progress import ManyProgress, ShownNotices
from .fitting import shortened
from .option_types import Seconds
from .render import TaskProgress, is_quiet, notice, resumable, spinning

if TYPE_CHECKING:
    from ..ask.chats.saved_chats import SavedChat
    from ..ask.session import Session
    from ..runtime.methods.attention import Attention

#: Most columns of a question in a notice.
_SHOWN = 60


def _reading(
    read: str,
    whole: str,
    first_answer: float,
    background: bool,
    n_jobs: int,
    prefill: str,
    state_every: int,
    extraction: Extraction,
) -> ReadSettings:
    """Gather the options of these names."""
    if read != BY_QUESTION and options.is_on_command_line("first_answer"):
        raise click.UsageError(f"--first-answer goes with --read {BY_QUESTION}: leave one of them out.")
    return ReadSettings(
        read=read,
        whole=whole,
        first_answer=first_answer if read == BY_QUESTION else None,
        background=background,
        n_jobs=n_jobs,
        prefill=prefill,
        state_every=state_every,
        password=extraction.password,
        encoding=extraction.encoding,
        ocr=extraction.ocr,
        ocr_languages=extraction.ocr_languages,
    )


#: Add all options about reading, as one `reading`.
reading_options = options.gathered(
    "reading",
    _reading,
    options.option(
        "--read",
        env="READ",
        type=click.Choice(READS),
        default=BY_QUESTION,
        show_default=True,
        help="What answers come from: a whole document, or excerpts, found by search, so that nothing is read first. "
        "auto: one document is used whole; of several, excerpts, or the best document if the question asks for a "
        "summary. Until indexing is done (see --first-answer), passages found by words are used.",
    ),
    options.option(
        "--whole",
        env="WHOLE",
        type=click.Choice(WHOLES),
        default=WHOLE_BY_QUESTION,
        show_default=True,
        help="Whether the question is put to all parts of a long document, or to all documents, and one answer made "
        "of theirs. auto: if it is about all, such as a summary or a list, and takes 10 minutes at most.",
    ),
    options.option(
        "--first-answer",
        env="FIRST_ANSWER",
        type=Seconds(),
        default="60s",
        show_default=True,
        help="How long an answer may wait for documents to be read.",
    ),
    options.option(
        "--background/--no-background",
        env="BACKGROUND",
        default=True,
        show_default=True,
        help="Whether documents that cannot be read in time are read in the background: see octavo list, octavo stop.",
    ),
    options.jobs,
    options.extraction_options,
    options.prefill,
    options.state_every,
)


def is_collection(documents: Sequence[str]) -> bool:
    """Return whether arguments name several documents, as a folder or a pattern does."""
    from ..library.expand_paths import names_many

    return len(documents) > 1 or any(map(names_many, documents))


def _opening(documents: Sequence[str]) -> AbstractContextManager[Any]:
    from ..documents.document import document_name

    what = document_name(documents[0]) if len(documents) == 1 else f"{len(documents)} documents"
    return spinning(f"Opening {what}")


def open_session(
    documents: Sequence[str],
    settings: ModelSettings,
    attention: Attention,
    sampling: Sampling,
    *,
    reading: ReadSettings,
    sources: bool,
    system_prompt: str,
) -> Session:
    """Open a conversation over a document, over several, or without one.

    With `sources`, documents record where answers come from.
    """
    from .. import api

    if not documents:
        with spinning("Loading the model"):
            return api.open_session(
                settings, attention=attention, sampling=sampling, system_prompt=system_prompt, progress=TaskProgress()
            )
    is_many, asking = is_collection(documents), api.Asking(sampling, reading, system_prompt, sources)
    shown = ShownNotices(documents) if is_many else None
    with resumable(), _opening(documents), ManyProgress(shown) as progress:
        opening = api.Opening(documents, asking, progress, is_one=not is_many)
        session = api.load_and_open(opening, settings, attention, progress.notice)
    if shown is not None and not is_quiet():
        shown.keep()
    return session


def open_next(session: Session, documents: Sequence[str], reading: ReadSettings, sources: bool) -> Session:
    """Open other documents with the model of a conversation."""
    from .. import api

    with resumable(), _opening(documents), ManyProgress() as progress:
        return api.open_next(session, *documents, reading=reading, sources=sources, progress=progress)


def chats_of(model: AnyPath | None, index_dir: AnyPath | None) -> list[SavedChat]:
    """Return the conversations with a model, in a folder of indexes, or all that this user has; the newest first."""
    from ..ask.chats.saved_chats import saved_chats

    return saved_chats(options.library_folders(_path(model), _path(index_dir)))


def listed_chats(chats: Sequence[SavedChat]) -> list[SavedChat]:
    """Return the conversations that `octavo chats` lists: all but single questions of `octavo ask`."""
    return [chat for chat in chats if chat.origin.kind != "question"]


def named_chat(name: str, chats: Sequence[SavedChat]) -> SavedChat:
    """Return the conversation of a name, or of a number in the list of `octavo chats`."""
    found = [chat for chat in chats if chat.name == name]
    if not found and name.isdigit() and 0 < int(name) <= len(listed := listed_chats(chats)):
        found = [listed[int(name) - 1]]
    if not found:
        raise click.UsageError(f"There is no chat {name}: `octavo chats` lists them.")
    if len(found) > 1:
        raise click.UsageError(f"{len(found)} chats have the name {name}: give its number in `octavo chats`.")
    if found[0].problem:
        raise click.UsageError(found[0].problem)
    return found[0]


def last_chat(documents: Sequence[str], settings: ModelSettings) -> SavedChat:
    """Return the newest conversation about some documents, or the newest of all without documents."""
    from ..ask.chats.saved_chats import newest
    from ..library.expand_paths import absolute

    chat = newest(chats_of(settings.model, settings.index_dir), absolute(documents))
    if chat is None:
        about = f" about {', '.join(documents)}" if documents else ""
        raise click.UsageError(f"There is no conversation{about} yet: leave --continue out.")
    return chat


def with_model_of(chat: SavedChat, settings: ModelSettings) -> ModelSettings:
    """Return settings with the model of a conversation, unless they name one."""
    from ..runtime.store.model_library import Library

    model = settings.model or chat.origin.model_path or None
    if model is None:
        return settings
    is_elsewhere = Library.of(model, settings.index_dir).folder != chat.library
    return replace(settings, model=model, index_dir=chat.library.parent if is_elsewhere else settings.index_dir)


def documents_of_chat(chat: SavedChat) -> tuple[str, ...]:
    """Return the documents of a conversation."""
    if chat.origin.documents is None:
        raise click.UsageError(f"An older octavo saved {chat.name}, without the name of its document: give that, too.")
    return chat.origin.documents


def resume_chat(session: Session, chat: SavedChat) -> None:
    """Resume a conversation, and say so."""
    from ..library.source_text import CHANGED, GONE, state_of_version

    is_same = session.load(chat.name)
    notice(f"The last conversation continues{_described(chat.questions)}.")
    if session.has_one_context:
        states = {} if is_same else dict.fromkeys(session.about, CHANGED)
    else:  # its context may be another one although no file has changed
        states = {version.path: state_of_version(version) for version in chat.read}
    changed, gone = ([Path(path).name for path, each in states.items() if each == state] for state in (CHANGED, GONE))
    if changed:
        have = f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} changed since"
        notice(f"{have}: new answers come from the new text, and earlier ones stay as they are.")
    if gone:
        are = f"{', '.join(gone)} {'is' if len(gone) == 1 else 'are'} gone, or cannot be reached"
        notice(f"{are}: earlier answers stay as they are.")


def _described(questions: Sequence[str]) -> str:
    """Return the number of questions, and the last one; nothing for a file of an older version."""
    if not questions:
        return ""
    last = shortened(" ".join(questions[-1].split()), _SHOWN)
    return f": {len(questions):,} question{'' if len(questions) == 1 else 's'}, the last one “{last}”"


def _path(path: AnyPath | None) -> Path | None:
    return None if path is None else Path(path)
