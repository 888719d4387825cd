"""Documents that a real Dask cluster reads: processes of this machine, on a tiny model."""

import json
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
from helpers.command_line import SENTENCES
from helpers.dask_clusters import Killer, distributed, two_workers

from octavo import OctavoError
from octavo.library.batch import cluster_run as index_on_cluster
from octavo.library.batch.index_documents import index_collection
from octavo.library.batch.index_result import folders_of
from octavo.library.batch.job import ReadDocuments
from octavo.library.reading_job import ReadingJob
from octavo.progress import Silent, of_many
from octavo.runtime.methods.attention import Attention
from octavo.runtime.store.model_library import Library
from octavo.settings import ModelSettings
from octavo.workers import cluster
from octavo.workers.cluster_worker import Order, check

N_DOCUMENTS = 5


def job_of(model, folder, n_ctx=20000, n_threads=1):
    """How documents are read."""
    return ReadingJob(ModelSettings(model, n_ctx, n_threads, index_dir=folder), Attention.parse("auto"))


@pytest.fixture(scope="module")
def dask_cluster():
    with two_workers() as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Documents of some thousand tokens."""
    folder = tmp_path_factory.mktemp("documents")
    for number in range(N_DOCUMENTS):
        text = "".join(f"{number} {i} {SENTENCES}" for i in range(20 + 10 * number))
        (folder / f"report-{number}.txt").write_text(text)
    return folder


@pytest.fixture(scope="module")
def alone(folder, tiny_model, tmp_path_factory):
    """The indexes that are made without a cluster."""
    library = tmp_path_factory.mktemp("alone")
    return folders_of(index_collection([folder], job_of(tiny_model, library), Silent(), print))


class Killing(Silent):
    """A progress that has a worker killed in the midst of its document."""

    def __init__(self, killer):
        self._killer = killer

    def begin(self, n_documents):
        assert n_documents == N_DOCUMENTS

    def document(self, name):
        return self

    def advance(self, amount):
        self._killer.kill()

    def end(self):
        pass


def contents(folder):
    """What an index's files hold, but for times."""
    files = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in ("created", "seconds", "blake3"):
        del manifest[name]
    return {**files, "manifest.json": manifest}


def assert_same(made, alone):
    assert [folder.name for folder in made] == [folder.name for folder in alone]
    for folder, expected in zip(made, alone, strict=True):
        assert contents(folder) == contents(expected)


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "fetched"])
def test_a_worker_that_is_killed_costs_nothing(
    dask_cluster, folder, alone, tiny_model, tmp_path, monkeypatch, is_shared
):
    """All indexes are there at the end, byte for byte those that are made without a cluster."""
    if not is_shared:
        monkeypatch.setattr(index_on_cluster, "_probe", hidden)
    notices = []
    address = dask_cluster.scheduler_address

    def index(progress):
        made = index_collection([folder], job_of(tiny_model, tmp_path), progress, notices.append, scheduler=address)
        return folders_of(made)

    with Killer(dask_cluster) as killer:
        made = index(Killing(killer))
    assert killer.killed
    where = "Indexes are written into" if is_shared else "Workers do not see"
    assert notices[0].startswith(f"2 workers read 2 documents at once. {where} {tmp_path}")
    assert_same(made, alone)
    assert all(folder.parent == tmp_path / "tiny.octavo" for folder in made)
    left = {path.name for path in (tmp_path / "tiny.octavo").iterdir()} - {folder.name for folder in made}
    assert left == {"model.json"}

    notices.clear()
    assert index(Silent()) == made
    assert not [notice for notice in notices if notice.startswith("Indexing")]


@contextmanager
def hidden(library):
    """A name that workers look for in vain, as if they had another disk."""
    library.make_folder()
    yield ".no-such-file"


def test_documents_that_fail_do_not_stop_the_others(dask_cluster, folder, tiny_model, tmp_path):
    (tmp_path / "long.txt").write_text(SENTENCES * 30_000)  # too long for a hundred parts
    named = [tmp_path / "missing.txt", tmp_path / "long.txt", folder / "report-0.txt"]
    address = dask_cluster.scheduler_address
    made = index_collection(named, job_of(tiny_model, tmp_path), Silent(), print, scheduler=address)
    assert [bool(outcome.folders) for outcome in made] == [False, False, True]
    assert "missing.txt cannot be opened" in made[0].problem
    assert "but this context holds 20,000" in made[1].problem


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "fetched"])
def test_parts_of_a_long_document_are_those_that_are_made_without_a_cluster(
    dask_cluster, folder, tiny_model, tmp_path, monkeypatch, is_shared
):
    if not is_shared:
        monkeypatch.setattr(index_on_cluster, "_probe", hidden)
    job, address = job_of(tiny_model, tmp_path, n_ctx=2048), dask_cluster.scheduler_address
    paths, notices = [folder / "report-1.txt"], []
    alone = folders_of(index_collection(paths, job_of(tiny_model, tmp_path / "alone", n_ctx=2048), Silent(), print))
    for _ in range(2):
        made = index_collection(paths, job, Silent(), notices.append, scheduler=address)
        assert [(outcome.name, len(outcome.folders)) for outcome in made] == [("report-1.txt", len(alone))]
        assert_same(folders_of(made), alone)
        assert all(folder.parent == tmp_path / "tiny.octavo" for folder in folders_of(made))
    assert len(alone) > 1
    assert len([notice for notice in notices if notice.startswith("Indexing")]) == len(alone)


def test_a_worker_that_lacks_the_model_is_told(dask_cluster, folder, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_path_on_workers", lambda model: "/nowhere/tiny.gguf")
    job, address = job_of(tiny_model, tmp_path, 0, None), dask_cluster.scheduler_address
    with pytest.raises(OctavoError, match=r"The worker tcp://.* cannot be used: it has no model /nowhere/tiny"):
        index_on_cluster.index_on_cluster([], job, "/nowhere", address, of_many(Silent(), 1), print)


def test_where_a_worker_finds_the_model(tiny_model, tmp_path, monkeypatch):
    model = Library.of(tiny_model, tmp_path)
    order = Order("", {}, "/nowhere/tiny.gguf", "/nowhere", model.model_hash)
    assert check(order).startswith(
        "it has no model /nowhere/tiny.gguf: copy it there, or start the worker with OCTAVO_"
    )
    monkeypatch.setenv("OCTAVO_MODEL", str(tiny_model))
    assert check(order) == ""
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    monkeypatch.setenv("OCTAVO_MODEL", str(other))
    assert check(order) == f"its {other} is another model than this machine's: copy it there."
    assert "install the same" in check(replace(order, version="0.0.1"))


def test_a_plan_is_sent_with_what_belongs_to_it(tiny_model, tmp_path):
    library = Library.of(tiny_model, tmp_path)
    for name in ("plan.json", "gates.tsv", "config.json"):
        (tmp_path / name).write_text(name)
    for plan, sent in {
        "plan.json": {"plan.json": b"plan.json"},
        "gates.tsv": {"gates.tsv": b"gates.tsv", "config.json": b"config.json"},
        "missing.json": {},
    }.items():
        order = cluster.order_for(ReadDocuments, {}, library, tiny_model, None, 1, tmp_path / plan)
        assert order.files == sent
        assert order.settings["plan"] == (plan if sent else None)


@pytest.mark.slow
def test_a_scheduler_that_goes_is_told(folder, tiny_model, tmp_path):
    gone = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None)

    class Closing(Silent):
        def begin(self, n_documents):
            gone.close()

        def document(self, name):
            return of_many(Silent(), 1).document(name)

    address = gone.scheduler_address
    with pytest.raises(OctavoError, match="The Dask scheduler is gone: start it, and the same command resumes"):
        index_collection([folder], job_of(tiny_model, tmp_path), Closing(), print, scheduler=address)
    assert not list(tmp_path.glob("*/.probe*"))


def test_a_cluster_that_is_not_there_is_told(folder, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT", 1)
    with pytest.raises(OctavoError, match=r"There is no Dask scheduler at tcp://127.0.0.1:1: start one with"):
        index_collection([folder], job_of(tiny_model, tmp_path), Silent(), print, scheduler="tcp://127.0.0.1:1")
    with pytest.raises(OctavoError, match="leave the jobs out"):
        index_collection(
            [folder], job_of(tiny_model, tmp_path), Silent(), print, scheduler="tcp://127.0.0.1:1", n_jobs=2
        )


def test_dask_that_is_not_installed_is_told(folder, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(OctavoError, match=r'A cluster needs dask.distributed: pip install "octavo\[cluster\]"'):
        index_collection([folder], job_of(tiny_model, tmp_path), Silent(), print, scheduler="tcp://127.0.0.1:1")
