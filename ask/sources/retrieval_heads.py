"""Find the retrieval heads: the query heads that attend to the text that the model is about to repeat.

Wu et al. 2024 (arXiv 2404.15574, section 2) score a head by how often its largest weight is on the token that is copied
next. Here the whole weight on the repeated passage counts, which takes fewer tokens to measure: a second or two for a
model. The result is kept beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from ...convert.plan.recall_texts import SHIPPED_NOVEL, Haystack, RecallText, passkey_text
from ...errors import OctavoError
from ...runtime.document.stored_rows import as_floats, capped_scores
from ...runtime.llama import Llama
from ...runtime.methods.attention import DENSE_ATTENTION
from ...runtime.query_recorder import QueryHead
from ...runtime.store.model_library import Library
from ...system.files import read_json, write_json

#: Version of the file, its name, and its number of heads.
_VERSION, _FILE, _N_HEADS = 1, "retrieval_heads.json", 4

#: Tokens of the text to measure heads on, and words of each of its ten passkeys.
_N_TOKENS, _N_WORDS = 1024, 4


def source_heads(llama: Llama, library: Library, notice: Callable[[str], None]) -> list[QueryHead]:
    """Return the best retrieval heads; measure them first if the library lacks them.

    Parameters
    ----------
    llama : Llama
        The model. A measurement empties it.

    Returns
    -------
    list of QueryHead
        The strongest first; none if all windows slide, or the model has hardly any context.
    """
    path = library.folder / _FILE
    with suppress(OctavoError, KeyError, TypeError, ValueError):  # the file is missing, damaged, or of another version
        kept = read_json(path)
        if (kept["format_version"], kept["model"]) == (_VERSION, library.model_hash):
            return [QueryHead(*map(int, head)) for head in kept["heads"]]
    notice("Preparing this model for sources, once.")
    heads = find_heads(llama)
    content = {"format_version": _VERSION, "model": library.model_hash, "heads": [list(head) for head in heads]}
    with suppress(OctavoError):  # a full disk: they are measured again next time
        library.make_folder()
        write_json(path, content)
    return heads


def find_heads(llama: Llama) -> list[QueryHead]:
    """Measure which heads retrieve, on passkeys that the model reads and then repeats. The model is empty afterwards.

    Return a few, the strongest first.
    """
    with llama.attending(DENSE_ATTENTION):
        scores = head_scores(llama)
    return sorted(scores, key=lambda head: (-scores[head], head))[:_N_HEADS]


def head_scores(llama: Llama) -> dict[QueryHead, float]:
    """Return the share of its attention that each query head pays to the passkey that is being repeated.

    Parameters
    ----------
    llama : Llama
        The model, empty, attending densely.
    """
    haystack = Haystack(llama, SHIPPED_NOVEL.read_text("utf-8"))
    n_tokens = min(_N_TOKENS, llama.n_ctx() - 1)
    try:
        text = passkey_text(haystack, n_tokens, np.random.default_rng(0), haystack.words, _N_WORDS)
    except OctavoError:  # a context of a few hundred tokens, which needs no search
        return {}
    llama.prefill(text.tokens[: text.n_read])
    second = text.tokens[text.n_read : text.n_read + llama.n_batch]
    with llama.context.captured_queries(len(second)) as queries:
        llama.prefill(second)
    weights = _weights_of_passkeys(text, len(second))
    repeats = np.flatnonzero(weights.any(axis=1))  # most of the second part is as it was read
    weights, unseen = weights[repeats], np.arange(text.n_read + len(second)) > text.n_read + repeats[:, None]
    scores: dict[QueryHead, float] = {}
    for number, node in enumerate(llama.context.nodes):
        if node.window:
            continue
        keys, _ = llama.context.cache.rows(node.kv_layer)
        for kv_head, of_head in enumerate(queries[number]):
            floats = as_floats(keys[kv_head], llama.context.cache.layers[node.kv_layer].split)
            for member in range(of_head.shape[1]):
                scored = capped_scores(of_head[repeats, member], floats, node.softcap)
                scored = np.exp(np.where(unseen, -np.inf, scored) - scored.max(axis=1, keepdims=True))
                attention = scored / scored.sum(axis=1, keepdims=True)
                scores[QueryHead(number, kv_head, member)] = float((attention * weights).sum(axis=1).mean())
    return scores


def _weights_of_passkeys(text: RecallText, n_second: int) -> np.ndarray:
    """Return for each token of the second part, (n_second, n_tokens), the passkey that the next token repeats."""
    weights = np.zeros((n_second, text.n_read + n_second), np.float32)
    done = 0
    for recalled in text.passkeys:
        sources = text.sources[done : done + len(recalled)]
        done += len(recalled)
        steps = recalled - 1 - text.n_read
        weights[np.ix_(steps[steps < n_second], sources)] = 1
    return weights
