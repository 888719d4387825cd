"""What an index depends on besides its text: the model, the prompt's head, and settings. Nothing that a day changes.

A template may write the date before a document. An index keeps the head that it was read with, and its identity has the
head of a fixed time in place of that.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from ..cpu_kernels.numba_support.shape import F16
from ..errors import OctavoError
from ..prompts.chat_template import EPOCH
from ..runtime.llama import Llama
from ..runtime.models.hub import files_of
from ..runtime.models.llama_arguments import ROPE_SCALING, original_n_ctx, rope_arguments
from ..runtime.store.library_snapshot import LibrarySnapshot
from ..runtime.store.manifest import DATELESS_HEAD, INDEX_VERSION
from ..runtime.store.model_library import Library, hash_of_file
from .clusters import UNCLUSTERED, ClusterSettings, settings_for

#: Names of the entries of `numbers_of`.
NUMBERS = ("rope", "long_factors", "yarn", "overrides", "split", "adapter")

#: Arguments of YaRN, with their defaults.
_YARN = {
    "yarn_ext_factor": -1.0,
    "yarn_attn_factor": 1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_orig_ctx": 0,
}


class RowSource(NamedTuple):
    """What computed keys and values: equal tokens have equal rows if this is equal.

    Parameters
    ----------
    model : str
        Hash of the model file.
    kv_type : str
        Type of keys and values.
    numbers : dict
        As `numbers_of` returns it.
    """

    model: str
    kv_type: str
    numbers: dict[str, Any]

    @classmethod
    def of(cls, llama: Llama, library: Library) -> RowSource:
        """Return what a model computes with."""
        return cls(library.model_hash, llama.context.kv_type, numbers_of(llama))


def numbers_of(llama: Llama) -> dict[str, Any]:
    """Return what decides the keys and values of given tokens, besides the model's file and the type of cache.

    Indexes, conversations and prompts depend on it, and rows are reused where it is equal.

    Returns
    -------
    dict
        Entries in JSON's types. All but `rope` are there only if the model or its arguments are out of the ordinary:

        - rope: base and scale of the frequencies, which the model file does not determine; and llama.cpp's number of
          the scaling type, if one was chosen.
        - long_factors: whether positions turn by the factors of long contexts, of a model that has two kinds.
        - yarn: arguments of YaRN that `rope_scaling` does not set.
        - overrides: metadata that replaces the file's.
        - split: hashes of the other files of a split model.
        - adapter: hash and scale of a LoRA adapter.
    """
    params, original = llama.context_params, original_n_ctx(llama.metadata)
    stretched = [params.rope_scaling_type] if params.rope_scaling_type >= 0 else []
    usual = {**_YARN, **rope_arguments("yarn", 1)} if stretched == [ROPE_SCALING["yarn"]] else _YARN
    overrides: dict[str, Any] = llama.kv_overrides or {}
    n_files = int(llama.metadata.get("split.count", 1))
    found = {
        "yarn": {name: getattr(params, name) for name in _YARN if getattr(params, name) != usual[name]},
        "overrides": [[name, type(value).__name__, value] for name, value in sorted(overrides.items())],
        "split": [hash_of_file(Path(file)) for file in files_of(llama.model_path)[1:n_files]],
        "adapter": [hash_of_file(Path(llama.lora_path)), llama.lora_scale] if llama.lora_path else [],
    }
    return {
        "rope": [params.rope_freq_base, params.rope_freq_scale, *stretched],
        **({"long_factors": llama.n_ctx() > original} if original else {}),
        **{name: value for name, value in found.items() if value},
    }


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

    Raises
    ------
    OctavoError
        The model's file has changed since it was loaded.
    """
    if llama.files.have_changed():
        raise OctavoError(f"{llama.model_path} has changed since the model was loaded: start octavo again.")
    kv_type, attention = llama.context.kv_type, llama.attention
    duo, plan = attention.duo, attention.plan
    return {
        "format_version": INDEX_VERSION,
        "head": llama.prompt(at=EPOCH).head(),
        "clustering": settings.as_json(),
        **numbers_of(llama),
        **({} if kv_type == F16 else {"dtype": kv_type}),
        **({"prefill_covers": attention_share} if attention_share else {}),
        **({"duo": duo.reading(plan, attention.retrieval_heads, llama.n_batch)} if duo and plan else {}),
    }


def new_settings(llama: Llama, n_tokens: int) -> ClusterSettings:
    """Return the settings with which to index a document of n_tokens tokens for the model's attention."""
    if not llama.attention.wants_clusters(n_tokens, llama.on_metal):
        return UNCLUSTERED
    return settings_for(llama.context.kv_type, llama.attention.new_method().clustering)


def usable_settings(llama: Llama) -> list[ClusterSettings]:
    """Return the settings of indexes that serve the model's attention."""
    attention = llama.attention
    clustered = settings_for(llama.context.kv_type, attention.new_method().clustering)
    always = attention.auto is None and attention.wants_clusters(0)  # `auto` decides by the length of a document
    return [clustered] if always else [UNCLUSTERED, clustered]


def find_index(llama: Llama, snapshot: LibrarySnapshot, sha256: str, settings: dict[str, Any]) -> Path | None:
    """Return the folder of the index of a text; None without one.

    Octavo before 0.3 named an index by the head of its day. The time in the manifest gives that head again.

    Parameters
    ----------
    settings : dict
        The index's identity.
    """
    found = snapshot.by_digest.get(snapshot.library.digest(sha256, settings))
    if found is not None:
        return found
    for folder, manifest in snapshot.by_text.get(sha256, ()):
        if DATELESS_HEAD in manifest or manifest["head"] == settings["head"]:
            continue
        made = datetime.fromisoformat(manifest["created"]).astimezone().replace(tzinfo=None)
        for at in (made - timedelta(seconds=manifest.get("seconds", 0)), made):
            dated = {**settings, "head": llama.prompt(at=at).head()}
            if folder.name.endswith(f"-{snapshot.library.digest(sha256, dated)}"):
                return folder
    return None
