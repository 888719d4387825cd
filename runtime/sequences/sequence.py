"""One of the sequences that a model holds: contexts compute several in turns, and tokens of several in one step."""

from __future__ import annotations

from dataclasses import dataclass

from ..cache.kv_cache import KVCache
from ..query_recorder import Recorder


@dataclass(eq=False)
class TokenSequence:
    """What a context knows of one sequence.

    Parameters
    ----------
    cache : KVCache
        Its keys and values.
    recorder : Recorder or None
        Keeps queries of its steps.
    """

    cache: KVCache
    recorder: Recorder | None = None
