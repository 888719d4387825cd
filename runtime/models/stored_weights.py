"""Find weights as they are stored in the files of a model."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ...errors import OctavoError
from .gguf_header import check_gguf
from .hub import files_of

#: The files of each model of llama-cpp-python. Its tensors hold their addresses, for all of its contexts.
_of_models = WeakKeyDictionary[Any, "StoredWeights"]()


class StoredWeights:
    """The files of a model, mapped into memory when they are first needed.

    Parameters
    ----------
    file : str
        The file, or the first one of a model that is split.
    """

    def __init__(self, file: str) -> None:
        self._file = file

    @classmethod
    def of(cls, model: Any) -> StoredWeights:
        """Return the files of a model of llama-cpp-python, mapped as long as it lives."""
        return _of_models.setdefault(model, cls(model.path_model))

    def address(self, name: bytes) -> int:
        """Return the address of the weights of a name; 0 if no file holds them."""
        content, place = self._places.get(name.decode(errors="replace"), (None, 0))
        return 0 if content is None else content.ctypes.data + place

    @cached_property
    def _places(self) -> dict[str, tuple[np.ndarray, int]]:
        """The mapped file of each tensor, and its place there."""
        places: dict[str, tuple[np.ndarray, int]] = {}
        for path in map(Path, files_of(self._file)):
            with suppress(OctavoError, OSError):  # llama.cpp has read the file: it reports damage, and multiplies
                content = np.memmap(path, np.uint8, "r")
                places |= {name: (content, tensor.place) for name, tensor in check_gguf(path).items()}
        return places
