"""Read a text with full attention, to compare with what the model predicts when it sees less."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...progress import Progress
from ...runtime.document.kept_state import BLOB, KeptState
from ...runtime.llama import Llama
from .heads import HIDDEN, LOGITS, evaluate, recall
from .layer_importance import ResidualChange
from .recall_texts import RecallText


@dataclass(frozen=True)
class Reading:
    """A model's reading of a text with full attention.

    Parameters
    ----------
    rows : list of (float16 array, float16 array)
        Keys and values of each layer, for the first part of the text.
    hidden : float32 array, shape (n, n_embd)
        Hidden states that predict the recalled tokens.
    states : list of KeptState
        The recurrent state after that part, in a hybrid model.
    right : uint8 array, shape (n,)
        1 for each recalled token that the model predicts.
    similarity : float64 array, shape (n_layers,) or (0,)
        Similarity of the residual stream before and after each attention; empty if the graph does not name the stream.
    """

    text: RecallText
    rows: list[tuple[np.ndarray, np.ndarray]]
    states: list[KeptState]
    hidden: np.ndarray
    right: np.ndarray
    similarity: np.ndarray


def read_text(llama: Llama, text: RecallText, task: str, progress: Progress) -> dict[str, np.ndarray]:
    """Read a text with full attention.

    Parameters
    ----------
    llama : Llama
        The model. Its cache holds the first part of the text afterwards.

    Returns
    -------
    dict
        "keys.I" and "values.I" of each layer, "hidden", "right" and "similarity", as in `Reading`; and "state", the
        recurrent state of a hybrid model.
    """
    residual = ResidualChange(len(llama.context.nodes))
    llama.reset()
    progress.start(task, text.n_read, "tokens")

    def take(name: str, values: np.ndarray) -> bool:
        if residual.wants(name):
            residual.take(name, values)
        return name != HIDDEN

    evaluate(
        llama,
        text.tokens[: text.n_read],
        np.ones(text.n_read, bool),
        lambda name: name == HIDDEN or residual.wants(name),
        take,
        progress.advance,
    )
    recalled = recall(llama, text, logits=True)
    right = recalled[LOGITS].argmax(axis=1) == np.array(text.tokens)[text.recalled]
    cache = llama.context.cache
    rows = {
        f"{kind}.{i}": array
        for i in range(len(cache.layers))
        for kind, array in zip(("keys", "values"), cache.rows(i), strict=True)
    }
    if (state := llama.context.state()) is not None:
        rows |= {f"{BLOB}.{name}": array for name, array in state.arrays.items()}
    measured = {"hidden": recalled[HIDDEN], "right": right.astype(np.uint8), "similarity": residual.means}
    return {**rows, **measured}
