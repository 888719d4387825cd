"""Check that octavo can run on this machine, and how well: versions, instructions, kernels, models, memory, disk."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import llvmlite.binding
import psutil

from ..cpu_kernels.numba_support.compile import compiled_before
from ..cpu_kernels.numba_support.kernel_cache import is_usable, kernel_folder
from ..cpu_kernels.numba_support.machine import cpu_name
from ..cpu_kernels.numba_support.machine_features import HAS_AMX, HAS_AVX2, LANES
from ..documents.ocr.recognition import INSTALL, chosen_languages, is_installed
from ..errors import OctavoError
from ..runtime.models.find_model import describe, find_model, local_models
from ..runtime.models.own_products import own_products
from ..runtime.store.index_files import folder_bytes
from ..runtime.store.model_library import Library
from ..system.processors import default_threads
from ..version import __version__

#: What a check may find: all is well; something could be better; octavo cannot work so.
State = Literal["ok", "note", "broken"]

#: llama.cpp's names of instructions, those that decide its speed first, and LLVM's.
_DECISIVE = {"AVX": "avx", "AVX2": "avx2", "FMA": "fma", "F16C": "f16c", "AVX512": "avx512f"}
_DECISIVE |= {"NEON": "neon", "DOTPROD": "dotprod", "MATMUL_INT8": "i8mm"}
_INSTRUCTIONS = _DECISIVE | {"BMI2": "bmi2", "AVX_VNNI": "avxvnni", "AVX512_VBMI": "avx512vbmi"}
_INSTRUCTIONS |= {"AVX512_VNNI": "avx512vnni", "AVX512_BF16": "avx512bf16", "AMX_INT8": "amx-int8", "SVE": "sve"}

#: Prints llama.cpp's instructions. A build for another CPU may die of it.
_ASK_LLAMA_CPP = "import llama_cpp; print(llama_cpp.llama_print_system_info().decode())"

#: Seconds that this may take.
_LONGEST = 60

#: Bytes of memory and of disk below which there is a note.
_LITTLE = 1 << 30

_REBUILD = (
    "build it again here, by pip install --force-reinstall --no-cache-dir --no-binary llama-cpp-python llama-cpp-python"
)


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Parameters
    ----------
    subject : str
        What was checked.
    state : State
        How it is.
    found : str
        What is there, or what to do.
    """

    subject: str
    state: State
    found: str


def examine(model: Path | str | None = None, index_dir: Path | str | None = None) -> Iterator[Finding]:
    """Check everything.

    Parameters
    ----------
    model, index_dir : path, optional
        As commands take them: a model, and where its indexes live.

    Yields
    ------
    Finding
        What each check found.
    """
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("versions", _versions),
        ("CPU", _cpu),
        ("llama.cpp", _llama_cpp),
        ("kernels", _kernels),
        ("model", lambda: _model(model)),
        ("other models", _other_models),
        ("memory", _memory),
        ("indexes", lambda: _indexes(model, index_dir)),
        ("tesseract", _tesseract),
    ]
    for subject, check in checks:
        try:
            yield check()
        except Exception as problem:  # of any kind: the other checks still say what they find
            yield Finding(subject, "broken", f"{type(problem).__name__}: {problem}")


def _versions() -> Finding:
    names = "llama-cpp-python", "numba", "numpy"
    found = ", ".join(f"{name} {_version(name)}" for name in names)
    return Finding("versions", "ok", f"octavo {__version__}, Python {platform.python_version()}, {found}")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def _cpu() -> Finding:
    cores = psutil.cpu_count(logical=False) or default_threads()
    if platform.machine() in ("arm64", "aarch64"):
        uses = "NEON"
    elif not HAS_AVX2:
        return Finding("CPU", "note", f"{cpu_name()} has no AVX2: octavo runs, but slowly.")
    else:
        uses = ("AVX-512" if LANES == 16 else "AVX2") + (" and AMX" if HAS_AMX else "")
    system = f"{platform.system()} {platform.release()}"
    return Finding("CPU", "ok", f"{cpu_name()}, {cores} cores, of which octavo uses {uses}; {system}")


def _llama_cpp() -> Finding:
    """Compare the instructions that llama.cpp was built for with those of this CPU."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-c", _ASK_LLAMA_CPP]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_LONGEST, check=False)
    if done.returncode == -signal.SIGILL:
        return Finding("llama.cpp", "broken", f"It was built for another CPU and ends here: {_REBUILD}")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Finding("llama.cpp", "broken", f"It cannot be loaded ({last}): {_REBUILD}")
    return compared(done.stdout, {name for name, has in llvmlite.binding.get_host_cpu_features().items() if has})


def compared(system_info: str, of_cpu: set[str]) -> Finding:
    """Compare llama.cpp's description of its build with the instructions of a CPU, by LLVM's names."""
    flags = [part.rpartition(":")[2].split("=") for part in system_info.split("|") if "=" in part]
    built = {name.strip() for name, value in flags if value.strip() == "1"}
    foreign = [name for name, ours in _INSTRUCTIONS.items() if name in built and ours not in of_cpu]
    missing = [name for name, ours in _DECISIVE.items() if name not in built and ours in of_cpu]
    if "OPENMP" not in built and sys.platform == "linux":  # Apple's compiler has none
        missing.append("OpenMP")
    if foreign:
        return Finding(
            "llama.cpp", "broken", f"It was built for {', '.join(foreign)}, which this CPU lacks: {_REBUILD}"
        )
    if missing:
        return Finding("llama.cpp", "note", f"It was built without {', '.join(missing)}, so it is slow: {_REBUILD}")
    return Finding("llama.cpp", "ok", f"built for this CPU: {', '.join(name for name in _DECISIVE if name in built)}")


def _kernels() -> Finding:
    folder = kernel_folder()
    was_compiled = compiled_before()
    if not is_usable(folder):
        found = f"{folder} cannot be written or is not yours alone, so kernels are compiled each time."
        return Finding("kernels", "note", found)
    if not was_compiled:
        return Finding("kernels", "ok", f"not compiled yet: the first question does, once, into {folder}")
    n_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Finding("kernels", "ok", f"compiled, {_size(n_bytes)}, in {folder}")


def _model(named: Path | str | None) -> Finding:
    """Check the header of the model that commands take, and say who multiplies its weights here."""
    if str(named or "").startswith("hf:"):
        return Finding("model", "ok", f"{named}, which is fetched when it is needed")
    try:
        path = find_model(named, lambda sentence: None)
    except OctavoError as problem:
        return Finding("model", "broken", str(problem))
    if not path.is_file():
        return Finding("model", "broken", f"There is no model {path}.")
    described = describe(path)
    if described.problem:
        return Finding("model", "broken", f"{path}: {described.problem}")
    found = f"{_size(path.stat().st_size)}, {described.n_ctx or 0:,} tokens, {own_products(path)}: {path}"
    return Finding("model", "ok", found)


def _other_models() -> Finding:
    found = [describe(model.path).problem for model in local_models()]
    runs = sum(not problem for problem in found)
    of_them = f"{len(found)} of other programs, of which octavo runs {runs}: `octavo models` lists them"
    return Finding("other models", "ok", of_them if found else "none of other programs")


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    found = f"{_size(memory.total)}, of which {_size(memory.available)} are free"
    return Finding("memory", "note" if memory.available < _LITTLE else "ok", found)


def _indexes(model: Path | str | None, index_dir: Path | str | None) -> Finding:
    """Check the disk of the model's indexes."""
    try:
        library = Library.of(find_model(model, lambda sentence: None), index_dir)
    except OctavoError:
        return Finding("indexes", "note", "They live beside the model, which is missing.")
    folder = library.folder
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK):
        return Finding("indexes", "broken", f"{there} cannot be written: give another folder with --index-dir.")
    n_bytes = sum(folder_bytes(path) for path in folder.iterdir() if path.is_dir()) if folder.exists() else 0
    free = shutil.disk_usage(there).free
    found = f"{_size(n_bytes)}, and {_size(free)} are free, in {folder}"
    return Finding("indexes", "note" if free < _LITTLE else "ok", found)


def _tesseract() -> Finding:
    if not is_installed():
        return Finding("tesseract", "note", f"missing; --ocr needs it for scanned pages: {INSTALL}")
    try:
        return Finding("tesseract", "ok", f"has the languages {chosen_languages(None)}")
    except OctavoError as problem:
        return Finding("tesseract", "note", str(problem))


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:,.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:,.0f} MiB"
