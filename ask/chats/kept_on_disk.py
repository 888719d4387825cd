"""Save conversations, and resume them: what a session inherits."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from ...errors import OctavoError
from ...prompts.conversation_tokens import ConversationTokens
from ...runtime.llama import Llama
from ...runtime.store.model_library import Library
from ..answer.answer import Answer
from .chat_file import Conversation, Kind, Origin, OtherText, read_conversation, read_header, write_conversation
from .history import History

#: Ending of the names of files with conversations.
SUFFIX = ".safetensors"


def chats_in(library: Path) -> Path:
    """Return the folder of the conversations of a library."""
    return library / "conversations"


class KeptOnDisk:
    """A conversation that can be saved, and that a saved one can replace."""

    llama: Llama
    library: Library | None
    prompt: ConversationTokens
    answer: Answer | None
    about: tuple[str, ...] = ()
    _history: History | None

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens in the context."""
        raise NotImplementedError

    def conversation(self) -> Conversation:
        """Return a copy of the questions and answers so far."""
        raise NotImplementedError

    def resume(self, conversation: Conversation) -> None:
        """Resume a conversation in place of this one."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget all questions and answers."""
        raise NotImplementedError

    @property
    def has_turns(self) -> bool:
        """Return whether there are questions and answers that the next question continues."""
        return bool(self.conversation().tokens or (self._history and self._history.messages))

    @property
    def _rows_return(self) -> bool:
        """Return whether the text before the conversation is there next time, so that its keys and values are valid."""
        return True

    def save(self, name: str, kind: Kind = "named") -> Path:
        """Save the conversation with its keys and values, so that `load` resumes it at once.

        Parameters
        ----------
        name : str
            A name, or the path of a file. A conversation of this name is replaced.
        kind : {"named", "chat", "question"}
            Who keeps it. Of a single question only the texts are kept.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        OctavoError
            The file cannot be written.
        """
        path, conversation = self._file(name), self.conversation()
        if kind == "question" or not self._rows_return:
            conversation = replace(conversation, rows=[], states=())
        origin = Origin(self.about, os.path.abspath(self.llama.model_path), kind)
        write_conversation(path, conversation, self._model_hash, self.llama.context.kv_type, origin)
        return path

    def load(self, name: str) -> bool:
        """Resume a saved conversation, in place of this one.

        If its documents have other texts by now, its questions and answers follow the new text.

        Parameters
        ----------
        name : str
            Its name, or the path of a file.

        Returns
        -------
        bool
            Whether the text is the same as then.

        Raises
        ------
        OctavoError
            The name is unknown, or the conversation was over another document or with another model.
        """
        path = self._file(name)
        conversation = read_conversation(path, self._model_hash, self.llama.context.kv_type)
        try:
            self.resume(conversation)
        except OtherText:
            documents, history = read_header(path).origin.documents, conversation.history
            if not documents or history is None or not self.prompt.has_template:
                raise
            if documents != self.about:
                names = ", ".join(documents) or "no document"
                raise OctavoError(f"This conversation was over another document: it is about {names}.") from None
            self.clear()
            self._history, self.answer = history.copy(), None
            return False
        return True

    def _file(self, name: str) -> Path:
        """Return the file of a conversation: beside the model's indexes, unless the name is a path."""
        if self.library is None or Path(name).name != name or Path(name).suffix:
            return Path(name)
        return chats_in(self.library.folder) / f"{name}{SUFFIX}"

    @property
    def _model_hash(self) -> str:
        library = self.library or Library.of(self.llama.model_path)
        return library.model_hash
