"""Work with a model on a worker of a cluster."""

from __future__ import annotations

from pathlib import Path

from ..errors import OctavoError
from ..runtime.llama import Llama
from ..runtime.load_model import load_model
from ..runtime.store.model_library import LIBRARY, Library
from ..settings import ModelSettings
from .work import CannotLoad, Work


class ModelWork(Work):
    """Work on a worker of a cluster, with a model that the first task loads.

    The settings have `load`, the client's `ModelSettings` in JSON's types.
    """

    _llama: Llama | None = None

    @property
    def library(self) -> Library:
        """Return the model's library on this machine, for the client's lifetime."""
        model = Path(self.settings["model"])
        return Library(model, Path(self.settings["folder"]) / f"{model.stem}{LIBRARY}")

    @property
    def llama(self) -> Llama:
        """Return the model, with the client's plan if there is one; the first call loads it."""
        if self._llama is None:
            self._llama = self._load()
        return self._llama

    def _load(self) -> Llama:
        settings = self.settings
        plan = Path(settings["folder"], settings["plan"]) if settings["plan"] else None
        try:
            model = {**settings["load"], "model": settings["model"], "n_threads": settings["n_threads"]}
            return load_model(ModelSettings(**model), self.sender.notice, plan=plan and self.library.plan(plan))
        except OctavoError as problem:
            raise CannotLoad(str(problem)) from problem

    def close(self) -> None:
        """Close the model, if it was loaded."""
        if self._llama is not None:
            self._llama.close()
