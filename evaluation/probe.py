"""Measure what a method reads of what dense attention reads, on a few steps of a text's samples."""

from __future__ import annotations

from .reader import Reader
from .samples import Outcome, Text

#: Samples, and steps of each, to measure.
_SAMPLES, _STEPS = 4, 12


class Probe:
    """Some steps of some samples of a text. Create it while dense attention attends the text.

    Parameters
    ----------
    reader : Reader
        The model, at the end of the text.
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
        """Measure the current method.

        Returns
        -------
        float
            Bytes that the steps read, as a share of those that dense attention read.
        """
        return self._bytes_read() / self.dense

    def _bytes_read(self) -> int:
        return sum(self.reader.bytes_of(tokens) for tokens in self.tokens)
