"""Keep in an index's folder what attending derives from its rows: thresholds, and extras. It can be made again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from ...errors import OctavoError
from ...system.files import DamagedError, map_arrays, private_copy, write_arrays
from ...system.locks import locked
from ..document.index import Calibration, Index, KeptExtras, ThresholdCurve
from .index_check import ImpossibleError, check_curve
from .manifest import EXTRAS, THRESHOLDS, describe, read_manifest, save_manifest

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Kept(dict[_Key, _Value], Generic[_Key, _Value]):
    """What is kept, by a key that a file's name has. What is added is also written to the folder, if possible.

    Parameters
    ----------
    names : sequence of str
        The index's undamaged files.
    prefix : str
        Beginning of the names of its files.
    """

    def __init__(self, folder: Path, names: Sequence[str], prefix: str) -> None:
        super().__init__()
        self._folder, self._prefix = folder, prefix
        self._names = [name for name in names if name.startswith(prefix)]

    def _files(self) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        """Yield the files' names without prefix and suffix, and their arrays. Leave out files that do not open."""
        for name in self._names:
            with suppress(DamagedError):
                yield name.removeprefix(self._prefix).split(".")[0], map_arrays(self._folder / name)

    def _write(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Add a file to the index."""
        path = self._folder / f"{self._prefix}{name}.safetensors"
        with suppress(OctavoError, OSError), locked(self._folder):
            # the disk may be full or read-only, or the index removed: it is then made again next time
            write_arrays(path, arrays)
            manifest = read_manifest(self._folder)
            manifest["files"][path.name] = describe(path)
            save_manifest(self._folder, manifest)


class Curves(_Kept[Calibration, ThresholdCurve]):
    """The measured thresholds of an index."""

    def __init__(self, folder: Path, index: Index, names: Sequence[str]) -> None:
        super().__init__(folder, names, THRESHOLDS)
        for name, arrays in self._files():
            with suppress(ImpossibleError, ValueError, TypeError):  # measured again instead
                threshold, queries, select, levels = name.split("-")
                check_curve(curve := ThresholdCurve(**{kind: private_copy(arrays[kind]) for kind in arrays}), index)
                super().__setitem__(Calibration(threshold, queries, select, int(levels)), curve)

    def __setitem__(self, calibration: Calibration, curve: ThresholdCurve) -> None:
        super().__setitem__(calibration, curve)
        self._write(str(calibration), {name: array for name, array in vars(curve).items() if array is not None})


class Extras(_Kept[str, KeptExtras]):
    """The extras that an index keeps, by the name that their method gives them."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        super().__init__(folder, names, EXTRAS)
        for key, arrays in self._files():
            kept: KeptExtras = {}
            with suppress(ValueError):  # derived again instead
                for name, array in arrays.items():
                    what, layer = name.split(".")
                    kept.setdefault(int(layer), {})[what] = array
                super().__setitem__(key, kept)

    def __setitem__(self, name: str, kept: KeptExtras) -> None:
        super().__setitem__(name, kept)
        self._write(name, {f"{what}.{layer}": array for layer, own in kept.items() for what, array in own.items()})
