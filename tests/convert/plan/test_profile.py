"""A model's plan: what it says, and that nothing measured is lost."""

import json
import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny_models
from helpers.index_builds import Recorded
from helpers.waiting import wait_until

import octavo
from octavo import OctavoError
from octavo.convert.plan import layer_importance as layers_module
from octavo.convert.plan import profile as profile_module
from octavo.convert.plan.heads import full_heads
from octavo.convert.plan.plan_file import kept_heads
from octavo.convert.plan.profile import ProfileSettings, profile
from octavo.convert.plan.recall_texts import PASSKEYS, REPETITION
from octavo.progress import Silent
from octavo.runtime.methods.assignment import assign
from octavo.runtime.methods.attention import Attention
from octavo.runtime.methods.method import Storage
from octavo.runtime.store.model_library import Library
from octavo.runtime.store.plan import read_plan
from octavo.system.locks import is_locked, locked_new

pytestmark = pytest.mark.sampled

METHODS = ["h2o", "quest"]
SETTINGS = ProfileSettings(texts=2, tokens=1024, rounds=2, sinks=16, recent=32, heads=True)


@pytest.fixture(scope="module", autouse=True)
def _few_methods():
    """Have budgets checked for two methods: one that forgets rows, and one that selects them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile_module, "methods_with_layer_budgets", lambda: METHODS)
        yield


@pytest.fixture(scope="module")
def llama(tiny_model):
    return octavo.Llama(tiny_model, n_threads=1)


class Notices(list):
    def __call__(self, sentence):
        self.append(sentence)


def measure(llama, folder, settings=SETTINGS, progress=None, notices=None):
    notice = Notices() if notices is None else notices
    return profile(llama, Library.of(llama.model_path, folder), settings, progress or Silent(), notice)


def timeless(plan):
    return {name: value for name, value in plan.items() if name != "created"}


@pytest.fixture(scope="module")
def folder(llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    measure(llama, folder)
    return folder


@pytest.fixture(scope="module")
def plan(llama, folder):
    """The plan of an uninterrupted run, as it is on disk."""
    return json.loads(Library.of(llama.model_path, folder).plan_path.read_text())


def test_a_plan_says_what_was_measured(llama, plan, folder):
    assert plan["model"]["name"] == "tiny.gguf"
    assert (plan["attention"], plan["retrieval_heads"]) == ("duo+squeezed", 0.5)
    assert (plan["task"], plan["passkey_words"]) == (REPETITION, 0)  # its weights are random
    assert plan["passkey_accuracy"] < 0.5
    assert plan["measured_with"]["tokens"] == 1024
    assert plan["measured_with"]["novel"]["name"] == "emma.txt"
    heads = plan["heads"]
    assert sorted(map(tuple, heads["elimination"])) == full_heads(llama.context.cache)
    assert heads["round"] == [0, 0, 0, 0, 1, 1]
    assert all(loss > 0 for loss in heads["loss"])
    layers = plan["layers"]
    assert sum(layers["sensitivity"]) == pytest.approx(1, abs=1e-5)
    assert min(layers["sensitivity"]) > 0
    assert set(layers["budget_scale"]) == set(layers["checks"]["equal"]) == set(METHODS)
    assert all(sum(scale) == pytest.approx(3, abs=1e-3) for scale in layers["budget_scale"].values())
    assert [each.name for each in (folder / "tiny.octavo").iterdir() if each.is_dir()] == []  # nothing partial
    text = Library.of(llama.model_path, folder).plan_path.read_text()
    assert max(map(len, text.splitlines())) < 150
    assert len(text.splitlines()) < 80


def test_the_runtime_reads_a_plan(llama, plan, folder):
    read = read_plan(Library.of(llama.model_path, folder).plan_path)
    read.check(llama.context.cache.layers)
    assert read.elimination == tuple(map(tuple, plan["heads"]["elimination"]))
    assert read.layer_scale == {name: tuple(scale) for name, scale in plan["layers"]["budget_scale"].items()}
    assert read.groups == tuple(plan["layers"]["group"])
    assert (read.n_sinks, read.n_recent, read.model) == (16, 64, plan["model"]["sha256"])
    own = octavo.Llama(llama.model_path, attention="duo", plan=read, retrieval_heads=0.5, n_threads=2)
    own.eval(list(range(100)))
    streams = [tail.method.storage is Storage.SINKS_AND_WINDOW for tail in own.context.cache.tails]
    assert sum(streams) == 3
    assert all(streams[2 * layer + head] for layer, head in read.elimination[:3])
    assert np.isfinite(own.logits()).all()


def test_a_finished_plan_is_not_measured_again(llama, plan, folder):
    progress, notices = Recorded(), Notices()
    assert timeless(measure(llama, folder, progress=progress, notices=notices)) == timeless(plan)
    assert progress.reports == []
    [sentence] = notices
    assert sentence.endswith(": nothing is measured again.")


@pytest.mark.parametrize(
    "damage", [lambda plan: {}, lambda plan: {**plan, "model": {"name": "", "sha256": "0"}}, lambda plan: []]
)
def test_a_plan_of_something_else_is_measured_again(llama, plan, tmp_path, damage):
    library = Library.of(llama.model_path, tmp_path)
    library.make_folder()
    library.plan_path.write_text(json.dumps(damage(plan)))
    assert timeless(measure(llama, tmp_path)) == timeless(plan)


def reports_of(llama, folder):
    progress = Recorded()
    measure(llama, folder, progress=progress)
    return progress.reports


def test_a_profile_reports_all_of_its_work(llama, tmp_path):
    reports = reports_of(llama, tmp_path)
    tasks = [report for report in reports if isinstance(report, tuple)]
    assert [task[0] for task in tasks] == [
        "Reading text 1 (passkeys)",
        "Reading text 1 (repetition)",
        "Reading text 2 (repetition)",
        "Letting heads stream",
        "Reading text 1 (prose)",
        "Weighing layers",
        "Checking budgets",
    ]
    assert sum(report for report in reports if isinstance(report, int)) == sum(task[1] for task in tasks)
    assert tasks[3][1:] == (6 + 2, "trials", 0)
    assert tasks[5][1:] == (2 * 3, "trials", 0)
    assert len(reports) == REPORTS


REPORTS = 7 + 2 + 2 + 2 + 8 + 2 + 6 + len(METHODS)  # seven tasks; two batches of each text; trials; checks


@pytest.mark.parametrize("at", [0, 2, 8, 10, 13, 19, 23, 28, REPORTS - 1])
def test_an_interrupted_profile_goes_on_to_the_same_plan(llama, plan, tmp_path, at):
    with pytest.raises(KeyboardInterrupt):
        measure(llama, tmp_path, progress=Recorded(at))
    library = Library.of(llama.model_path, tmp_path)
    assert not library.plan_path.exists()
    assert timeless(measure(llama, tmp_path)) == timeless(plan)
    assert timeless(json.loads(library.plan_path.read_text())) == timeless(plan)


def test_what_was_measured_is_not_measured_again(llama, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        measure(llama, tmp_path, progress=Recorded(at=14))  # after five trials
    reports = reports_of(llama, tmp_path)
    assert reports[0] == ("Letting heads stream", 8, "trials", 5)
    assert reports[1:4] == [1] * 3


def test_other_settings_are_measured_anew_and_leave_what_else_is_unfinished(llama, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        measure(llama, tmp_path, progress=Recorded(at=14))
    library = tmp_path / "tiny.octavo"
    (library / "plan-0123456789ab.partial").mkdir()  # of a document named plan.txt
    unfinished = set(library.glob("*.partial"))
    other = ProfileSettings(texts=1, tokens=1024, rounds=1, sinks=8, recent=32, heads=True)
    progress = Recorded()
    assert measure(llama, tmp_path, other, progress=progress)["heads"]["n_sinks"] == 8
    assert set(progress.done_before) == {0}
    assert set(library.glob("*.partial")) == unfinished
    assert len(unfinished) == 2


def test_two_profiles_of_a_model_do_not_measure_at_once(llama, tmp_path, plan):
    """The second one waits, and takes the plan of the first."""
    library = Library.of(llama.model_path, tmp_path)
    library.make_folder()
    profiler = profile_module.Profiler(llama, library, SETTINGS, Recorded(), Notices())
    waits, measured = Notices(), []
    with locked_new(profiler.folder):
        assert is_locked(profiler.folder)
        thread = threading.Thread(target=lambda: measured.append(measure(llama, tmp_path, notices=waits)))
        thread.start()
        wait_until(lambda: waits)
        library.plan_path.write_text(json.dumps(plan))
    thread.join(60)
    assert waits[0] == "Another octavo measures this model: waiting for it."
    assert timeless(measured[0]) == timeless(plan)
    assert not profiler.folder.exists()


def test_a_model_that_recalls_passkeys_is_measured_on_them(llama, tmp_path, monkeypatch):
    monkeypatch.setattr(profile_module, "LEAST_ACCURACY", 0.0)
    notices = Notices()
    own = measure(llama, tmp_path, notices=notices)
    assert own["task"] == PASSKEYS
    assert own["passkey_words"] > 0
    assert notices == []


def test_a_model_that_does_not_is_told_of(llama, tmp_path):
    notices = Notices()
    measure(llama, tmp_path, ProfileSettings(1, 1024, 1, 16, 32, heads=True), notices=notices)
    [sentence] = notices
    assert re.fullmatch(
        r"The model recalls \d+% of the passkeys' tokens: it is measured on repeated text instead\.", sentence
    )


def test_a_short_context_takes_shorter_texts(tiny_model, tmp_path):
    short, notices = octavo.Llama(tiny_model, n_ctx=900, n_threads=2), Notices()
    own = measure(short, tmp_path, notices=notices)
    assert own["measured_with"]["tokens"] == 900
    assert notices[0] == "The model's context holds 900 tokens: its texts have so many, and not 1,024."
    with pytest.raises(OctavoError, match=r"miss too little of a text of 900 tokens: give 1,000 or more"):
        measure(short, tmp_path, ProfileSettings(sinks=100, recent=400, heads=True))


def test_layers_of_an_unknown_graph_get_the_same_budget(llama, plan, tmp_path, monkeypatch):
    monkeypatch.setattr(layers_module, "_ATTENDED", ("unheard_of",))
    notices = Notices()
    own = measure(llama, tmp_path, notices=notices)
    assert own["layers"]["similarity"] is None
    assert own["layers"]["group"] == [None] * 3
    assert own["layers"]["budget_scale"] == plan["layers"]["budget_scale"]
    assert own["heads"] == plan["heads"]
    assert notices[-1].startswith("How important layers are cannot be told")


def test_only_layers_that_see_everything_are_measured(tmp_path):
    path = tiny_models.write_model(tmp_path / "gemma.gguf", "gemma3", n_layer=12)
    model = octavo.Llama(path, n_threads=2)
    own = measure(model, tmp_path, ProfileSettings(1, 1024, 1, 16, 32, heads=True))
    assert sorted(own["heads"]["elimination"]) == [[5, 0], [5, 1], [11, 0], [11, 1]]
    assert [i for i, slides in enumerate(own["layers"]["slides"]) if not slides] == [5, 11]
    assert [i for i, value in enumerate(own["layers"]["sensitivity"]) if value is not None] == [5, 11]
    for scale in own["layers"]["budget_scale"].values():
        assert scale[5] + scale[11] == pytest.approx(2, abs=1e-3)
        assert [value for i, value in enumerate(scale) if i not in (5, 11)] == [1.0] * 10
    read_plan(Library.of(path, tmp_path).plan_path).check(model.context.cache.layers)


def test_without_heads_the_layers_alone_are_measured_on_the_first_text(llama, plan, tmp_path):
    progress = Recorded()
    own = measure(llama, tmp_path, replace(SETTINGS, heads=False), progress=progress)
    names = [report[0] for report in progress.reports if isinstance(report, tuple)]
    assert names == [
        "Reading text 1 (passkeys)",
        "Reading text 1 (repetition)",
        "Reading text 1 (prose)",
        "Weighing layers",
        "Checking budgets",
    ]
    assert (own["heads"]["elimination"], own["attention"]) == ([], "auto")
    assert own["layers"]["sensitivity"] == plan["layers"]["sensitivity"]
    path = Library.of(llama.model_path, tmp_path).plan_path
    read = read_plan(path)
    read.check(llama.context.cache.layers)
    assert Attention.parse("plan", plan=read).auto is not None
    with pytest.raises(OctavoError, match=r"no order of heads, which duo needs: `octavo profile --heads` measures it"):
        assign(Attention.parse("duo", plan=read), llama.context.cache.layers)
    assert timeless(measure(llama, tmp_path)) == timeless(plan), "measured again, with the heads"
    assert timeless(measure(llama, tmp_path, replace(SETTINGS, heads=False))) == timeless(plan)


def with_plan(llama, folder, plan):
    """Write a plan of a model, and return its file."""
    library = Library.of(llama.model_path, folder)
    library.make_folder()
    library.plan_path.write_text(json.dumps(plan))
    return library.plan_path


def tasks_of(progress):
    return [report[0] for report in progress.reports if isinstance(report, tuple)]


def test_a_profile_of_the_layers_keeps_measured_heads(llama, plan, tmp_path):
    """Also what the user edited of them; and the heads are not measured again, if they are asked for."""
    path = with_plan(llama, tmp_path, {**plan, "attention": "duo+quest", "retrieval_heads": 0.25})
    shorter, notices = ProfileSettings(tokens=900), Notices()
    own = measure(llama, tmp_path, shorter, notices=notices)
    assert "The plan keeps the heads that were measured before." in notices
    assert own == json.loads(path.read_text())
    assert own["measured_with"]["tokens"] == 900
    assert own["layers"]["sensitivity"] != plan["layers"]["sensitivity"]
    assert own["heads"] == {**plan["heads"], "measured_with": plan["measured_with"]}
    assert (own["attention"], own["retrieval_heads"]) == ("duo+quest", 0.25)
    assign(Attention.parse("duo", plan=read_plan(path)), llama.context.cache.layers)

    progress = Recorded()
    again = measure(llama, tmp_path, progress=progress)
    assert "Letting heads stream" not in tasks_of(progress)
    assert again["heads"] == own["heads"]
    assert again["layers"] == plan["layers"]


def test_layers_that_were_measured_with_heads_are_not_measured_again(llama, plan, tmp_path):
    """However the heads were measured: what they alone depend on does not concern layers."""
    path = with_plan(llama, tmp_path, plan)
    before, progress = path.read_text(), Recorded()
    for settings in (ProfileSettings(tokens=1024), ProfileSettings(texts=5, tokens=1024, rounds=40, sinks=1, recent=2)):
        assert measure(llama, tmp_path, settings, progress=progress) == plan
    assert (progress.reports, path.read_text()) == ([], before)


def test_heads_of_other_settings_are_measured_anew(llama, plan, tmp_path):
    with_plan(llama, tmp_path, plan)
    progress = Recorded()
    own = measure(llama, tmp_path, replace(SETTINGS, sinks=8), progress=progress)
    assert "Letting heads stream" in tasks_of(progress)
    assert own["heads"]["n_sinks"] == 8
    assert own["heads"].keys() == plan["heads"].keys()


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"name": "tiny.gguf", "sha256": "0" * 64}},
        {"format_version": 2},
        {"measured_with": None},
        {"heads": {"n_sinks": 16, "n_recent": 64, "elimination": []}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_heads_of_something_else_are_not_kept(llama, plan, tmp_path, change):
    with_plan(llama, tmp_path, {**plan, **change})
    settings = {**plan["measured_with"], "heads": False}
    assert kept_heads(Library.of(llama.model_path, tmp_path), settings) == {}


def test_a_plan_from_before_heads_could_be_left_out_keeps_its_heads(llama, plan, tmp_path):
    older = {name: value for name, value in plan["measured_with"].items() if name != "heads"}
    with_plan(llama, tmp_path, {**plan, "measured_with": older})
    library = Library.of(llama.model_path, tmp_path)
    kept = kept_heads(library, {**older, "tokens": 900, "heads": False})
    assert kept["heads"] == {**plan["heads"], "measured_with": plan["measured_with"]}
    assert kept_heads(library, plan["measured_with"]) == kept
    assert kept_heads(library, {**plan["measured_with"], "rounds": 3}) == {}
