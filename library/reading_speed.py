"""How fast a model reads documents on this machine, from what it has read before."""

from __future__ import annotations

from contextlib import suppress
from itertools import cycle, islice

from ..cpu_kernels.numba_support.machine import cpu_name
from ..errors import OctavoError
from ..runtime.llama import Llama
from ..runtime.methods.attention import DENSE_ATTENTION
from ..runtime.store.model_library import Library
from ..system.files import make_private, read_json, write_json
from ..system.working_time import working_time

#: File of a library with the tokens that the model reads in a second, by machine.
_FILE = "reading-speed.json"

#: Tokens of a first measurement, after as many that load the kernels; and of a reading that is kept in its place.
_FIRST, _LEAST = 64, 256

#: Change of the speed that is kept.
_CHANGE = 1.1


class ReadingSpeed:
    """How fast a model reads documents on this machine."""

    def __init__(self, llama: Llama, library: Library) -> None:
        self._llama, self._path = llama, library.folder / _FILE
        shape = f"{llama.context_params.n_threads} threads, {llama.context.kv_type}"
        self._key = f"{cpu_name()}, {shape}, {llama.context.device.name}"

    @property
    def known(self) -> float:
        """Return the tokens that the model reads in a second; 0 if it has read nothing yet."""
        kept = self._kept().get(self._key)
        return float(kept) if isinstance(kept, int | float) and kept > 0 else 0.0

    def tokens_per_s(self, text: str) -> float:
        """Return the tokens that the model reads in a second. The first time, it reads the beginning of a text."""
        if known := self.known:
            return known
        llama = self._llama
        n_tokens = min(2 * _FIRST, llama.n_ctx() // 2)
        tokens = list(islice(cycle(llama.prompt().document(text[: 16 * _FIRST])), n_tokens))
        half = n_tokens // 2
        with llama.attending(DENSE_ATTENTION):
            llama.prefill(tokens[:half])
            began = working_time()
            llama.prefill(tokens[half:])
            speed = len(tokens[half:]) / (working_time() - began)
        self._keep(speed)
        return speed

    def note(self, n_tokens: int, seconds: float) -> None:
        """Keep what a reading took, if it was long enough to tell."""
        speed, before = n_tokens / seconds, self._kept().get(self._key, 0.0)
        if n_tokens >= _LEAST and not before / _CHANGE < speed < before * _CHANGE:
            self._keep(speed)

    def _kept(self) -> dict[str, float]:
        with suppress(OctavoError, OSError):
            return read_json(self._path)
        return {}

    def _keep(self, speed: float) -> None:
        with suppress(OctavoError, OSError):  # it is measured again
            make_private(self._path.parent)
            write_json(self._path, {**self._kept(), self._key: round(speed, 1)})
