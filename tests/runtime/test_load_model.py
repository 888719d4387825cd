"""The threads that a model runs on."""

from unittest.mock import Mock

import pytest

from octavo.runtime import load_model
from octavo.settings import ModelSettings


@pytest.mark.parametrize(("measures", "n_threads", "n_threads_batch"), [(False, 1, 2), (True, 5, 5)])
def test_a_model_runs_on_free_cores_unless_it_is_measured(monkeypatch, measures, n_threads, n_threads_batch):
    given = {}
    monkeypatch.setattr(load_model, "free_threads", lambda least: least)
    monkeypatch.setattr(load_model, "default_threads", lambda: 5)
    monkeypatch.setattr(load_model, "Llama", lambda path, **arguments: given.update(arguments) or Mock())
    load_model.load_model(ModelSettings("a.gguf"), print, measures)
    assert (given["n_threads"], given["n_threads_batch"]) == (n_threads, n_threads_batch)
    load_model.load_model(ModelSettings("a.gguf", n_threads=7), print, measures)
    assert given["n_threads"] == given["n_threads_batch"] == 7
