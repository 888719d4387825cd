"""A plugin of pytest that runs llama-cpp-python's own tests with `octavo.Llama` in the place of `llama_cpp.Llama`.

Their models lie on a hub; tiny ones of the same kinds, which are made here, take their places. Models that octavo's
attention refuses run on llama.cpp's own.
"""

import functools
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import llama_cpp

import octavo
from octavo.runtime.models import model_file

from . import tiny_models, word_model, zoo

#: Kinds of their models by words in the files' names, and what makes one of the kind; and a test without a Llama that
#: expects the ids of their model's tokenizer.
_FOLDER = Path(tempfile.mkdtemp())
_MADE = {
    "stories": lambda path: tiny_models.write_model(path, "llama"),
    "mamba": lambda path: tiny_models.write_model(path, "mamba"),
    "Falcon-H1": lambda path: zoo.write_model(path, "falcon-h1"),
    "bge": lambda path: tiny_models.write_model(path, "bert"),
    "Qwen": word_model.write_model,
}
_OF_THEIR_MODEL_ALONE = ["test_real_model"]


@functools.cache
def _download(repository: str, filename: str) -> str:
    """`hf_hub_download`: write a model of the same kind."""
    kind = next(kind for kind in _MADE if kind in filename)
    return str(_MADE[kind](_FOLDER / f"{kind}.gguf"))


class _Llama(octavo.Llama):
    """`octavo.Llama` that falls back to llama.cpp's attention, as the refusal says."""

    def __init__(self, model_path, **options):
        try:
            super().__init__(model_path, **options)
        except octavo.OctavoError as problem:
            if "attention='llama.cpp'" not in str(problem):
                raise
            super().__init__(model_path, **options, attention="llama.cpp")


def pytest_configure():
    hub = ModuleType("huggingface_hub")
    hub.hf_hub_download = _download
    sys.modules["huggingface_hub"] = hub
    model_file.load_apart = lambda *arguments: ""  # these files are ours
    llama_cpp.Llama = _Llama


def pytest_collection_modifyitems(items, config):
    gone = [item for item in items if item.name in _OF_THEIR_MODEL_ALONE]
    config.hook.pytest_deselected(items=gone)
    items[:] = [item for item in items if item not in gone]
