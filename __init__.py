"""octavo: chat with long documents on a laptop, on attention that reads only what matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import OctavoError
    from .runtime.llama import Llama

__version__ = "0.1.0"
__all__ = ["Llama", "OctavoError", "__version__"]


def __getattr__(name: str) -> Any:
    """Import llama.cpp and Numba when they are first used: `octavo --help` needs neither."""
    if name == "Llama":
        from .runtime.llama import Llama

        return Llama
    if name == "OctavoError":
        from .errors import OctavoError

        return OctavoError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
