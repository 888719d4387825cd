"""octavo for llm: the model `octavo`, and fragments `octavo:PATH` of documents of any kind that octavo reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llm


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Register the model, which loads nothing before its first prompt."""
    from .octavo_model import AsyncOctavo, Octavo

    register(Octavo(), AsyncOctavo())


@llm.hookimpl
def register_fragment_loaders(register: Callable[[str, Callable[[str], Any]], None]) -> None:
    """Register the loader of the texts of documents."""
    register("octavo", load_document)


def load_document(argument: str) -> llm.Fragment:
    """Load the text of a PDF, EPUB, Office file, mail or any other document that octavo reads: octavo:report.pdf"""
    from .document_files import load

    return load(argument)
