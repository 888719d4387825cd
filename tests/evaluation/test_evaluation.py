"""Whole evaluations of a tiny model: the same samples for all methods, measured once, the same each time."""

import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.evaluation_runs import documents_of, evaluate, evaluation, timeless
from helpers.index_builds import Recorded

import octavo
from octavo.errors import OctavoError
from octavo.evaluation.reader import Reader
from octavo.runtime.methods import METHODS as METHODS_TABLE
from octavo.runtime.methods.squeezed import Squeezed

METHODS = ["squeezed", "streaming", "quest:dense_layers=2", "sparq", "h2o"]
#: Tokens of a text that is long enough to be clustered, and a budget that all methods reach.
DEPTH, BUDGET = 1400, 0.8
MIXED = {"attentions": METHODS, "budgets": [BUDGET], "depths": [DEPTH], "n_samples": 3}


@pytest.fixture(scope="module", params=["agreement", "passkey"])
def task(request):
    """A task whose samples follow one another, and one whose samples each follow the text and are written."""
    return request.param


@pytest.fixture(scope="module")
def measured(task, llama, tmp_path_factory):
    """Run an evaluation: its folder, its result, and for each method what was read before each prompt."""
    folder, prompts = tmp_path_factory.mktemp("eval"), {}
    answer = Reader.answer

    def noted(reader, sample, *arguments):
        llama = reader.llama
        assert llama.n_tokens == llama.context.cache.n_tokens
        seen = tuple(llama.input_ids[: llama.n_tokens].tolist()), tuple(sample.prompt)
        prompts.setdefault(str(llama.attention), []).append(seen)
        return answer(reader, sample, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "answer", noted)
        result = evaluate(llama, folder, task, **MIXED)
    return folder, result, prompts


def records_of(folder):
    [path] = (folder / "tiny.octavo" / "eval").iterdir()
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def rows_of(result):
    return {(row["attention"], row["budget"], row["depth"]): row for row in timeless(result)}


def test_a_result_says_what_was_measured(measured, task):
    _, result, _ = measured
    assert result["task"] == task
    assert (result["model"]["name"], result["data"]["name"], result["seed"]) == ("tiny.gguf", "emma.txt", 0)
    assert result["machine"]["threads"] == 2
    assert list(rows_of(result)) == [("dense", 1, DEPTH), *((method, BUDGET, DEPTH) for method in METHODS)]
    assert [row["samples"] for row in result["results"]] == [3] * 6
    assert result["left_out"] == []


def test_all_methods_see_the_same_samples(measured, task):
    folder, _, prompts = measured
    assert prompts.keys() == {"dense", *METHODS}
    n_before = [DEPTH, DEPTH + 16, DEPTH + 32] if task == "agreement" else [DEPTH] * 3
    assert [len(before) for before, _ in prompts["dense"]] == n_before
    for method in METHODS:
        assert prompts[method] == prompts["dense"]
    places = {}
    for record in records_of(folder):
        if record["kind"] == "sample":
            place = record["depth"], record["text"], record["sample"], record["position"]
            places.setdefault(record["attention"], []).append(place)
    assert all(found == places["dense"] for found in places.values())


def test_shares_are_the_requested_ones(measured):
    for (method, budget, _), row in rows_of(measured[1]).items():
        share = row["bytes_read_share"]
        assert share == (1 if method == "dense" else pytest.approx(budget, rel=0.1))
        assert (row["kl_divergence"] > 1e-3) == (method != "dense")


def test_dense_differs_from_itself_in_nothing(measured, task):
    dense = rows_of(measured[1])["dense", 1, DEPTH]
    assert (dense["difference"], dense["difference_standard_error"], dense["kl_divergence"]) == (0, 0, 0)
    if task == "agreement":
        assert (dense["score"], dense["output_errors"]) == (1, [0, 0, 0])


def test_agreement_tells_the_error_of_each_layer(measured, task):
    if task == "agreement":
        rows = rows_of(measured[1])
        quest, sparq = (rows[method, BUDGET, DEPTH]["output_errors"] for method in ("quest:dense_layers=2", "sparq"))
        assert quest[:2] == [pytest.approx(0, abs=1e-4)] * 2  # its first two layers are dense
        assert 0.001 < quest[2] < 1.5
        assert all(0.001 < error < 1.5 for error in sparq)


def test_nothing_is_measured_twice(measured, task, llama):
    folder, result, _ = measured
    progress, before = Recorded(), records_of(folder)
    assert timeless(evaluate(llama, folder, task, progress, **MIXED)) == timeless(result)
    assert progress.reports == []
    assert records_of(folder) == before


def test_measured_again_it_is_the_same(measured, task, llama, tmp_path):
    assert timeless(evaluate(llama, tmp_path, task, **MIXED)) == timeless(measured[1])


@pytest.mark.slow
def test_an_interrupted_evaluation_goes_on_to_the_same_result(measured, task, llama, tmp_path):
    whole = Recorded()
    evaluate(llama, tmp_path / "whole", task, whole, **MIXED)
    n_reports, n_records = len(whole.reports), len(records_of(measured[0]))
    for at in np.linspace(5, n_reports - 2, 5).astype(int).tolist():
        folder = tmp_path / str(at)
        with pytest.raises(KeyboardInterrupt):
            evaluate(llama, folder, task, Recorded(at), **MIXED)
        done = records_of(folder)
        assert len(done) < n_records
        assert timeless(evaluate(llama, folder, task, **MIXED)) == timeless(measured[1])
        assert records_of(folder)[: len(done)] == done
        assert len(records_of(folder)) == n_records


def test_methods_and_depths_are_added(llama, tmp_path):
    before = evaluate(llama, tmp_path, attentions=["streaming"])
    progress = Recorded()
    more = evaluate(llama, tmp_path, progress=progress, attentions=["streaming", "sparq"], depths=[300, 400])
    rows, added = rows_of(before), rows_of(more)
    assert added.keys() - rows.keys() == {
        ("sparq", BUDGET, 300),
        *((method, budget, 400) for method, budget in (("dense", 1), ("streaming", BUDGET), ("sparq", BUDGET))),
    }
    assert {key: added[key] for key in rows} == rows
    tasks = [report[0] for report in progress.reports if isinstance(report, tuple)]
    assert "streaming, budget 0.8, at 300" not in tasks
    assert "streaming, budget 0.8, at 400" in tasks
    assert rows_of(evaluate(llama, tmp_path, attentions=["streaming"])) == rows


@pytest.mark.parametrize("method", ["squeezed", "quest", "sparq"])
@pytest.mark.parametrize("task", ["agreement", "passkey"])
def test_with_a_budget_of_1_it_is_dense(llama, tmp_path, method, task):
    """The method gets this budget unmatched: to read a share of 1, selection included, it would leave rows out."""
    settings = {**MIXED, "attentions": [method], "budgets": [1.0], "n_samples": 2}
    row = rows_of(evaluate(llama, tmp_path, task, **settings))[method, 1, DEPTH]
    assert 0 <= row["kl_divergence"] < 1e-5
    assert row["difference"] == 0
    assert row["bytes_read_share"] >= 1


def test_a_text_is_read_once_and_clustered_as_each_method_wants(llama, tmp_path, monkeypatch):
    class Finer(Squeezed):
        name = "finer"
        clustering = property(lambda self: {"centroid_share": 0.1, "exact_last": 60})

    monkeypatch.setitem(METHODS_TABLE, "finer", "Finer")
    monkeypatch.setitem(sys.modules, "octavo.runtime.methods.finer", SimpleNamespace(Finer=Finer))
    attend, n_clusters = Reader.attend, {}

    def noted(reader, document, attention):
        n_clusters.setdefault(str(attention), set()).add(document.layers[0].n_clusters)
        attend(reader, document, attention)

    monkeypatch.setattr(Reader, "attend", noted)
    progress = Recorded()
    settings = {**MIXED, "attentions": ["finer", "squeezed", "quest"], "n_samples": 1}
    result = evaluate(llama, tmp_path, "agreement", progress, **settings)
    usual, finer = round(0.05 * (DEPTH - 104)), round(0.1 * (DEPTH - 64))
    assert n_clusters == {"dense": {usual}, "squeezed": {usual}, "quest": {usual}, "finer": {finer}}
    started = [report[0] for report in progress.reports if isinstance(report, tuple)]
    assert [name for name in dict.fromkeys(started) if name.startswith("Reading")] == [f"Reading {DEPTH:,} tokens"]
    rows = rows_of(result)
    assert rows["finer", BUDGET, DEPTH]["kl_divergence"] != rows["squeezed", BUDGET, DEPTH]["kl_divergence"]
    assert rows["finer", BUDGET, DEPTH]["bytes_read_share"] == pytest.approx(BUDGET, rel=0.1)


def test_budgets_that_a_method_does_not_reach_are_left_out(llama, tmp_path):
    notices = []
    settings = {"attentions": ["quest:dense_layers=2", "streaming"], "budgets": [0.4], "depths": [600]}
    result = evaluate(llama, tmp_path, notice=notices.append, **settings)
    assert result["left_out"] == [{"attention": "quest:dense_layers=2", "budget": 0.4, "depth": 600}]
    assert rows_of(result).keys() == {("dense", 1, 600), ("streaming", 0.4, 600)}
    [sentence] = notices
    assert re.fullmatch(
        r"quest:dense_layers=2 read 0\.\d{3} or more with every budget that was tried at 600 tokens: "
        r"0\.4 is left out there\.",
        sentence,
    )
    progress = Recorded()
    assert evaluate(llama, tmp_path, progress=progress, **settings)["left_out"] == result["left_out"]
    assert progress.reports == []
    others = evaluate(llama, tmp_path, **{**settings, "attentions": ["streaming"]})
    assert others["left_out"] == []


def test_what_is_left_out_is_of_the_requested_depths(llama, tmp_path):
    for depth in (300, 320):
        result = evaluate(llama, tmp_path, attentions=["quest:dense_layers=2"], budgets=[0.4], depths=[depth])
        assert result["left_out"] == [{"attention": "quest:dense_layers=2", "budget": 0.4, "depth": depth}]


@pytest.mark.parametrize("task", ["perplexity", "repetition", "needle", "qa"])
def test_every_task_runs(llama, tmp_path, task):
    settings = {"attentions": ["streaming"], "depths": [1500], "n_samples": 2}
    dense, streaming = timeless(evaluate(llama, tmp_path, task, **settings))
    assert (dense["samples"], dense["bytes_read_share"]) == (2, 1)
    assert streaming["bytes_read_share"] == pytest.approx(BUDGET, rel=0.1)
    if task == "perplexity":
        assert 5 < dense["score"] < 30  # bits, of random weights


def test_documents_are_indexed_once(llama, tmp_path):
    data = documents_of(tmp_path / "data.json", 30, 40)
    progress = Recorded()
    settings = {"attentions": ["streaming", "squeezed"], "data": data}
    result = evaluate(llama, tmp_path, "fixed-context", progress, **settings)
    depths = sorted({row["depth"] for row in result["results"]})
    assert len(depths) == 2
    assert [row["samples"] for row in result["results"] if row["attention"] == "streaming"] == [2, 2]
    reading = [report[0] for report in progress.reports if isinstance(report, tuple)]
    assert [task for task in reading if task.startswith("Reading data-")] == ["Reading data-1", "Reading data-2"]
    again = Recorded()
    more = evaluate(llama, tmp_path, "fixed-context", again, **{**settings, "attentions": ["sparq"]})
    assert not [report for report in again.reports if isinstance(report, tuple) and "data-" in report[0]]
    assert rows_of(more)["dense", 1, depths[0]] == rows_of(result)["dense", 1, depths[0]]


def test_the_shortest_text_is_read(llama, tmp_path):
    [row] = evaluate(llama, tmp_path, "perplexity", depths=[1])["results"]
    assert (row["depth"], row["samples"]) == (1, 2)


def test_a_text_that_does_not_fit_is_refused_before_anything_is_read(tiny_model, tmp_path):
    short, progress = octavo.Llama(tiny_model, n_ctx=512, n_threads=2), Recorded()
    with pytest.raises(OctavoError) as refused:
        evaluate(short, tmp_path, progress=progress, depths=[300, 500])
    assert str(refused.value) == (
        "The longest text takes 534 tokens with its questions, and the context holds 512: give smaller --depths, a "
        "larger context (-c, --rope-scaling), or a long-context model with -m."
    )
    assert progress.reports == []
    assert records_of(tmp_path) == []


def test_a_text_that_just_fits_is_read(tiny_model, tmp_path):
    just = octavo.Llama(tiny_model, n_ctx=334, n_threads=2)
    result = evaluate(just, tmp_path, attentions=["streaming", "h2o", "sparq"])
    assert "streaming" in {row["attention"] for row in result["results"]}


def test_runs_are_named_once(llama, tmp_path):
    settings = {"attentions": ["streaming", "dense", "streaming"], "budgets": [0.5, 0.25, 0.5]}
    runs = [(str(run.attention), run.budget) for run in evaluation(llama, tmp_path, **settings).runs]
    assert runs == [("dense", 1), ("streaming", 0.5), ("streaming", 0.25)]
