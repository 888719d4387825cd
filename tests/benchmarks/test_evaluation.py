"""The pages of tables in docs/evaluation/ show what benchmarks/evaluation.py measures, and nothing else."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from octavo.evaluation.tasks import TASKS

ROOT = Path(__file__).parents[2]


def load_script():
    spec = importlib.util.spec_from_file_location("evaluation_script", ROOT / "benchmarks" / "evaluation.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()


def page(model):
    return (SCRIPT.PAGES / f"{model}.md").read_text("utf-8")


def test_every_model_has_a_page():
    assert {run.model for run in SCRIPT.RUNS} == SCRIPT.MODELS.keys()
    assert {path.stem for path in SCRIPT.PAGES.iterdir()} == SCRIPT.MODELS.keys()


@pytest.mark.parametrize("model", SCRIPT.MODELS)
def test_every_run_has_its_table(model):
    shown = re.findall(r"^```\noctavo (.*) -m \S+\n```\n\n(\S+) \(.*\n\n\| attention \| budget ", page(model), re.M)
    assert shown == [(" ".join(run.arguments), run.task) for run in SCRIPT.RUNS if run.model == model]


@pytest.mark.parametrize("model", SCRIPT.MODELS)
def test_pages_are_as_the_script_writes_them(model):
    text = page(model)
    measured = []
    for task, tables in re.findall(r"^## (\S+)\n\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        measured += [(task, table.strip() + "\n") for table in re.split(r"(?=^```\noctavo )", tables, flags=re.M)[1:]]
    assert text == SCRIPT.page(model, measured)


def test_pictures_are_shown():
    text = (ROOT / "docs" / "evaluation.md").read_text("utf-8")
    pictures = [run.picture for run in SCRIPT.RUNS if run.picture]
    assert pictures == re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert all((SCRIPT.DOCS / picture).is_file() for picture in pictures)


def test_every_task_is_measured():
    assert {run.task for run in SCRIPT.RUNS} == TASKS.keys()


def test_documents_hold_the_facts_that_are_asked_for():
    documents = list(SCRIPT.fact_documents())
    assert len(documents) > 1
    for each in documents:
        assert len(each["questions"]) == 10
        assert all(f" {question['answers'][0]}.\n\n" in each["document"] for question in each["questions"])
