"""How fast a model reads documents on this machine, from what it has read before."""

from __future__ import annotations

from contextlib import suppress
from itertools import cycle, islice
from typing import Any

from ..cpu_kernels.numba_support.machine import cpu_name
from ..errors import OctavoError
from ..runtime.llama import Llama
from ..runtime.methods.attention import DENSE_ATTENTION
from ..runtime.store.model_library import Library
from ..system.files import make_private, read_json, write_json
from ..system.working_time import working_time

#: File of a library with the tokens that the model reads in a second, by machine.
_FILE = "reading-speed.json"

#: Tokens of each of two first measurements, and of the batch before them that loads the kernels; fewest of a reading.
_FIRST, _LEAST = 64, 256

#: Change of the speed that is kept, and the ratio up to which two measurements agree.
_CHANGE, _AGREE = 1.1, 1.3


class ReadingSpeed:
    """How fast a model reads documents on this machine."""

    def __init__(self, llama: Llama, library: Library) -> None:
        self._llama, self._path = llama, library.folder / _FILE
        shape = f"{llama.context_params.n_threads} threads, {llama.context.kv_type}"
        self._key = f"{cpu_name()}, {shape}, {llama.context.device.name}"

    @property
    def known(self) -> float:
        """Return the tokens that the model reads in a second, as last measured; 0 if it has read nothing yet."""
        return (self._measured() or [0.0])[-1]

    @property
    def certain(self) -> float:
        """Return the tokens that the model reads in a second; 0 unless the last two measurements agree."""
        measured = self._measured()
        return sum(measured) / 2 if len(measured) == 2 and max(measured) <= _AGREE * min(measured) else 0.0

    def tokens_per_s(self, text: str) -> float:
        """Return the tokens that the model reads in a second. The first time, it reads the beginning of a text."""
        if known := self.known:
            return known
        llama = self._llama
        n_tokens = min(3 * _FIRST, llama.n_ctx() // 2)
        tokens = list(islice(cycle(llama.prompt().document(text[: 24 * _FIRST])), n_tokens))
        third = n_tokens // 3
        with llama.attending(DENSE_ATTENTION):
            llama.prefill(tokens[:third])
            for start in (third, 2 * third):
                began = working_time()
                llama.prefill(tokens[start : start + third])
                self._keep(third / (working_time() - began))
        return self.known

    def note(self, n_tokens: int, seconds: float) -> None:
        """Keep what a reading took, if it was long enough to tell."""
        speed = n_tokens / seconds
        if n_tokens >= _LEAST and not (self.known / _CHANGE < speed < self.known * _CHANGE and self.certain):
            self._keep(speed)

    def _kept(self) -> dict[str, Any]:
        with suppress(OctavoError, OSError):
            return read_json(self._path)
        return {}

    def _measured(self) -> list[float]:
        """Return the last two measurements; of an older octavo one."""
        kept = self._kept().get(self._key)
        speeds = kept if isinstance(kept, list) else [kept]
        return [float(speed) for speed in speeds if isinstance(speed, int | float) and speed > 0]

    def _keep(self, speed: float) -> None:
        with suppress(OctavoError, OSError):  # it is measured again
            make_private(self._path.parent)
            write_json(self._path, {**self._kept(), self._key: [*self._measured(), round(speed, 1)][-2:]})
