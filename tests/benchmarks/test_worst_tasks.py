"""The worst task of each method, from results of `octavo eval -o json`."""

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "worst_tasks.py"


@pytest.fixture(scope="module")
def worst_tasks():
    spec = importlib.util.spec_from_file_location("worst_tasks", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result(task, scores, higher_is_better=True, parameters=None):
    """Rows of attentions with a score and a KL divergence; dense attention first."""
    rows = [
        {
            **{"attention": name, "budget": budget, "depth": 4000, "score": score, "kl_divergence": kl},
            "difference_standard_error": 0.05,
        }
        for name, budget, score, kl in scores
    ]
    named = {"task": task, "parameters": parameters or {}, "data": {"name": "emma.txt"}}
    return {**named, "higher_is_better": higher_is_better, "results": rows}


RESULTS = [
    result("needle", [("dense", 1, 0.9, 0), ("quest", 0.125, 0.6, 0.5), ("sparq", 0.125, 0.9, 0.02)]),
    result("perplexity", [("dense", 1, 1.0, 0), ("quest", 0.125, 1.25, 0.9), ("sparq", 0.125, 2.0, 0.01)], False),
    result("common-words", [("dense", 1, 0.05, 0), ("quest", 0.125, 0.0, 2.0)], parameters={"common": 5}),
]


def test_the_least_share_and_the_largest_divergence_are_named(worst_tasks):
    table, below = worst_tasks.table_of(RESULTS).rsplit("\n\n", 1)
    assert table.splitlines()[2:] == [
        "| quest | 0.125 | 3 | needle, emma.txt, 4,000 | 0.67 | 0.600 | 0.900 | 0.050 "
        "| common-words:common=5, emma.txt, 4,000 | 2.0000 |",
        "| sparq | 0.125 | 2 | perplexity, emma.txt, 4,000 | 0.50 | 2.000 | 1.000 | 0.050 "
        "| needle, emma.txt, 4,000 | 0.0200 |",
    ]
    assert below == "Dense attention scores below 0.1: common-words:common=5, emma.txt, 4,000."


def test_a_file_holds_a_result_or_several(worst_tasks, tmp_path):
    one, several = tmp_path / "one.json", tmp_path / "several.json"
    one.write_text(json.dumps(RESULTS[0]), "utf-8")
    several.write_text(json.dumps(RESULTS[1:]), "utf-8")
    assert worst_tasks.results_in([one, several]) == RESULTS
