"""octavo: chat with long documents on a laptop, on attention that reads only what matters.

>>> import octavo
>>> with octavo.open_document("report.txt", model="model.gguf") as document:
...     answer = document.ask("What did the auditors object to?")
...     print(answer.text)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .api import Collection, Document, open_document, open_documents, open_next, open_session
    from .ask.answer.answer import Answer, Timing
    from .ask.session import Session
    from .ask.sources.find_sources import Passage
    from .errors import OctavoError
    from .library.batch.index_documents import index_documents
    from .library.batch.index_result import NotIndexed
    from .progress import Progress, ShownProgress
    from .runtime.llama import Llama
    from .runtime.methods.attention import Attention
    from .settings import ModelSettings, ReadSettings, Sampling

__all__ = [
    "Answer",
    "Attention",
    "Collection",
    "Document",
    "Llama",
    "ModelSettings",
    "NotIndexed",
    "OctavoError",
    "Passage",
    "Progress",
    "ReadSettings",
    "Sampling",
    "Session",
    "ShownProgress",
    "Timing",
    "__version__",
    "index_documents",
    "open_document",
    "open_documents",
    "open_next",
    "open_session",
]

#: The module of each name. Importing it takes llama.cpp and Numba, which `octavo --help` does without.
_MODULES = {
    **dict.fromkeys(("open_document", "open_documents", "open_next", "open_session"), ".api"),
    **dict.fromkeys(("Collection", "Document"), ".api"),
    "index_documents": ".library.batch.index_documents",
    "NotIndexed": ".library.batch.index_result",
    **dict.fromkeys(("Answer", "Timing"), ".ask.answer.answer"),
    "Session": ".ask.session",
    **dict.fromkeys(("ModelSettings", "ReadSettings", "Sampling"), ".settings"),
    "Passage": ".ask.sources.find_sources",
    "Attention": ".runtime.methods.attention",
    "Llama": ".runtime.llama",
    "OctavoError": ".errors",
    **dict.fromkeys(("Progress", "ShownProgress"), ".progress"),
}


def __dir__() -> list[str]:
    """List the public names, imported or not yet: for `dir`, `help` and completion."""
    return [*__all__, *(name for name in globals() if name.startswith("__") and name not in __all__)]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
