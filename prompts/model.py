"""The model, as prompts know it."""

from __future__ import annotations

from typing import Any, Protocol

from .chat_template import ChatTemplate


class PromptModel(Protocol):
    """A model that turns texts into tokens and back, such as `octavo.Llama`.

    Attributes
    ----------
    chat_template : ChatTemplate or None
        None without a usable one.
    """

    _model: Any  # llama-cpp-python's, for the attributes of single tokens

    @property
    def chat_template(self) -> ChatTemplate | None: ...

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]: ...

    def piece(self, token: int, special: bool = False) -> bytes: ...
