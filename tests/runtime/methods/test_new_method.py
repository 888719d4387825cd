"""The method that docs/recipes.md shows runs everywhere as it stands there: no generic code has to know it."""

from __future__ import annotations

import importlib.util
import json
import re
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import oracle, scorers
from helpers.product import ROOT

import octavo
from octavo.cli.main import cli
from octavo.cpu_kernels.numba_support import machine
from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.evaluation import kernel_bench
from octavo.runtime import methods
from octavo.runtime.methods import METHODS, method_class, words

PAGE = (ROOT / "docs" / "recipes.md").read_text("utf-8")
#: What the page shows, block by block: the two files, the line in the table of methods, that in the table of twins.
KERNEL, PARAMETERS, LINE, TWIN = re.findall(r"```python\n(.*?)```", PAGE.partition("\n## Add a method")[2], re.S)[:4]
FILES = {"cpu_kernels/methods/knorm.py": KERNEL, "runtime/methods/knorm.py": PARAMETERS}


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """The files that the page shows, as if they stood where it says."""
    with pytest.MonkeyPatch.context() as patch:
        for path, code in FILES.items():
            assert f"`{path}`:\n\n```python\n{code}" in PAGE
            file = tmp_path_factory.mktemp("shown") / "knorm.py"
            file.write_text(code, "utf-8")
            name = "octavo." + path.removesuffix(".py").replace("/", ".")
            spec = importlib.util.spec_from_file_location(name, file)
            module = importlib.util.module_from_spec(spec)
            patch.setitem(sys.modules, name, module)
            spec.loader.exec_module(module)
        yield


@pytest.fixture(autouse=True)
def registered(modules, monkeypatch):
    """The method, by the line that the page shows."""
    monkeypatch.setitem(METHODS, "knorm", eval(f"{{{LINE}}}", vars(methods))["knorm"])


@pytest.mark.parametrize("kind", scorers.KEYS)
def test_it_selects_as_its_twin(kind):
    twin = eval(f"{{{TWIN}}}", vars(oracle))["knorm"]
    scorers.check(method_class("knorm"), twin, Shape(64, 2), kind)


def test_it_is_one_of_the_words_of_attention():
    assert "knorm" in words()
    shown = CliRunner().invoke(cli, ["ask", "x.txt", "?", "--attention", "knor"]).output
    assert "knorm" in shown


def test_it_runs_a_model_and_reads_what_its_budget_says(tiny_model):
    tokens = np.random.default_rng(0).integers(97, 123, 700).tolist()
    dense, own = (octavo.Llama(tiny_model, n_ctx=2048, attention=name, budget=0.5) for name in ("dense", "knorm"))
    for llama in (dense, own):
        llama.prefill(tokens)
        llama.context.bytes_read = 0
        llama.eval([65])
    n_heads, row = 6, 256
    assert dense.context.bytes_read == n_heads * 701 * row
    n_rows = round(n_heads * 701 * (0.5 - 4 / row))
    assert own.context.bytes_read == n_rows * row + n_heads * 701 * 4, "the rows, and the norms of all"
    assert np.isfinite(own.logits()).all()
    assert not np.array_equal(own.logits(), dense.logits())


def test_everything_is_read_with_a_budget_of_1(tiny_model):
    tokens = np.random.default_rng(1).integers(97, 123, 300).tolist()
    logits = []
    for name in ("dense", "knorm"):
        llama = octavo.Llama(tiny_model, n_ctx=2048, attention=name, budget=1.0)
        llama.eval(tokens)
        llama.eval([65])
        logits.append(llama.logits())
    np.testing.assert_allclose(logits[1], logits[0], atol=0.01)


def test_it_answers_from_an_index_and_composes(tiny_model, tmp_path):
    document = tmp_path / "document.txt"
    document.write_text("Some words about nothing. " * 40)
    for attention in ("knorm", "knorm+duo"):
        options = [
            "-m",
            str(tiny_model),
            "--index-dir",
            str(tmp_path),
            "-n",
            "4",
            "--attention",
            attention,
            "--temp",
            "0",
        ]
        outcome = CliRunner().invoke(cli, ["ask", str(document), "What?", "-o", "json", *options])
        if attention == "knorm":
            assert outcome.exit_code == 0, outcome.output
            assert json.loads(outcome.stdout)["attention"] == "knorm"
        else:
            assert "There is no plan" in outcome.output


def test_it_is_benchmarked(tiny_model, monkeypatch):
    command = [
        "bench",
        "-m",
        str(tiny_model),
        "--depths",
        "300",
        "-n",
        "2",
        "--attention",
        "dense,knorm",
        "-o",
        "json",
    ]
    outcome = CliRunner().invoke(cli, command)
    assert outcome.exit_code == 0, outcome.output
    rows = {row["attention"]: row for row in json.loads(outcome.stdout)["results"]}
    assert rows["knorm"]["bytes_read_per_token"] < rows["dense"]["bytes_read_per_token"]

    monkeypatch.setattr(kernel_bench, "_BYTES", 1 << 24)
    monkeypatch.setattr(machine, "_BYTES", 1 << 20)
    for name, value in {"LENGTHS": (1024, 1024), "DENSE_SHAPES": ((64, 1),), "SPARSE_SHAPES": ((64, 1),)}.items():
        monkeypatch.setattr(kernel_bench, name, value)
    own = [case for case in kernel_bench.cases() if case.method in ("dense", "knorm") and case.shape.kv_type == "f16"]
    monkeypatch.setattr(kernel_bench, "cases", lambda: iter(own))
    outcome = CliRunner().invoke(cli, ["bench", "--kernels", "-t", "1", "-o", "json"])
    assert outcome.exit_code == 0, outcome.output
    assert "knorm" in {row["kernel"] for row in json.loads(outcome.stdout)["kernels"]}


def test_it_is_evaluated_and_drawn(tiny_model, tmp_path):
    path = tmp_path / "eval.png"
    what = ["--attention", "knorm", "--budgets", "0.5", "--depths", "300", "--samples", "2", "--plot", str(path)]
    command = ["eval", "agreement", "-m", str(tiny_model), "--index-dir", str(tmp_path), *what, "-o", "json"]
    outcome = CliRunner().invoke(cli, command)
    assert outcome.exit_code == 0, outcome.output
    [row] = [row for row in json.loads(outcome.stdout)["results"] if row["attention"] == "knorm"]
    assert row["bytes_read_share"] == pytest.approx(0.5, rel=0.1), "the budget was matched"
    assert path.stat().st_size > 10_000
