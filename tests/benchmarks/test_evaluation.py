"""The pages of tables in docs/evaluation/ show what benchmarks/evaluation.py measures, and nothing else."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from octavo.evaluation.tasks import TASKS
from octavo.runtime.methods import METHODS
from octavo.runtime.methods.layer_budgets import LayerBudgets
from octavo.runtime.methods.quest import Quest

ROOT = Path(__file__).parents[2]


def load_script():
    spec = importlib.util.spec_from_file_location("evaluation_script", ROOT / "benchmarks" / "evaluation.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()


def page(model):
    return (SCRIPT.PAGES / f"{model}.md").read_text("utf-8")


#: The pages that exist.
WRITTEN = sorted(path.stem for path in SCRIPT.PAGES.iterdir())


def test_every_page_has_runs():
    assert {run.page for run in SCRIPT.RUNS} == SCRIPT.MODELS.keys() == set(WRITTEN)


@pytest.mark.parametrize("model", WRITTEN)
def test_every_run_has_its_table(model):
    shown = re.findall(r"^```\noctavo (.*) -m \S+\n```\n\n(\S+) \(.*\n\n\| attention \| budget ", page(model), re.M)
    assert shown == [(" ".join(run.arguments), run.task) for run in SCRIPT.RUNS if run.page == model]


@pytest.mark.parametrize("model", WRITTEN)
def test_pages_are_as_the_script_writes_them(model):
    text = page(model)
    measured = []
    for task, tables in re.findall(r"^## (\S+)\n\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        measured += [(task, table.strip() + "\n") for table in re.split(r"(?=^```\noctavo )", tables, flags=re.M)[1:]]
    assert text == SCRIPT.page(model, measured)


def test_table_has_columns_for_each_depth():
    table = """needle (found): model.gguf, octavo 0.1.0

| attention | budget | depth | samples | found | error | to dense | standard error of that | KL to dense | share read |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| dense | - | 2,000 | 20 | 0.900 | 0.069 | 0.000 | 0.000 | 0.0000 | 1.000 |
| dense | - | 7,600 | 20 | 0.600 | 0.112 | 0.000 | 0.000 | 0.0000 | 1.000 |
| duo | - | 7,600 | 20 | 0.650 | 0.109 | 0.050 | 0.088 | 0.0121 | 0.540 |
| quest | 0.125 | 2,000 | 1 | 0.000 | - | -0.900 | - | 1.9043 | 0.132 |
| quest | 0.125 | 7,600 | 20 | 0.450 | 0.114 | -0.150 | 0.131 | 0.6306 | 0.140 |
"""
    assert SCRIPT.compact(table).splitlines() == [
        "needle (found): model.gguf, octavo 0.1.0. The largest standard error of a difference to dense is 0.131.",
        "",
        "| attention | budget | 2,000: found | KL | 7,600: found | KL |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| dense | - | 0.900 | 0.0000 | 0.600 | 0.0000 |",
        "| duo | - |  |  | 0.650 at 0.54 | 0.0121 |",
        "| quest | 0.125 | 0.000 | 1.9043 | 0.450 at 0.14 | 0.6306 |",
    ]


def test_pictures_are_shown():
    text = (ROOT / "docs" / "evaluation.md").read_text("utf-8")
    pictures = [run.picture for run in SCRIPT.RUNS if run.picture]
    assert pictures == re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert all((SCRIPT.DOCS / picture).is_file() for picture in pictures)


def test_tasks_exist():
    assert {run.task for run in SCRIPT.RUNS} <= TASKS.keys()


def test_presets_stand_beside_defaults(monkeypatch):
    monkeypatch.setattr(Quest, "presets", {"paper": {"dense_layers": 2}})
    monkeypatch.setattr(LayerBudgets, "presets", {"paper": {}})
    names = SCRIPT.side_by_side().split(",")
    of_papers = [name for name in METHODS if name not in SCRIPT.OURS]
    assert names[: len(of_papers)] == of_papers
    assert {"quest:paper", "duo", "plan+h2o", "plan:paper+h2o"} <= {*names}
    assert len(names) == len({*names})


def test_pieces_measure_what_their_run_measures():
    run = SCRIPT.Run(
        "long-papers", "needle", "8000,16000", 20, "dense,quest:tokens=64,dense_layers=0,h2o", picture="a.png"
    )
    assert [(piece.depths, piece.attention) for piece in run.pieces(split=False)] == [
        ("8000", run.attention),
        ("16000", run.attention),
    ]
    assert [(piece.depths, piece.attention) for piece in run.pieces(split=True)] == [
        ("8000", "quest:tokens=64,dense_layers=0"),
        ("8000", "h2o"),
        ("16000", "quest:tokens=64,dense_layers=0"),
        ("16000", "h2o"),
    ]
    assert {(piece.samples, piece.budgets, piece.picture) for piece in run.pieces(split=True)} == {
        (20, run.budgets, "")
    }
