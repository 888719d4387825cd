"""Check model files: load a model that is new to octavo in a separate process first.

llama.cpp aborts on some files, and a chat template is a foreign program. The process loads the model, computes a token,
and renders the chat template as a conversation does, with limits on time and memory. The result is remembered while the
file is unchanged.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import OctavoError
from ...settings import state_folder
from .hub import files_of

#: Seconds that loading may take, and the slowest disk's bytes a second.
_SECONDS, _SLOWEST_DISK = 60, 20 << 20

#: Seconds and bytes of memory for the chat template.
_TEMPLATE_SECONDS, _TEMPLATE_BYTES = 5, 512 << 20

#: Output of the process: when the model is loaded, and before the problem of its template.
_LOADED, _TEMPLATE = "loaded", "template:"

#: File of the user's folder that remembers models.
_FILE = "models.json"

#: Version of the check: what another one found is not remembered.
_VERSION = 3

#: Most files to remember.
_MOST_REMEMBERED = 500


class Checked(NamedTuple):
    """What is remembered of a model's file.

    Parameters
    ----------
    template_problem : str
        Why its chat template is unusable; "" if it is usable, or missing.
    weight_types : sequence of int
        ggml's numbers of the types of its tensors.
    """

    template_problem: str
    weight_types: Sequence[int]


class ModelFiles:
    """The files of a model, as they are when it is loaded.

    Parameters
    ----------
    path : str
        The first one.
    """

    def __init__(self, path: str) -> None:
        self._before = {file: state for file in files_of(path) if (state := _state_of(file))}

    @property
    def n_bytes(self) -> int:
        """Return their size."""
        return sum(state.n_bytes for state in self._before.values())

    def have_changed(self, or_lost: bool = False) -> bool:
        """Return whether one was written or replaced since.

        Weights are mapped, so that they change with their file. A file that was removed stays mapped: it counts only
        with `or_lost`.
        """
        states = ((_state_of(file), before) for file, before in self._before.items())
        return any(now != before and (or_lost or now is not None) for now, before in states)


class _FileState(NamedTuple):
    """What changes when a file is written or replaced."""

    inode: int
    n_bytes: int
    modified_ns: int


def _state_of(path: str) -> _FileState | None:
    """Return the state of a file; None without one."""
    with suppress(OSError):
        status = os.stat(path)
        return _FileState(status.st_ino, status.st_size, status.st_mtime_ns)
    return None


def refusal(path: str, problem: ValueError, errors: Sequence[str]) -> OctavoError | None:
    """Return a sentence for llama-cpp-python's error as it loaded a model; None for one of another kind.

    Parameters
    ----------
    errors : sequence of str
        What llama.cpp printed.
    """
    of_text = isinstance(problem, UnicodeDecodeError)
    if not of_text and not str(problem).startswith("Failed to"):
        return None
    reason = f" llama.cpp says: {errors[0].split(': ', 1)[-1]}." if errors else ""
    reason = " The text of one of its tokens is not UTF-8." if of_text else reason
    return OctavoError(
        f"{path} cannot be loaded: it is incomplete, damaged, or of a kind that this llama.cpp does not know.{reason} "
        "Download it again, or give another with `model`."
    )


def check(path: str, only_words: bool = False) -> Checked:
    """Check that a model can be loaded. Each file needs a separate process only once.

    Parameters
    ----------
    only_words : bool
        Only its vocabulary will be loaded: the file may lack the rest.

    Raises
    ------
    OctavoError
        The file is not a model, is damaged, or exceeds the limits of this process.
    """
    from ...system.files import make_private, read_json, write_json
    from ...system.free_memory import check_limits
    from .gguf_header import check_gguf

    if os.path.isdir(path):
        raise OctavoError(f"{path} is a folder: give the GGUF file in it.")
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as refusal:
        raise OctavoError(f"The model {path} cannot be opened: {refusal.strerror}.") from refusal
    if magic != b"GGUF":
        raise OctavoError(f"{path} is not a GGUF model: give a file that llama.cpp can run.")
    check_limits(path, os.path.getsize(path))
    key, status, remembered = os.path.realpath(path), os.stat(path), dict[str, Any]()
    with suppress(OctavoError):  # there is none yet, or it is damaged
        remembered = read_json(state_folder() / _FILE)
    mark = [_VERSION, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    entry = remembered.pop(key, None)
    is_known = isinstance(entry, list) and entry[:5] == mark and list(map(type, entry[5:])) == [str, list]
    if is_known and all(type(kind) is int for kind in entry[6]):
        return Checked(*entry[5:])
    weight_types = sorted({tensor.kind for tensor in check_gguf(Path(path)).values()})
    if only_words:
        return Checked("", weight_types)
    checked = Checked(load_apart(path, status.st_size), weight_types)
    kept = dict(list(remembered.items())[1 - _MOST_REMEMBERED :])
    with suppress(OctavoError):  # it is checked again next time
        make_private(state_folder())
        write_json(state_folder() / _FILE, {**kept, key: [*mark, *checked]})
    return checked


def load_apart(path: str, n_bytes: int) -> str:
    """Load a model of n_bytes bytes in another process; see `check`."""
    if getattr(sys, "frozen", False):  # a frozen application cannot start an interpreter
        return ""
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", __name__, path]
    limit = _SECONDS + n_bytes / _SLOWEST_DISK
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=limit, check=False
        )
        output, log, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as problem:
        output, log, code = problem.stdout or b"", problem.stderr or b"", None
    said = output.decode("utf-8", "replace").splitlines()
    if _LOADED not in said:
        raise OctavoError(
            f"{path} cannot be loaded: it is incomplete, damaged, or of a kind that this llama.cpp does not know. "
            f"{_reason(log, code, limit)} Download it again, or give another with `model`."
        )
    if code:  # it ended, or was ended, while it rendered the template
        return "it takes too much time or memory"
    return next((line.removeprefix(_TEMPLATE).strip() for line in said if line.startswith(_TEMPLATE)), "")


def _reason(log: bytes, code: int | None, limit: float) -> str:
    """Return a sentence about why a model could not be loaded."""
    if code is None:
        return f"llama.cpp did not load it in {limit:.0f} s."
    lines = [line.strip() for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "assert" in line.lower()] or lines
    says = errors[0].split(": ", 1)[-1].rstrip(".")[:300] if errors else ""
    ended = f"llama.cpp ended by {signal.Signals(-code).name}" if code < 0 else "llama.cpp refuses it"
    return f"{ended}: {says}." if says else f"{ended}."


def main(path: str) -> None:
    """Load a model, compute a token, and render its chat template, in the other process."""
    import llama_cpp
    from llama_cpp._internals import LlamaModel

    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, False
    model = LlamaModel(path_model=path, params=params, verbose=True)
    _compute(model)
    print(_LOADED, flush=True)
    with _limited():
        problem = _template_problem(model)
    print(_TEMPLATE, problem, flush=True)
    os._exit(0)  # skip the cleanup, which may take as long


def _compute(model: Any) -> None:
    """Compute one token, if the model can output one."""
    import llama_cpp
    from llama_cpp._internals import LlamaBatch, LlamaContext

    if llama_cpp.llama_model_has_encoder(model.model) or not llama_cpp.llama_vocab_n_tokens(model.vocab):
        return
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 32
    context = LlamaContext(model=model, params=params, verbose=True)
    batch = LlamaBatch(n_tokens=1, embd=0, n_seq_max=1, verbose=False)
    batch.set_batch([0], 0, False)
    llama_cpp.llama_decode(context.ctx, batch.batch)


def _template_problem(model: Any) -> str:
    """Return why the model's default chat template is unusable, or ""; octavo uses no other."""
    from ...prompts.chat_template import TEMPLATE_NAME, ChatTemplate, TemplateError, special_tokens
    from ...prompts.thought_form import FORMS, switch_of

    source = model.metadata().get(TEMPLATE_NAME)
    if source is None:
        return ""
    try:
        template = ChatTemplate(source, special_tokens(model))
        for has_document in (True, False):
            template.parts(has_document, True)
        for on in (True, False):
            switch_of(template, FORMS[-1], on)
    except TemplateError as problem:
        return " ".join(str(problem).split())[:300]
    except (MemoryError, TimeoutError, RecursionError):
        return "it takes too much time or memory"
    return ""


@contextmanager
def _limited() -> Iterator[None]:
    """Limit time and memory of a block."""
    import resource

    import psutil

    def end(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _TEMPLATE_SECONDS, 1)
    if sys.platform.startswith("linux"):  # macOS counts shared libraries
        most = psutil.Process().memory_info().vms + _TEMPLATE_BYTES
        with suppress(ValueError, OSError):  # a lower limit exists already
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main(sys.argv[1])
