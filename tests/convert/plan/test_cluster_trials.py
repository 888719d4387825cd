"""Profiles on a real Dask cluster, two processes of this machine, write the plan that this machine writes alone."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from helpers.dask_clusters import Killer, two_workers
from helpers.index_builds import Recorded

import octavo
from octavo import OctavoError
from octavo.cli.main import cli
from octavo.convert.plan import profile as profile_module
from octavo.convert.plan.cluster_trials import MeasureTrials, TrialWorkers, text_as_json, text_of, trial_workers
from octavo.convert.plan.profile import ProfileSettings, profile
from octavo.convert.plan.recall_texts import PASSKEYS, REPETITION, SHIPPED_NOVEL, Haystack, recall_text
from octavo.progress import Silent
from octavo.runtime.store.model_library import Library
from octavo.settings import ModelSettings

METHODS = ["h2o", "quest"]
SETTINGS = ProfileSettings(texts=2, tokens=1024, rounds=2, sinks=16, recent=32, heads=True)
LOAD = {"n_ctx": 0, "cache_type": "f16", "device": "auto", "rope_scaling": None, "rope_scale": 1.0}


@pytest.fixture(scope="module", autouse=True)
def _few_methods():
    """Have budgets checked for two methods: one that forgets rows, and one that selects them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile_module, "methods_with_layer_budgets", lambda: METHODS)
        yield


@pytest.fixture(scope="module")
def dask_cluster():
    with two_workers() as made:
        yield made


@pytest.fixture(scope="module")
def llama(tiny_model):
    """A model with one thread, as the workers' processes: sums are added in the same order."""
    return octavo.Llama(tiny_model, n_threads=1)


def measure(llama, folder, progress=None, notice=print, workers=None):
    """Profile a model; returns the text of the plan's file, but for when it was written."""
    library = Library.of(llama.model_path, folder)
    profile(llama, library, SETTINGS, progress or Silent(), notice, workers)
    plan = json.loads(library.plan_path.read_text())
    del plan["created"]
    return json.dumps(plan)  # in the order of the file


@pytest.fixture(scope="module")
def alone(llama, tmp_path_factory):
    """The plan of a profile without a cluster."""
    return measure(llama, tmp_path_factory.mktemp("alone"))


class Killing(Silent):
    """A progress that has a worker killed after the first trial."""

    def __init__(self, killer):
        self._killer, self._unit = killer, ""

    def start(self, task, total, unit, done=0):
        self._unit = unit

    def advance(self, amount):
        if self._unit == "trials":
            self._killer.kill()


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing(dask_cluster, llama, alone, tmp_path):
    notices, library = [], Library.of(llama.model_path, tmp_path)
    workers = trial_workers(dask_cluster.scheduler_address, llama, library, ModelSettings(n_threads=1), notices.append)
    with Killer(dask_cluster) as killer:
        assert measure(llama, tmp_path, Killing(killer), notices.append, workers) == alone
    assert killer.killed
    assert notices[0] == "2 workers measure 2 trials at once."
    unused = trial_workers("tcp://127.0.0.1:1", llama, library, ModelSettings(n_threads=1), notices.append)
    assert measure(llama, tmp_path, workers=unused) == alone  # what is measured needs no cluster


class Here:
    """Workers of a cluster in this process, which get and give what JSON can say."""

    def __init__(self, llama, folder):
        settings = {"model": str(llama.model_path), "n_threads": 1, "folder": str(folder), "plan": None, "load": LOAD}
        self._work, self.names = MeasureTrials(settings, SimpleNamespace(notice=print)), []

    def results(self, waiting, message_of, hear):
        for name in waiting:
            self.names.append(name)
            yield name, {"result": json.loads(json.dumps(self._work.do(json.loads(json.dumps(message_of(name))))))}


@pytest.mark.slow
@pytest.mark.parametrize("at", [10, 14, 25, 30])
def test_an_interrupted_profile_goes_on_elsewhere(llama, alone, tmp_path, at):
    with pytest.raises(KeyboardInterrupt):
        measure(llama, tmp_path, Recorded(at))
    here, files = Here(llama, tmp_path / "worker"), tmp_path.glob("*/*.partial/*.json")
    known = {name for path in files for name in json.loads(path.read_text())}
    assert known
    assert measure(llama, tmp_path, workers=nullcontext(TrialWorkers(here))) == alone
    assert len(here.names) == len({*here.names} - known)  # nothing is measured twice


@pytest.mark.parametrize("task", [PASSKEYS, REPETITION])
def test_texts_are_the_same_after_they_were_sent(llama, task):
    text = recall_text(task, Haystack(llama, SHIPPED_NOVEL.read_text("utf-8")), 2048, 0)
    sent = text_of(json.loads(json.dumps(text_as_json(text))))
    assert text_as_json(sent) == text_as_json(text)
    assert (sent.recalled.dtype, sent.sources.dtype) == (text.recalled.dtype, text.sources.dtype)


def test_a_trial_that_fails_is_told(llama, tmp_path):
    here = SimpleNamespace(results=lambda waiting, message_of, hear: iter([(waiting[0], {"failed": "it died."})]))
    expected = r"What the plan needs \(round 0, layer 0, head 0\) could not be measured: it died\."
    with pytest.raises(OctavoError, match=expected):
        measure(llama, tmp_path, workers=nullcontext(TrialWorkers(here)))


@pytest.mark.slow
def test_the_command_line_uses_a_cluster(dask_cluster, tiny_model, tmp_path):
    """The plan of one command is sent to workers by the next."""
    on_tiny = ["-m", str(tiny_model), "--index-dir", str(tmp_path), "--scheduler", dask_cluster.scheduler_address]
    quick = ["--heads", "--texts", "1", "--tokens", "1024", "--rounds", "1", "--sinks", "16", "--recent", "32"]
    profiled = CliRunner().invoke(cli, ["profile", *on_tiny, *quick])
    assert profiled.exit_code == 0
    assert "measure 2 trials at once." in profiled.stderr
    grid = ["--attention", "duo,plan+quest", "--budgets", "0.9", "--depths", "1400", "--samples", "2"]
    measured = CliRunner().invoke(cli, ["eval", "perplexity", *on_tiny, *grid])
    assert measured.exit_code == 0
    assert [line.split(" | ")[0] for line in measured.stdout.splitlines()[4:]] == ["| dense", "| duo", "| plan+quest"]
