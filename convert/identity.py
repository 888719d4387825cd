"""What an index depends on besides its text: the model, the prompt's head, and settings. Nothing that a day changes.

A template may write the date before a document. An index keeps the head that it was read with, and its identity has the
head of a fixed time in place of that.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ..cpu_kernels.numba_support.shape import F16
from ..prompts.chat_template import EPOCH
from ..runtime.llama import Llama
from ..runtime.store.library_snapshot import LibrarySnapshot
from ..runtime.store.manifest import DATELESS_HEAD, INDEX_VERSION
from .clusters import UNCLUSTERED, ClusterSettings, settings_for


def identity(llama: Llama, settings: ClusterSettings, attention_share: float = 0.0) -> dict[str, Any]:
    """Return the settings that an index depends on, besides the model file and the text.

    Parameters
    ----------
    attention_share : float
        Share of its attention that a batch must cover; 0 to read everything.

    Returns
    -------
    dict
        Entries of the manifest. Defaults are left out, so that indexes from before q8_0 and sparse reading keep their
        name. `head` is the one that the template writes at the time `EPOCH`.
    """
    kv_type = llama.context.kv_type
    return {
        "format_version": INDEX_VERSION,
        "head": llama.prompt(at=EPOCH).head(),
        "clustering": settings.as_json(),
        "rope": rope_settings(llama),
        **({} if kv_type == F16 else {"dtype": kv_type}),
        **({"prefill_covers": attention_share} if attention_share else {}),
        **streaming_heads(llama),
    }


def new_settings(llama: Llama, n_tokens: int) -> ClusterSettings:
    """Return the settings with which to index a document of n_tokens tokens for the model's attention."""
    if not llama.attention.wants_clusters(n_tokens, llama.on_metal):
        return UNCLUSTERED
    return settings_for(llama.context.kv_type, llama.attention.clustering)


def usable_settings(llama: Llama) -> list[ClusterSettings]:
    """Return the settings of indexes that serve the model's attention."""
    clustered = settings_for(llama.context.kv_type, llama.attention.clustering)
    return [clustered] if llama.attention.always_clusters else [UNCLUSTERED, clustered]


def streaming_heads(llama: Llama) -> dict[str, Any]:
    """Return the manifest's entry `duo`, on which an index depends if heads stream while the document is read."""
    attention = llama.attention
    if attention.duo is None or attention.plan is None:
        return {}
    return {"duo": attention.duo.reading(attention.plan, attention.retrieval_heads, llama.n_batch)}


def rope_settings(llama: Llama) -> list[float]:
    """Return the settings of positions that the model file does not determine.

    Returns
    -------
    list of float
        Base and scale of the frequencies; and llama.cpp's number of the scaling type, if positions are stretched.
    """
    params = llama.context_params
    stretched = [params.rope_scaling_type] if params.rope_scaling_type > 0 else []
    return [params.rope_freq_base, params.rope_freq_scale, *stretched]


def find_index(llama: Llama, snapshot: LibrarySnapshot, sha256: str, settings: dict[str, Any]) -> Path | None:
    """Return the folder of the index of a text; None without one.

    Octavo before 0.3 named an index by the head of its day. The time in the manifest gives that head again.

    Parameters
    ----------
    settings : dict
        The index's identity.
    """
    found = snapshot.find(sha256, settings)
    if found is not None:
        return found
    for folder, manifest in snapshot.indexes_of(sha256):
        if DATELESS_HEAD in manifest or manifest["head"] == settings["head"]:
            continue
        made = datetime.fromisoformat(manifest["created"]).astimezone().replace(tzinfo=None)
        for at in (made - timedelta(seconds=manifest.get("seconds", 0)), made):
            dated = {**settings, "head": llama.prompt(at=at).head()}
            if folder.name.endswith(f"-{snapshot.library.digest(sha256, dated)}"):
                return folder
    return None
