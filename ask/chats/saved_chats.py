"""List the conversations that are kept in libraries, and keep the last ones: of each document, whole, and older texts.

A conversation is a file (chat_file.py). The last one about a document keeps its keys and values, so that it resumes
at once; older ones keep their texts, which are read again. Of single questions only the last one about a document is
kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ...documents.extract import STANDARD_INPUT
from ...errors import OctavoError
from ...runtime.store.model_library import folder_name
from ..session import Session
from .chat_file import Kind, Origin, read_conversation, read_header, write_conversation
from .history import Message
from .kept_on_disk import SUFFIX, chats_in


@dataclass(frozen=True)
class SavedChat:
    """A conversation on disk.

    Parameters
    ----------
    origin : Origin
        Its documents, its model, and who keeps it.
    messages : list of dict
        Its questions and answers.
    problem : str
        Why it cannot be read; "" if it can.
    """

    path: Path
    n_bytes: int
    saved: datetime
    origin: Origin
    messages: list[Message]
    problem: str = ""

    @property
    def name(self) -> str:
        """Return its name."""
        return self.path.stem

    @property
    def library(self) -> Path:
        """Return the folder of its model's library."""
        return self.path.parents[1]

    @property
    def questions(self) -> list[str]:
        """Return its questions."""
        return [message["content"] for message in self.messages if message["role"] == "user"]


def saved_chats(folders: Iterable[Path]) -> list[SavedChat]:
    """Return the conversations in the folders of some libraries, the newest first."""
    paths = [path for folder in folders for path in chats_in(folder).glob(f"*{SUFFIX}")]
    return sorted(map(_saved_chat, paths), key=lambda chat: chat.saved, reverse=True)


def _saved_chat(path: Path) -> SavedChat:
    status = path.stat()
    known = path, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC)
    try:
        header = read_header(path)
    except OctavoError as problem:
        return SavedChat(*known, Origin(), [], str(problem))
    return SavedChat(*known, header.origin, header.messages)


def newest(chats: Iterable[SavedChat], about: tuple[str, ...] = ()) -> SavedChat | None:
    """Return the newest conversation, or the newest one about these documents; None without one."""
    return next((chat for chat in chats if not chat.problem and about in ((), chat.origin.documents)), None)


def keep_chat(session: Session, name: str | None = None, kind: Kind = "chat") -> str | None:
    """Keep a conversation, if it can be continued. Return its name. What the user named stays so.

    Parameters
    ----------
    name : str, optional
        The name of the file to replace. By default a new one is chosen, from the document's; a single question replaces
        the last one about the same documents.
    kind : {"chat", "question"}
        Who keeps it: `chat`, or `ask`.

    Raises
    ------
    OctavoError
        The file cannot be written.
    """
    library, about = session.library, session.about
    if library is None or STANDARD_INPUT in about or not session.has_turns:
        return None
    chats = [chat for chat in saved_chats([library.folder]) if chat.origin.documents == about]
    alike = [chat for chat in chats if chat.origin.kind == kind]
    if name is None and kind == "question" and alike:
        name = alike[0].name
    if any(chat.name == name and chat.origin.kind == "named" for chat in chats):
        kind = "named"
    session.save(name := name or _new_name(library.folder, about), kind)
    if kind == "chat":
        for chat in alike:
            if chat.name != name:
                _keep_texts_only(chat)
    return name


def _new_name(folder: Path, about: tuple[str, ...]) -> str:
    """Return a name that is free."""
    stem = folder_name(about[0]).replace(".", "-") if about else "chat"
    taken = {path.stem for path in chats_in(folder).glob(f"*{SUFFIX}")}
    number = next(number for number in range(1, len(taken) + 2) if _numbered(stem, number) not in taken)
    return _numbered(stem, number)


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


def _keep_texts_only(chat: SavedChat) -> None:
    """Forget the keys and values of a conversation, if it has some. Its time of saving stays."""
    with suppress(OctavoError, OSError):
        header = read_header(chat.path)
        if header.n_rows:
            kept = read_conversation(chat.path, header.model, header.kv_type)
            write_conversation(
                chat.path, replace(kept, rows=[], states=()), header.model, header.kv_type, header.origin
            )
            os.utime(chat.path, (chat.saved.timestamp(),) * 2)
