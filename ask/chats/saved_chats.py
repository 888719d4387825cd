"""List the conversations that are kept in libraries, and keep the last ones: of each document, whole, and older texts.

A conversation is a file (chat_file.py). The last one about a document keeps its keys and values, so that it resumes
at once; older ones keep their texts, which are read again. Of single questions only the last one about a document is
kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ...convert.identity import RowSource
from ...errors import OctavoError
from ...runtime.llama import Llama
from ...runtime.store.model_library import Library, folder_name
from ...system.files import FileVersion
from .chat_file import Conversation, Kind, Origin, read_conversation, read_header, write_conversation
from .history import Message

#: Ending of the names of files with conversations.
_SUFFIX = ".safetensors"

#: Most characters of a name that a question gives.
_LONGEST_NAME = 40


def chats_in(library: Path) -> Path:
    """Return the folder of the conversations of a library."""
    return library / "conversations"


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
    read : sequence of FileVersion
        The files that its answers came from, as they were then.
    """

    path: Path
    n_bytes: int
    saved: datetime
    origin: Origin
    messages: list[Message]
    problem: str = ""
    read: Sequence[FileVersion] = ()

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def library(self) -> Path:
        """Return the folder of its model's library."""
        return self.path.parents[1]

    @property
    def questions(self) -> list[str]:
        return [message["content"] for message in self.messages if message["role"] == "user"]


def saved_chats(folders: Iterable[Path]) -> list[SavedChat]:
    """Return the conversations in the folders of some libraries, the newest first."""
    paths = [path for folder in folders for path in chats_in(folder).glob(f"*{_SUFFIX}")]
    return sorted(filter(None, map(_saved_chat, paths)), key=lambda chat: chat.saved, reverse=True)


def _saved_chat(path: Path) -> SavedChat | None:
    """Return the conversation in a file; None if another process removes it meanwhile."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    known = path, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC)
    try:
        header = read_header(path)
    except OctavoError as problem:
        return SavedChat(*known, Origin(), [], str(problem))
    return SavedChat(*known, header.origin, header.messages, read=header.read)


def newest(chats: Iterable[SavedChat], about: tuple[str, ...] = ()) -> SavedChat | None:
    """Return the newest conversation, or the newest one about these documents; None without one."""
    return next((chat for chat in chats if not chat.problem and about in ((), chat.origin.documents)), None)


class ChatFiles:
    """The files of conversations with a model.

    Parameters
    ----------
    library : Library or None
        The model's indexes, beside which conversations are kept; None keeps them where their names say.
    """

    def __init__(self, llama: Llama, library: Library | None) -> None:
        self._llama, self._library = llama, library

    def save(self, name: str, conversation: Conversation, about: tuple[str, ...], kind: Kind) -> Path:
        """Write a conversation about some documents, and return its file. Raise OctavoError if that fails."""
        path, origin = self._path(name), Origin(about, os.path.abspath(self._llama.model_path), kind)
        write_conversation(path, self._usable(conversation), self._source, origin)
        return path

    def keep(self, conversation: Conversation, about: tuple[str, ...], name: str | None, kind: Kind) -> str:
        """Write a conversation as the last one about its documents, and return its name.

        Parameters
        ----------
        name : str, optional
            Its name, if it has one. A single question takes that of the last one.
        kind : {"chat", "question"}
            Who keeps it. What the user named stays so.
        """
        assert self._library is not None
        folder = self._library.folder
        chats = [chat for chat in saved_chats([folder]) if chat.origin.documents == about]
        if name is None and kind == "question":
            name = next((chat.name for chat in chats if chat.origin.kind == kind), None)
        if any(chat.name == name and chat.origin.kind == "named" for chat in chats):
            kind = "named"
        name = name or _new_name(folder, about, conversation)
        self.save(name, conversation, about, kind)
        if kind == "chat":
            for chat in chats:
                if chat.origin.kind == "chat" and chat.name != name:
                    _keep_texts_only(chat)
        return name

    def load(self, name: str) -> tuple[Conversation, tuple[str, ...] | None]:
        """Return a conversation, and the documents that it is about. Raise OctavoError if it cannot be read."""
        path = self._path(name)
        conversation = read_conversation(path, self._source)
        return self._usable(conversation), read_header(path).origin.documents

    def _usable(self, conversation: Conversation) -> Conversation:
        """Return a conversation, without rows if the model's file was replaced: nothing says what made them."""
        is_replaced = self._llama.files.have_changed(or_lost=True)
        return replace(conversation, rows=[], states=()) if is_replaced else conversation

    def _path(self, name: str) -> Path:
        """Return the file of a conversation: beside the model's indexes, unless the name is a path."""
        if self._library is None or Path(name).name != name or Path(name).suffix:
            return Path(name)
        return chats_in(self._library.folder) / f"{name}{_SUFFIX}"

    @property
    def _source(self) -> RowSource:
        return RowSource.of(self._llama, self._library or Library.of(self._llama.model_path))


def _new_name(folder: Path, about: tuple[str, ...], conversation: Conversation) -> str:
    """Return a name that is free: the first document's, or the words of the first question, with a number if taken."""
    stem = folder_name(about[0]).replace(".", "-") if about else _words_of(conversation)
    taken = {path.stem for path in chats_in(folder).glob(f"*{_SUFFIX}")}
    number = next(number for number in range(1, len(taken) + 2) if _numbered(stem, number) not in taken)
    return _numbered(stem, number)


def _words_of(conversation: Conversation) -> str:
    """Return the first words of a conversation as a name; "chat" if they have no letter."""
    said = conversation.history.messages if conversation.history is not None else []
    words = re.findall(r"\w+", said[0]["content"].lower()) if said else []
    name = words[0][:_LONGEST_NAME] if words else ""
    for word in words[1:]:
        if len(name) + len(word) >= _LONGEST_NAME:
            break
        name += f"-{word}"
    return name if any(map(str.isalpha, name)) else "chat"


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


def _keep_texts_only(chat: SavedChat) -> None:
    """Forget the keys and values of a conversation, if it has some. Its time of saving stays."""
    with suppress(OctavoError, OSError):
        header = read_header(chat.path)
        if header.n_rows:
            kept = read_conversation(chat.path, header.source)
            write_conversation(chat.path, replace(kept, rows=[], states=(), steps=()), header.source, header.origin)
            os.utime(chat.path, (chat.saved.timestamp(),) * 2)
