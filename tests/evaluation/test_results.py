"""What was measured, on disk; and its means, against numbers by hand."""

import json
import re
from math import sqrt

import numpy as np
import pytest
from helpers.evaluation_runs import documents_of, evaluation

import octavo
from octavo.errors import OctavoError
from octavo.evaluation import evaluate as evaluate_module
from octavo.evaluation.folders import evaluate_folder
from octavo.evaluation.folders.evaluate_folder import FolderEvaluation, FolderSettings
from octavo.evaluation.folders.folder_needle import FolderNeedle
from octavo.evaluation.results import (
    FAILS,
    HOLDS,
    MARGIN,
    OPEN,
    UNDONE,
    Results,
    independent_mean,
    non_inferiority,
    summary,
    t_quantile,
)
from octavo.evaluation.tasks import TASKS, task_class
from octavo.evaluation.tasks.task import NOVEL
from octavo.progress import Silent
from octavo.runtime.store.model_library import Library
from octavo.runtime.store.plan import Plan

HEADER = {"task": {"name": "passkey"}, "samples": 2}


def record(attention="dense", sample=0, **values):
    default = {
        "budget": 1.0,
        "depth": 300,
        "text": 0,
        "score": 1.0,
        "written": "ein Schlüssel\u2028\n",
        "position": None,
    }
    counts = {"divergence": 0.0, "steps": 4, "bytes_read": 10, "dense_bytes": 10, "errors": None}
    return {"attention": attention, "sample": sample, **default, **counts, **values}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "eval" / "passkey.jsonl"


@pytest.fixture
def written(path):
    """The results of two samples and two budgets."""
    results = Results(path, HEADER)
    results.add_sample(record())
    results.add_budget("quest", 0.25, 300, 0.21)
    results.add_sample(record("quest", 1, budget=0.25, score=0.0))
    results.add_budget("h2o", 0.25, 300, None)
    return results


def test_records_survive(path, written):
    read = Results(path, HEADER)
    assert {key: {**found, "kind": "sample"} for key, found in written.samples.items()} == read.samples
    assert read.samples.keys() == {("dense", 1.0, 300, 0, 0), ("quest", 0.25, 300, 0, 1)}
    assert read.budgets == written.budgets == {("quest", 0.25, 300): 0.21, ("h2o", 0.25, 300): None}


def test_evaluations_write_at_the_same_time(path):
    first, second = Results(path, HEADER), Results(path, {**HEADER, "machine": "another"})
    first.add_sample(record(sample=0))
    second.add_sample(record(sample=1, depth=600))
    first.add_budget("quest", 0.25, 300, 0.21)
    assert first.header == second.header == HEADER
    read = Results(path, HEADER)
    assert read.samples.keys() == {("dense", 1.0, 300, 0, 0), ("dense", 1.0, 600, 0, 1)}
    assert read.budgets == {("quest", 0.25, 300): 0.21}


def test_the_file_begins_with_what_it_depends_on(path, written):
    lines = path.read_text("utf-8").splitlines()
    assert json.loads(lines[0]) == HEADER
    assert [json.loads(line)["kind"] for line in lines[1:]] == ["sample", "matched", "sample", "matched"]


@pytest.mark.parametrize("n_lost", [1, 2, 30])
def test_a_last_line_that_was_cut_off_does_not_count(path, written, n_lost):
    whole = path.read_bytes()
    path.write_bytes(whole[:-n_lost])
    read = Results(path, HEADER)
    assert len(read.samples) == 2
    assert read.budgets.keys() == {("quest", 0.25, 300)}
    read.add_budget("h2o", 0.25, 300, None)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("n_left", [0, 5])
def test_a_first_line_that_was_cut_off_is_written_again(path, n_left):
    Results(path, HEADER)
    path.write_bytes(path.read_bytes()[:n_left])
    Results(path, HEADER).add_sample(record())
    assert json.loads(path.read_text("utf-8").splitlines()[0]) == HEADER
    assert len(Results(path, HEADER).samples) == 1


def test_results_that_cannot_be_written_are_refused(tmp_path):
    (tmp_path / "eval").write_text("a file")
    with pytest.raises(OctavoError, match="cannot be used"):
        Results(tmp_path / "eval" / "passkey.jsonl", HEADER)


def test_what_samples_depend_on_is_in_the_name(llama, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("Another text. " * 200)
    passkeys = {"task": "passkey", "depths": [600]}
    ways = [{}, {"seed": 1}, {"n_samples": 3}, {"task": "perplexity"}, {"data": short}, passkeys]
    assert len({evaluation(llama, tmp_path, **way).results.path for way in ways}) == len(ways)
    same = [{"attentions": ["quest"]}, {"budgets": [0.5]}, {"depths": [400]}]
    assert {evaluation(llama, tmp_path, **way).results.path for way in same} == {
        evaluation(llama, tmp_path).results.path
    }


def test_methods_that_go_by_a_plan_are_named_by_it(llama, tmp_path):
    heads = ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1))
    plans = [Plan("-", "duo+squeezed", 0.5, 4, n_recent, {}, heads, (None,) * 3) for n_recent in (20, 200)]
    evaluations = [evaluation(llama, tmp_path, attentions=["duo", "quest"], plan=plan) for plan in plans]
    first, second = ([run.name for run in each.runs] for each in evaluations)
    assert first[0] == second[0] == "dense"
    assert re.fullmatch("duo@[0-9a-f]{8}", first[1])
    assert first[1] != second[1]
    assert first[2] == second[2] == "quest"
    assert {each.results.path for each in evaluations} == {evaluation(llama, tmp_path).results.path}


def test_a_documents_own_text_is_in_the_name(llama, tmp_path):
    (tmp_path / "island.txt").write_text("An island. " * 20)
    data = tmp_path / "data.json"
    data.write_text('{"file": "island.txt", "questions": [{"question": "What?", "answers": ["An island"]}]}')
    before = evaluation(llama, tmp_path, "fixed-context", data=data).results.path
    (tmp_path / "island.txt").write_text("A rocket. " * 22)
    assert evaluation(llama, tmp_path, "fixed-context", data=data).results.path != before


def test_seconds_are_of_one_machine(llama, tmp_path, monkeypatch):
    """Results with seconds are not mixed with those of another number of threads."""

    def paths():
        data = documents_of(tmp_path / "data.json", 10)
        folders = FolderSettings([300], 2, 0, NOVEL)
        of_folder = FolderEvaluation(
            llama, Library.of(llama.model_path, tmp_path), FolderNeedle(), folders, Silent(), print
        )
        alone = (evaluation(llama, tmp_path, "fixed-context", data=data), evaluation(llama, tmp_path, "passkey"))
        return [each.results.path for each in (*alone, of_folder)]

    fixed_context, passkey, folder = paths()
    assert paths() == [fixed_context, passkey, folder]
    other = {"cpu": "A CPU", "threads": 8, "device": "cpu"}
    for module in (evaluate_module, evaluate_folder):
        monkeypatch.setattr(module, "machine_of", lambda llama: other)
    now = paths()
    assert now[1] == passkey
    assert now[0] != fixed_context
    assert now[2] != folder


@pytest.mark.parametrize("task", TASKS)
def test_tasks_with_seconds_say_so(task):
    figures = task_class(task).extra_figures
    assert task_class(task).is_timed == any(name.endswith(("seconds", "_s")) for name in figures)


@pytest.mark.parametrize("task", TASKS)
def test_data_that_are_not_there_are_refused(llama, tmp_path, task):
    with pytest.raises(OctavoError, match=r"nowhere cannot be opened: No such file or directory\."):
        evaluation(llama, tmp_path, task, data=tmp_path / "nowhere")


def test_another_model_has_another_name(llama, tmp_path):
    stretched = octavo.Llama(llama.model_path, n_threads=2, rope_scaling="linear", rope_scale=2)
    paths = {evaluation(each, tmp_path).results.path for each in (llama, stretched)}
    assert len(paths) == 2


# Means.


def records(scores, **values):
    return [record(sample=i, score=score, **values) for i, score in enumerate(scores)]


def test_means_and_their_errors():
    own, dense = records([0.0, 1.0, 1.0, 0.0]), records([1.0, 1.0, 1.0, 0.0])
    row = summary(own, dense)
    assert row["samples"] == 4
    assert row["score"] == 0.5
    assert row["standard_error"] == round(sqrt(4 * 0.25 / 3 / 4), 5)
    assert row["difference"] == -0.25
    assert row["difference_standard_error"] == round(sqrt((3 * 0.0625 + 0.5625) / 3 / 4), 5)
    assert row["kl_divergence"] == 0
    assert row["bytes_read_share"] == 1


def test_one_sample_has_no_standard_error():
    row = summary(records([0.5]), records([1.0]))
    assert (row["score"], row["difference"]) == (0.5, -0.5)
    assert row["standard_error"] is None
    assert row["difference_standard_error"] is None


def test_differences_are_of_pairs():
    """The same spread in both: what differs is always the same."""
    row = summary(records([0.1, 0.9, 0.4]), records([0.2, 1.0, 0.5]))
    assert row["difference"] == -0.1
    assert row["difference_standard_error"] == 0


def judge(differences, texts=None):
    """Judge differences of samples; by default each has a text of its own."""
    texts = np.arange(len(differences)) if texts is None else np.array(texts)
    return non_inferiority(*independent_mean(np.array(differences), texts), 0.9)


@pytest.mark.parametrize(
    ("n", "lost", "gained", "verdict"),
    [
        *((20, 0, 0, OPEN), (100, 0, 0, OPEN), (200, 0, 0, HOLDS), (200, 1, 0, HOLDS), (200, 2, 0, OPEN)),
        *((210, 2, 2, HOLDS), (200, 30, 30, OPEN), (200, 20, 0, FAILS), (20, 20, 0, FAILS), (5, 0, 5, HOLDS)),
    ],
)
def test_a_loss_is_judged_by_pairs(n, lost, gained, verdict):
    differences = np.zeros(n)
    differences[:lost], differences[n - gained :] = -1, 1
    judged = judge(differences)
    assert judged["verdict"] == verdict
    assert judged["at_least"] < differences.mean()
    assert (judged["at_least"] >= -MARGIN) == (verdict == HOLDS)


def test_the_bound_holds_as_often_as_it_says():
    """A method that loses just the margin is passed in 5 % of all evaluations."""
    rng = np.random.default_rng(2)
    drawn = rng.choice([-1.0, 0.0, 1.0], (4000, 400), p=[0.05, 0.92, 0.03])
    passed = np.mean([judge(row)["verdict"] == HOLDS for row in drawn])
    assert 0.025 < passed < 0.065


@pytest.mark.parametrize("n_texts", [20, 60, 200])
def test_the_bound_is_as_right_where_texts_are_lost_as_a_whole(n_texts):
    """Ten questions a text: a method that loses just the margin, all of it in few texts, is seldom passed."""
    rng, texts = np.random.default_rng(3), np.repeat(np.arange(n_texts), 10)
    drawn = rng.choice([-1.0, 0.0], (1000, n_texts), p=[MARGIN, 1 - MARGIN])
    passed = np.mean([judge(np.repeat(row, 10), texts)["verdict"] == HOLDS for row in drawn])
    assert passed < 0.1  # taken for independent, ten questions of each of 20 texts would pass in 67 %


@pytest.mark.parametrize("per_text", [1, 2, 10])
def test_many_questions_of_a_text_count_as_one(per_text):
    """However many questions a text has: equal differences of these say nothing more."""
    of_texts = np.random.default_rng(4).choice([-0.5, 0.0, 0.5], 30)
    alone = judge(of_texts)
    texts = np.repeat(np.arange(30), per_text)
    assert judge(np.repeat(of_texts, per_text), texts) == alone
    n, mean, error = independent_mean(np.repeat(of_texts, per_text), texts)
    assert (n, mean) == (30, pytest.approx(of_texts.mean()))
    assert error == pytest.approx(of_texts.std(ddof=1) / sqrt(30))


def test_the_error_is_of_texts_in_any_order_and_of_any_length():
    values, texts = np.array([1.0, 0, 0, 1, 1, np.nan]), np.array([7, 3, 7, 9, 9, 4])
    n, mean, error = independent_mean(values, texts)
    assert (n, mean) == (3, 0.6)
    assert error == pytest.approx(sqrt(3 / 2 * (0.2**2 + 0.6**2 + 0.8**2)) / 5)
    assert independent_mean(values[[0, 2]], texts[[0, 2]]) == (2, 0.5, pytest.approx(0.5))  # the samples of one text


def test_a_summary_counts_texts():
    own = [record(text=text, sample=i, score=float(text > 0)) for text in range(4) for i in range(5)]
    dense = [{**each, "score": 1.0} for each in own]
    row = summary(own, dense, judged=True)
    assert (row["samples"], row["independent"], row["difference"]) == (20, 4, -0.25)
    assert row["standard_error"] == row["difference_standard_error"] == 0.25
    assert row["verdict"] == OPEN


@pytest.mark.parametrize(
    ("dense", "own", "verdict"),
    [(0.0, 0.0, UNDONE), (0.09, 0.09, UNDONE), (0.09, 0.0, UNDONE), (0.1, 0.1, HOLDS), (0.5, 0.1, FAILS)],
)
def test_what_dense_cannot_do_is_not_judged(dense, own, verdict):
    samples = [record(text=i, score=own) for i in range(300)]
    row = summary(samples, [{**each, "score": dense} for each in samples], judged=True)
    assert row["verdict"] == verdict
    assert (row["at_least"] is None) == (verdict == UNDONE)


@pytest.mark.parametrize(
    ("freedom", "printed"), [(2, 2.920), (3, 2.353), (5, 2.015), (10, 1.812), (21, 1.721), (120, 1.658), (10**6, 1.645)]
)
def test_quantiles_are_those_of_printed_tables(freedom, printed):
    assert t_quantile(freedom) == pytest.approx(printed, rel=0.003 if freedom == 2 else 0.0005)


def test_samples_without_a_score_are_not_judged():
    assert judge([np.nan, *np.zeros(200)]) == judge(np.zeros(200))
    assert judge([np.nan]) == {"at_least": None, "verdict": None}


def test_a_row_has_a_verdict_if_it_is_judged():
    own, dense = records([1.0, 0.0]), records([1.0, 1.0])
    assert summary(own, dense, judged=True)["verdict"] == OPEN
    assert "verdict" not in summary(own, dense)


def test_divergence_is_of_steps_and_not_of_samples():
    own = [record(sample=0, divergence=6.0, steps=3), record(sample=1, divergence=1.0, steps=7)]
    assert summary(own, records([1.0, 1.0]))["kl_divergence"] == 0.7
    assert summary([record(steps=0)], [record()])["kl_divergence"] == 0


def test_the_share_is_of_bytes_and_not_of_samples():
    own = [record(sample=0, bytes_read=10, dense_bytes=100), record(sample=1, bytes_read=60, dense_bytes=100)]
    assert summary(own, records([1.0, 1.0]))["bytes_read_share"] == 0.35
    assert summary([record(bytes_read=0, dense_bytes=0)], [record()])["bytes_read_share"] == 0


def test_what_a_task_adds_is_in_the_row():
    own = records([1.0, 0.0], exact_match=1.0, contains_answer=0.5, first_token_s=0.25, seconds=2.0, position=0.5)
    row = summary(own, own, ("exact_match", "seconds"))
    assert (row["exact_match"], row["seconds"]) == (1, 2)
    assert "first_token_s" not in row
    assert row["by_position"] == [[0.5, 1.0], [0.5, 0.0]]
    assert "output_errors" not in row


def test_output_errors_are_means_of_each_layer():
    own = [record(sample=0, errors=[0.0, 0.2]), record(sample=1, errors=[0.5, 0.4])]
    row = summary(own, own)
    assert row["output_errors"] == [0.25, 0.3]
    assert "by_position" not in row
