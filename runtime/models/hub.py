"""Fetch models from the Hugging Face hub: `hf:owner/repo[:quant]`, as llama.cpp names them.

huggingface_hub fetches them, with its cache and tokens, and resumes broken downloads. A model in its cache needs no
network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from ...errors import OctavoError
from ...system.files import sha256_of
from .faster_file import faster_file, has_quant

PREFIX = "hf:"

#: Preferred quantisations if none is named, as in llama.cpp; otherwise the first file.
_PREFERRED = ("Q4_K_M", "Q4_0")

#: Files that are not complete language models.
_OTHERS = re.compile(r"mmproj|imatrix|^mtp-", re.IGNORECASE)

#: Seconds to wait for the list of a repository's files.
_SECONDS = 10

#: End of the name of a file of a split model: its number, and how many there are.
SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def fetch(name: str, notice: Callable[[str], None]) -> Path:
    """Return the file of a model on the hub, and fetch it if the cache lacks it.

    Parameters
    ----------
    name : str
        "owner/repo", "owner/repo:quant" such as "owner/repo:Q8_0", or "owner/repo/file.gguf".

    Returns
    -------
    Path
        The file in the hub's cache; the first one of a split model.

    Raises
    ------
    OctavoError
        The model does not exist, access is denied, or the hub is unreachable.
    """
    repo, wanted = _parsed(name)
    if (found := _cached(repo, wanted)) is not None:
        return found
    return _fetched(repo, wanted, notice)


def _parsed(name: str) -> tuple[str, str]:
    """Return the repository, and the quantisation or file; "" for the preferred one."""
    match = re.fullmatch(r"([\w.-]+/[\w.-]+?)(?::([\w.-]+)|/([\w./-]+\.gguf))?", name)
    if match is None:
        raise OctavoError(f"Models of the hub are named hf:owner/repo or hf:owner/repo:quant: not hf:{name}.")
    return match[1], match[2] or match[3] or ""


def _cached(repo: str, wanted: str) -> Path | None:
    """Return a complete model in the hub's cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}"
    main = folder / "refs" / "main"
    if not main.is_file():
        return None
    snapshot = folder / "snapshots" / main.read_text().strip()
    files = [str(path.relative_to(snapshot)) for path in snapshot.rglob("*.gguf") if path.exists()]
    chosen = _chosen(files, wanted)
    if chosen is None or not all((snapshot / file).exists() for file in files_of(chosen)):
        return None
    # the best of these is the one that the hub would give
    return snapshot / chosen if wanted or has_quant(chosen, _PREFERRED[0]) else None


def _chosen(files: Iterable[str], wanted: str) -> str | None:
    """Return the matching file of a repository; of a split one the first."""
    models = sorted(file for file in files if file.endswith(".gguf") and not _OTHERS.search(Path(file).name))
    first = [file for file in models if (part := SPLIT.search(file)) is None or part[1] == "00001"]
    if wanted.endswith(".gguf"):
        return wanted if wanted in models else None
    for quant in [wanted] if wanted else _PREFERRED:
        for file in first:
            if has_quant(file, quant):
                return file
    return first[0] if first and not wanted else None


def files_of(file: str) -> list[str]:
    """Return all files of a model that may be split, by its first one."""
    if (part := SPLIT.search(file)) is None:
        return [file]
    return [f"{file[: part.start()]}-{number:05d}-of-{part[2]}.gguf" for number in range(1, int(part[2]) + 1)]


def _fetched(repo: str, wanted: str, notice: Callable[[str], None]) -> Path:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    try:
        # without the retries of `list_repo_files`, which would take half a minute offline
        files = [file.rfilename for file in HfApi().model_info(repo, timeout=_SECONDS).siblings or ()]
        chosen = _chosen(files, wanted)
        if chosen is None:
            raise OctavoError(_nothing(repo, wanted, files))
        notice(f"Fetching {chosen} of {repo}, once.")
        if hint := faster_file(files, chosen):
            notice(hint)
        paths = [Path(hf_hub_download(repo, part)) for part in files_of(chosen)]
    except GatedRepoError as problem:
        raise OctavoError(
            f"{repo} is given only to those who accepted its terms: accept them on the hub, then log in with "
            "`hf auth login` or set HF_TOKEN."
        ) from problem
    except RepositoryNotFoundError as problem:
        raise OctavoError(f"The hub has no model {repo}, or it is private: then set HF_TOKEN.") from problem
    except HfHubHTTPError as problem:
        raise OctavoError(f"The hub does not give {repo}: {str(problem).splitlines()[0]}") from problem
    except OctavoError:
        raise
    except Exception as problem:
        if isinstance(problem, OSError) and problem.strerror and not isinstance(problem, ConnectionError):
            raise OctavoError(f"{repo} cannot be stored: {problem.strerror}.") from problem
        # errors of its HTTP library
        raise OctavoError(f"{repo} is not on this machine, and the hub cannot be reached.") from problem
    for path in paths:
        _check(path)
    return paths[0]


def _check(path: Path) -> None:
    """Compare a file with its hash, by which the hub's cache names large files. Remove a damaged one."""
    blob = path.resolve()
    if re.fullmatch("[0-9a-f]{64}", blob.name) and sha256_of(blob) != blob.name:
        path.unlink()
        blob.unlink()
        raise OctavoError(f"{path.name} came damaged, so it was removed: fetch it again.")


def _nothing(repo: str, wanted: str, files: Iterable[str]) -> str:
    """Return a message about what a repository has instead."""
    models = sorted(file for file in files if file.endswith(".gguf"))
    if not models:
        return f"{repo} has no GGUF files: look for a repository of the same model whose name ends in GGUF."
    named = ", ".join(models[:12]) + (f" and {len(models) - 12} more" if len(models) > 12 else "")
    return f"{repo} has no {wanted}. It has {named}." if wanted else f"{repo} has no language model: it has {named}."
