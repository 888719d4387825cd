"""What prompts need to know of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from .chat_template import ChatTemplate
from .prompt import Prompt


class PromptModel(Protocol):
    """A model that makes tokens of texts, such as `octavo.Llama`."""

    @property
    def chat_template(self) -> ChatTemplate | None: ...

    def prompt(self, has_document: bool, system: str = "", options: Mapping[str, Any] | None = None) -> Prompt: ...

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]: ...

    def detokenize(self, tokens: list[int], prev_tokens: list[int] | None = None, special: bool = False) -> bytes: ...

    def piece(self, token: int) -> bytes: ...
