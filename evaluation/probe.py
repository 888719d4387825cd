"""Measure the share of dense attention's bytes that a method reads, on a few steps of a text's samples."""

from __future__ import annotations

from .reader import Reader
from .samples import Outcome, Text

#: Number of samples, and of steps of each.
_SAMPLES, _STEPS = 4, 12


class Probe:
    """A few steps of some samples of a text. Create it while dense attention attends the text.

    Parameters
    ----------
    text : Text
        The text and its samples.
    dense : list of Outcome
        Outcomes of the samples under dense attention.
    """

    def __init__(self, reader: Reader, text: Text, dense: list[Outcome]) -> None:
        self.reader = reader
        chosen = range(0, len(text.samples), -(-len(text.samples) // (1 if text.continues else _SAMPLES)))
        n_steps = _SAMPLES * _STEPS // len(chosen)
        self.tokens = [(text.samples[i].prompt + dense[i].tokens)[:n_steps] for i in chosen]
        reader.back()
        self.dense = self._bytes_read()

    def share(self) -> float:
        """Return the bytes that the current method reads in the steps, as a share of those of dense attention."""
        return self._bytes_read() / self.dense

    def _bytes_read(self) -> int:
        return sum(self.reader.bytes_of(tokens) for tokens in self.tokens)
