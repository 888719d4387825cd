"""Evaluations on a real Dask cluster, two processes of this machine, find what this machine finds alone."""

import json
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from helpers.dask_clusters import Killer, two_workers
from helpers.evaluation_runs import TIMES, documents_of, evaluation, timeless
from helpers.index_builds import Recorded

import octavo
from octavo import OctavoError
from octavo.cli.main import cli
from octavo.evaluation.cluster_evaluation import MeasureTexts, TextWorkers, text_as_json, text_of, text_workers
from octavo.evaluation.tasks import TASKS, task_class
from octavo.evaluation.tasks.needle import Passkey
from octavo.progress import Silent
from octavo.runtime.store.model_library import Library
from octavo.settings import ModelSettings

LOAD = {"n_ctx": 0, "cache_type": "f16", "device": "auto", "rope_scaling": None, "rope_scale": 1.0}
TASK = Passkey(per_text=2)
#: Two depths of three texts, and two budgets, of which some are out of a method's reach.
GRID = {
    "attentions": ["squeezed", "quest:dense_layers=2"],
    "budgets": [0.8, 0.4],
    "depths": [600, 1400],
    "n_samples": 6,
}


@pytest.fixture(scope="module")
def dask_cluster():
    with two_workers() as made:
        yield made


@pytest.fixture(scope="module")
def llama(tiny_model):
    """A model with one thread, as the workers' processes: sums are added in the same order."""
    return octavo.Llama(tiny_model, n_threads=1)


@pytest.fixture(scope="module")
def alone(llama, tmp_path_factory):
    """The folder and the result of an evaluation without a cluster."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, evaluation(llama, folder, TASK, **GRID).run()


class Counted(Silent):
    """A progress that counts texts, and does something after each."""

    def __init__(self, then=lambda: None):
        self.total, self.done, self._then = None, 0, then

    def start(self, task, total, unit, done=0):
        if unit == "texts":
            self.total = total

    def advance(self, amount):
        if self.total is not None:
            self.done += amount
            self._then()


def records_of(folder):
    """What the results file holds, but for times and the order in which it came."""
    [path] = (folder / "tiny.octavo" / "eval").iterdir()
    records = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    own = [{name: value for name, value in record.items() if name not in TIMES} for record in records]
    return sorted(json.dumps(record) for record in own)


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing(dask_cluster, llama, alone, tmp_path):
    notices = []

    def run(progress):
        library, address = Library.of(llama.model_path, tmp_path), dask_cluster.scheduler_address
        with text_workers(address, llama, library, TASK, ModelSettings(n_threads=1), None) as workers:
            return evaluation(llama, tmp_path, TASK, progress, notices.append, workers, **GRID).run()

    with Killer(dask_cluster) as killer:
        progress = Counted(killer.kill)
        result = run(progress)
    assert killer.killed
    assert (progress.total, progress.done) == (6, 6)
    assert notices[0] == "2 workers measure 2 texts at once."
    assert any(notice.endswith(": 0.4 is left out there.") for notice in notices)
    assert timeless(result) == timeless(alone[1])
    assert result["left_out"] == alone[1]["left_out"] != []
    assert records_of(tmp_path) == records_of(alone[0])
    assert result["machine"]["cpu"].endswith(" (Dask workers: 2)")
    assert (result["machine"]["threads"], result["machine"]["device"]) == (1, "auto")

    again = Counted()
    assert run(again) == result
    assert again.total is None  # nothing is measured twice


@pytest.mark.slow
def test_the_command_line_uses_a_cluster(dask_cluster, tiny_model, tmp_path):
    settings = ["--attention", "streaming", "--budgets", "0.8", "--depths", "300,400", "--samples", "2"]
    command = ["eval", "perplexity", "-m", str(tiny_model), "--index-dir", str(tmp_path), *settings, "-o", "json"]
    measured = CliRunner().invoke(cli, [*command, "--scheduler", dask_cluster.scheduler_address])
    assert measured.exit_code == 0
    assert "workers measure 2 texts at once." in measured.stderr
    shown = CliRunner().invoke(cli, command)
    assert shown.stdout == measured.stdout
    assert shown.stderr.startswith("The samples are kept in")


class Here:
    """Workers of a cluster in this process, which get and give what JSON can say."""

    def __init__(self, llama, folder, task):
        own = {"model": str(llama.model_path), "n_threads": 1, "folder": str(folder), "plan": None}
        self.order = SimpleNamespace(settings={"task": {"name": task.name, **vars(task)}, "load": LOAD, **own})
        self._work = MeasureTexts(self.order.settings, SimpleNamespace(start=ignore, advance=ignore, notice=ignore))

    def ask(self, question):
        return {"here": ("a CPU", 1)}

    def at_once(self, do, tasks):
        return ""

    def results(self, waiting, message_of, hear):
        while waiting:
            numbered = waiting.popleft()
            message = message_of(numbered)
            if message is not None:
                yield numbered, {"result": json.loads(json.dumps(self._work.do(json.loads(json.dumps(message)))))}


def ignore(*arguments):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("at", [5, 9, 20, 40, 60])
def test_an_interrupted_evaluation_goes_on_elsewhere(llama, alone, tmp_path, at):
    with pytest.raises(KeyboardInterrupt):
        evaluation(llama, tmp_path, TASK, Recorded(at), **GRID).run()
    workers = TextWorkers(Here(llama, tmp_path / "worker", TASK))
    assert timeless(evaluation(llama, tmp_path, TASK, workers=workers, **GRID).run()) == timeless(alone[1])
    assert records_of(tmp_path) == records_of(alone[0])


@pytest.mark.parametrize("name", ["agreement", "sources", "fixed-context"])
def test_tasks_of_all_kinds_are_measured_elsewhere(llama, tmp_path, name):
    """Samples that follow one another, those whose sources are looked for, and documents that are indexed."""
    settings = {"attentions": ["squeezed", "streaming"], "depths": [1500]}
    if name == "fixed-context":
        settings["data"] = documents_of(tmp_path / "data.json", 30, 40)
    alone = evaluation(llama, tmp_path / "alone", name, **settings).run()
    workers = TextWorkers(Here(llama, tmp_path / "worker", task_class(name)()))
    result = evaluation(llama, tmp_path / "own", name, workers=workers, **settings).run()
    assert timeless(result) == timeless(alone)
    assert records_of(tmp_path / "own") == records_of(tmp_path / "alone")


@pytest.mark.parametrize("name", [name for name in TASKS if not task_class(name).own_depths])
def test_texts_are_the_same_after_they_were_sent(llama, name):
    task = task_class(name)()
    for text in task.texts(llama, task.data, 16000, 2, 0):
        sent = text_of(json.loads(json.dumps(text_as_json(text))))
        assert text_as_json(sent) == text_as_json(text)
        for own, other in zip(sent.samples, text.samples, strict=True):
            assert replace(own, text=None) == replace(other, text=None)


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ({"failed": "each worker that tried it died."}, "Text 1 at 300 tokens could not be measured: each worker that"),
        ({"error": "The disk of /tmp is full."}, "The disk of /tmp is full"),
    ],
)
def test_a_text_that_cannot_be_measured_is_told(llama, tmp_path, outcome, message):
    here = Here(llama, tmp_path, task_class("agreement")())
    here.results = lambda waiting, message_of, hear: iter([(waiting.popleft(), outcome)])
    with pytest.raises(OctavoError, match=message):
        evaluation(llama, tmp_path, workers=TextWorkers(here)).run()


def test_budgets_are_matched_at_each_depth_by_itself(llama, alone, tmp_path):
    """So a depth's figures do not depend on what other depths are measured, and depths need not wait."""
    one = evaluation(llama, tmp_path, TASK, **{**GRID, "depths": [1400]}).run()
    rows = defaultdict(list)
    for row in timeless(alone[1]):
        rows[row["depth"]].append(row)
    assert timeless(one) == rows[1400]
