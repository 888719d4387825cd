"""Test `octavo doctor --metal` on the fake GPU: what it compares, times and reports, and which errors it finds."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from click.testing import CliRunner

from octavo.cli import main as cli_main
from octavo.cli.doctor import head_dim
from octavo.cpu_kernels.numba_support.shape import F16, Q8_0, Shape
from octavo.evaluation import doctor
from octavo.evaluation.device_layer import largest_error
from octavo.metal import gpu
from octavo.metal.attention import wait_seconds
from octavo.progress import Silent
from octavo.runtime.devices import choose as devices
from octavo.runtime.methods.attention import DENSE_ATTENTION
from octavo.settings import ModelSettings

HALVES, BYTES = Shape(64, 3), Shape(64, 3, Q8_0)
UNLIKE = Shape(96, 3, F16, 64), Shape(96, 3, F16, 64, latent=True), Shape(96, 3, Q8_0, 64, latent=True)
EXAMINATION = doctor.Examination(
    (HALVES, BYTES), (HALVES, BYTES), (HALVES,), n_kv_head=1, n_rows=256, bandwidth_bytes=1 << 16
)
KERNELS = {"append_rows", "score_items", "narrow_items", "score_narrowed", "select_spans", "attend_shares"}
KERNELS |= {"rotate_queries", "merge_shares", "attend_tiles"}


@pytest.fixture(autouse=True, scope="module")
def _quick():
    """Fewer runs, threads and rows than a GPU gets."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("octavo.metal.attention._TIMED_RUNS", 1)
        monkeypatch.setattr("octavo.metal.bandwidth._GROUPS", 4)
        monkeypatch.setattr(doctor, "_DOCUMENT_ROWS", 500)
        monkeypatch.setattr(doctor, "_STEPS", (90, 1, 20, 1))
        yield


@pytest.fixture(scope="module")
def report(simulated):
    return doctor.Doctor(Silent(), EXAMINATION).run()


def test_a_sound_gpu_has_no_problems(report):
    assert report["ok"]
    assert json.loads(json.dumps(report)) == report
    assert report["machine"]["gpu"] == "Fake M1"
    assert report["read_bandwidth_gb_s"] >= 0


def test_every_kernel_of_every_shape_is_compiled(report):
    assert {(row["kv_type"], row["kernel"]) for row in report["kernels"]} == {
        (kv_type, kernel) for kv_type in (F16, Q8_0) for kernel in KERNELS
    }
    assert all(row["simd_width"] == 32 and row["problem"] is None for row in report["kernels"])


def test_every_method_is_compared_step_by_step(report):
    compared = {(row["kv_type"], row["attention"], row["tokens"]) for row in report["comparisons"]}
    assert compared == {(t, name, n) for t in (F16, Q8_0) for name in doctor.methods() for n in (1, 20, 90)}
    for row in report["comparisons"]:
        assert row["largest_error"] < doctor.TOLERANCE[row["kv_type"]] / 2, row


def test_every_kernel_is_timed(report):
    timed = {(row["attention"], row["kernel"]) for row in report["times"]}
    for name in doctor.methods():
        assert {(name, "all"), (name, "attend_shares"), (name, "select_spans")} <= timed
    assert ("squeezed2", "score_narrowed") in timed
    assert ("dense", "score_items") not in timed
    [dense] = [
        row["bytes"] for row in report["times"] if (row["attention"], row["kernel"]) == ("dense", "attend_shares")
    ]
    assert dense == 257 * 2 * 128


def examine_only(monkeypatch, name):
    """Have the doctor examine one method."""
    only = {name: doctor.methods()[name]}
    monkeypatch.setattr(doctor, "methods", lambda: only)


@pytest.mark.parametrize("shape", UNLIKE, ids=str)
def test_keys_and_values_of_different_lengths_are_compared_and_timed(simulated, monkeypatch, shape):
    examine_only(monkeypatch, "squeezed2")
    found = doctor.Doctor(Silent(), replace(EXAMINATION, shapes=(shape,), compared=(shape,), timed=(shape,))).run()
    assert found["ok"], found["comparisons"]
    assert len(found["comparisons"]) == 4
    columns = ("head_dim", "value_dim", "latent", "group", "kv_type")
    for row in [*found["kernels"], *found["comparisons"], *found["times"]]:
        assert [row[name] for name in columns] == [getattr(shape, name) for name in columns]


def test_steps_of_a_model_are_timed_and_auto_follows_them(metal, tiny_model, monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "measured_steps_path", lambda: tmp_path / "device-steps.json")
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    quick = replace(EXAMINATION, depths=(64, 100))
    steps = doctor.Doctor(Silent(), quick)._steps(ModelSettings(model=tiny_model))
    described = {(row["device"], row["attention"], row["depth"]) for row in steps}
    assert described == set(product(("metal", "cpu"), ("llama.cpp", "auto"), (64, 100)))
    kept = {row["device"]: row["decode_ms"] for row in steps if (row["attention"], row["depth"]) == ("auto", 100)}
    assert devices.is_faster_on_cpu(str(tiny_model)) == (kept["cpu"] < kept["metal"])
    for milliseconds, name in (({"cpu": 2.0, "metal": 3.0}, "cpu"), ({"cpu": 3.0, "metal": 2.0}, "metal")):
        devices.keep_measured_steps(str(tiny_model), milliseconds)
        device, note = devices.choose("auto", DENSE_ATTENTION, model=str(tiny_model))
        assert device.name == name
        assert ("measured to be faster" in note) == (name == "cpu")
        assert devices.choose("metal", DENSE_ATTENTION, model=str(tiny_model))[0].name == "metal"


def test_a_wait_for_the_gpu_is_timed(metal):
    assert wait_seconds(gpu.open_gpu()) > 0
    assert metal.runs == [[]] * 2  # one of them warms up


def test_a_wrong_result_is_found(simulated, monkeypatch):
    attend_alone = doctor.MetalExecutor.attend_alone
    monkeypatch.setattr(doctor.MetalExecutor, "attend_alone", lambda *arguments: attend_alone(*arguments) * 1.01)
    examine_only(monkeypatch, "dense")
    found = doctor.Doctor(Silent(), replace(EXAMINATION, shapes=(), compared=(HALVES,), timed=())).run()
    assert not found["ok"]
    assert {row["problem"] for row in found["comparisons"]} == {"The GPU's output differs from the CPU's."}


def test_a_result_that_is_not_a_number_is_found():
    ones = np.ones((1, 2, 4))
    assert largest_error(ones, ones) == 0
    assert largest_error(np.where(np.arange(4) == 2, np.nan, ones), ones) == np.inf


def test_what_does_not_compile_is_reported(metal, monkeypatch):
    metal.executor.broken = "no such thing as a half"
    rows = doctor.Doctor(Silent(), EXAMINATION)._kernels()
    assert [row["kernel"] for row in rows] == ["all", "all"]
    assert all("no such thing as a half" in row["problem"] for row in rows)


def test_the_command_writes_its_report(simulated, tiny_model, monkeypatch, tmp_path):
    quick = replace(EXAMINATION, shapes=(HALVES,), compared=(HALVES,), depths=(64,))
    monkeypatch.setattr(doctor, "EXAMINATION", quick)
    monkeypatch.setattr(devices, "measured_steps_path", lambda: tmp_path / "device-steps.json")
    examine_only(monkeypatch, "quest")
    path = tmp_path / "report.json"
    shown = CliRunner().invoke(cli_main.cli, ["doctor", "--metal", "-m", str(tiny_model), "--report", str(path)])
    assert shown.exit_code == 0, shown.output
    assert "A wait for the GPU takes " in shown.stdout
    assert shown.stdout.splitlines()[0].startswith("Fake M1, ")
    assert "9 kernels compiled, 4 steps compared, 0 problems." in shown.stdout
    assert shown.stderr.splitlines()[-1] == f"The report is {path}"
    assert json.loads(path.read_text())["ok"]


@pytest.mark.parametrize(
    ("value_dim", "latent", "shown"),
    [(96, False, "96"), (64, False, "96, values 64"), (64, True, "96, of which values 64")],
)
def test_people_see_how_long_values_are(value_dim, latent, shown):
    assert head_dim({"head_dim": 96, "value_dim": value_dim, "latent": latent}) == shown


def test_without_a_gpu_there_is_one_sentence_and_no_report(metal, monkeypatch, tmp_path):
    metal.has_device = False
    gpu.open_gpu.cache_clear()
    path = tmp_path / "report.json"
    shown = CliRunner().invoke(cli_main.cli, ["doctor", "--metal", "--report", str(path)])
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.startswith("Error: This Mac has no GPU that Metal knows")
    assert not path.exists()
