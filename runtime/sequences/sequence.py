"""One of the sequences that a model holds: contexts compute several in turns, and tokens of several in one step."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..cache.kv_cache import KVCache
from ..graph.residual import ResidualSums
from ..query_recorder import Recorder


@dataclass(eq=False)
class TokenSequence:
    """What a context knows of one sequence.

    Parameters
    ----------
    cache : KVCache
        Its keys and values.
    residual : ResidualSums
        How much the layers changed the residual stream in its last prompt.
    in_prompt : bool
        Whether its last batch was of a prompt.
    recorder : Recorder or None
        Keeps queries of its steps.
    """

    cache: KVCache
    residual: ResidualSums
    in_prompt: bool = field(default=False)
    recorder: Recorder | None = field(default=None)
