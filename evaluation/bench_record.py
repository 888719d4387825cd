"""Say what a benchmark's figures depend on, so that results of other machines and days can be compared."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import llama_cpp
import psutil

from ..cpu_kernels.numba_support.machine import cpu_name
from ..documents.document import hash_text
from ..runtime.llama import Llama
from ..runtime.models.gguf_header import multiplied_weights
from ..runtime.models.hub import files_of
from ..runtime.models.own_products import products_of, type_name
from ..runtime.store.model_library import Library
from ..system.processors import cores_of_others, usable_cpus
from ..system.sensors import temperature, times_throttled
from ..version import __version__
from .peer_table import Peer


def machine_now() -> dict[str, Any]:
    """Return what changes on a machine: its temperature, how often it was throttled, and what others compute."""
    return {
        "temperature_celsius": temperature(),
        "times_throttled": times_throttled(),
        "cores_of_others": round(cores_of_others(), 2),
    }


def machine() -> dict[str, Any]:
    """Return the processor, the cores that may be used, the memory and the system."""
    affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "cpu": cpu_name(),
        "physical_cores": psutil.cpu_count(logical=False),
        "usable_cpus": usable_cpus(),
        "usable_cpu_numbers": affinity,
        "memory_bytes": psutil.virtual_memory().total,
        # The rest of a kernel's release may be the name of whoever built it.
        "system": platform.platform().replace(platform.release(), platform.release().partition("-")[0]),
    }


def software() -> dict[str, Any]:
    """Return the versions that measured, the instruction sets of llama.cpp's build, and the date."""
    return {
        "octavo": __version__,
        "llama_cpp_python": llama_cpp.__version__,
        "llama_cpp_build": llama_cpp.llama_print_system_info().decode().strip(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def model_record(llama: Llama, path: Path, library: Library) -> dict[str, Any]:
    """Return what a model's file is: name, size, hash, and the types of its weights by share."""
    files = [Path(file) for file in files_of(str(path))]
    weights = multiplied_weights(files)
    total = max(sum(weights.values()), 1)
    shares = {type_name(kind): round(n / total, 4) for kind, n in sorted(weights.items(), key=lambda pair: -pair[1])}
    return {
        "file": path.name,
        "name": llama.metadata.get("general.name"),
        "architecture": llama.metadata.get("general.architecture"),
        "parameters": llama._model.n_params(),
        "bytes": sum(file.stat().st_size for file in files),
        "sha256": library.model_hash,
        "types": shares,
        "octavo_multiplies": round(products_of(weights).share, 4),
    }


def text_record(name: str | None, text: str | None) -> dict[str, Any] | None:
    """Return the name and the hash of the text; None if the tokens were random."""
    return None if text is None else {"name": name, "sha256": hash_text(text)}


def peer_record(peers: Mapping[str, Peer], builds: Mapping[str, str]) -> dict[str, Any]:
    """Return the package of each peer, and what it says about its build."""
    return {name: {"package": peer.package, "build": builds.get(name, "")} for name, peer in peers.items()}
