"""`octavo bench --kernels`, over little memory: what it counts is exact, what it times is not tested."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from octavo.cli.main import cli
from octavo.cpu_kernels.numba_support import machine
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0, Shape
from octavo.evaluation import kernel_bench
from octavo.evaluation.kernel_bench import KEPT, N_KV_HEAD, Case

ROWS = 2048
SPARSE = ["quest", "sparq", "squeezed", "squeezed2", "sketch"]


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(kernel_bench, "_BYTES", 1 << 24)
    monkeypatch.setattr(machine, "_BYTES", 1 << 20)
    cases = [Case("dense", shape, ROWS) for shape in (Shape(64, 3), Shape(64, 3, Q8_0), Shape(64, 2, Q4_0))]
    cases += [Case(name, Shape(64, 3), ROWS) for name in SPARSE]
    cases += [Case("dense", Shape(64, 3), ROWS, 5), Case("squeezed", Shape(64, 3), ROWS, 5)]
    monkeypatch.setattr(kernel_bench, "cases", lambda: iter(cases))


def run(*arguments):
    return CliRunner().invoke(cli, ["bench", "--kernels", *arguments])


@pytest.fixture
def result(little_memory):
    outcome = run("-o", "json", "-t", "2")
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def test_json_has_what_the_figures_need(result):
    assert set(result["machine"]) == {"cpu", "threads", "read_bandwidth_gb_s"}
    assert result["machine"]["threads"] == 2
    assert result["kv_heads"] == N_KV_HEAD
    names = {"kernel", "kv_type", "head_dim", "group", "rows", "tokens"}
    figures = {"ms", "bytes", "operations", "gb_per_s", "share_of_read_bandwidth", "gflop_per_s"}
    for row in result["kernels"]:
        assert set(row) - {"times_dense"} == names | figures
        assert all(row[figure] > 0 for figure in figures)
        assert ("times_dense" in row) == (row["kernel"] in SPARSE)


def test_bytes_are_those_of_the_rows_that_are_read(result):
    rows = {(row["kernel"], row["kv_type"]): row for row in result["kernels"]}
    assert rows["dense", F16]["bytes"] == 2 * N_KV_HEAD * ROWS * 128
    assert rows["dense", Q8_0]["bytes"] == 2 * N_KV_HEAD * ROWS * 68
    assert rows["dense", Q4_0]["bytes"] == 2 * N_KV_HEAD * ROWS * 36
    assert rows["dense", F16]["operations"] == 4 * N_KV_HEAD * ROWS * 64 * 3
    assert rows["dense prefill", F16]["operations"] == 5 * rows["dense", F16]["operations"]
    lookup = {"squeezed": 0.05 / 2, "squeezed2": 0.035 / 2, "quest": 1 / 16, "sparq": 1 / 8, "sketch": 0.041}
    for name, share in lookup.items():
        read = rows[name, F16]["bytes"] / rows["dense", F16]["bytes"]
        assert read == pytest.approx(KEPT + share, abs=0.04), name


@pytest.mark.parametrize("method", SPARSE)
def test_a_method_attends_to_an_eighth_of_the_rows(little_memory, method):
    memory = np.tile(np.random.default_rng(0).standard_normal(1 << 20, np.float32).astype(np.float16), 16)
    layers = kernel_bench.Layers(Case(method, Shape(64, 3), 8192), memory, 1)
    assert layers.n_attended.mean() / 8192 == pytest.approx(KEPT, abs=0.004)


def test_table_shows_every_case(little_memory):
    outcome = run()
    assert outcome.exit_code == 0, outcome.output
    lines = outcome.stdout.splitlines()
    assert "reads" in lines[0]
    assert len(lines) == 4 + 5 + len(SPARSE)
    assert all(line.count("|") == lines[2].count("|") for line in lines[2:])


@pytest.mark.parametrize("option", [("-m", "x.gguf"), ("--depths", "100"), ("--fill", "random"), ("-n", "3")])
def test_options_about_a_model_are_refused(option):
    outcome = run(*option)
    assert outcome.exit_code == 2
    assert "--kernels runs no model: leave out --" in outcome.stderr


def test_it_says_first_how_long_it_will_take(little_memory, monkeypatch):
    monkeypatch.setattr(machine.ReadTest, "bytes_per_second", lambda self: 1e6)
    said = run("-o", "json", "-t", "1").stderr
    assert "Timing 10 kernels takes about 114.1 minutes." in said
