"""docs/evaluation.md has a place for each table that benchmarks/evaluation.py makes, and no other."""

import importlib.util
import re
import sys
from pathlib import Path

from octavo.evaluation.tasks import TASKS

ROOT = Path(__file__).parents[2]


def script():
    spec = importlib.util.spec_from_file_location("evaluation_script", ROOT / "benchmarks" / "evaluation.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_every_table_has_its_place():
    page = (ROOT / "docs" / "evaluation.md").read_text()
    places = re.findall(r"<!-- ((?:smollm2|gemma|long) .*?) -->\n", page)
    assert sorted(places) == sorted({run.block for run in script().RUNS})
    assert page.count("<!-- end -->") == len(places)


def test_every_task_is_measured():
    assert {run.task for run in script().RUNS} == TASKS.keys()


def test_documents_hold_the_facts_that_are_asked_for():
    documents = list(script().fact_documents())
    assert len(documents) > 1
    for each in documents:
        assert len(each["questions"]) == 10
        assert all(f" {question['answers'][0]}.\n\n" in each["document"] for question in each["questions"])
