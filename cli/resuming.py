"""Find the kept conversation that `ask` and `chat` continue, and open its documents with its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..settings import AnyPath, ModelSettings
from .render import notice

if TYPE_CHECKING:
    from ..ask.chats.saved_chats import SavedChat
    from ..ask.session import Session

#: Most columns of a question in a notice.
_SHOWN = 60


def chats_of(model: AnyPath | None, index_dir: AnyPath | None) -> list[SavedChat]:
    """Return the conversations with a model, in a folder of indexes, or all that this user has; the newest first."""
    from ..ask.chats.saved_chats import saved_chats
    from .options import library_folders

    return saved_chats(library_folders(_path(model), _path(index_dir)))


def named_chat(name: str, chats: Sequence[SavedChat]) -> SavedChat:
    """Return the conversation of a name, or of a number in the list of `octavo chats`."""
    found = [chat for chat in chats if chat.name == name]
    if not found and name.isdigit() and 0 < int(name) <= len(chats):
        found = [chats[int(name) - 1]]
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
    is_same = session.load(chat.name)
    notice(f"The last conversation continues{_described(chat.questions)}.")
    if not is_same and session.has_one_context:
        names = ", ".join(Path(name).name for name in session.about)
        notice(f"{names} has changed since: new answers come from the new text, and earlier ones stay as they are.")


def _described(questions: Sequence[str]) -> str:
    """Return the number of questions, and the last one; nothing for a file of an older version."""
    from .fitting import shortened

    if not questions:
        return ""
    last = shortened(" ".join(questions[-1].split()), _SHOWN)
    return f": {len(questions):,} question{'' if len(questions) == 1 else 's'}, the last one “{last}”"


def _path(path: AnyPath | None) -> Path | None:
    return None if path is None else Path(path)
