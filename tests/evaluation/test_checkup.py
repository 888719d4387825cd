"""`octavo doctor`: what it finds on this machine, and on machines where something is broken."""

import json
import os
import subprocess
from types import SimpleNamespace

import pytest
from helpers.command_line import fails, octavo

from octavo.evaluation import checkup
from octavo.evaluation.checkup import compared, examine

BUILT = "CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | F16C = 1 | FMA = 1 | AVX512 = {} | OPENMP = 1 | "
SUBJECTS = ["versions", "CPU", "llama.cpp", "kernels", "model", "other models", "memory", "indexes", "tesseract"]


def by_subject(model, index_dir):
    return {finding.subject: finding for finding in examine(model, index_dir)}


def test_this_machine(tiny_model, tmp_path):
    found = by_subject(tiny_model, tmp_path)
    assert list(found) == SUBJECTS
    assert [finding for finding in found.values() if finding.state == "broken"] == []
    assert found["versions"].found.startswith("octavo 0.")
    assert found["model"].found.endswith(f" tokens, llama.cpp multiplies all weights (F32): {tiny_model}")
    assert found["indexes"].found.endswith(f"in {tmp_path / 'tiny.octavo'}")


def test_the_build_of_llama_cpp_fits_the_cpu():
    laptop = {"avx", "avx2", "fma", "f16c"}
    fits = compared(BUILT.format(0), laptop)
    assert (fits.state, fits.found) == ("ok", "built for this CPU: AVX, AVX2, FMA, F16C")
    foreign = compared(BUILT.format(1), laptop)
    assert foreign.state == "broken"
    assert foreign.found.startswith(
        "It was built for AVX512, which this CPU lacks: build it again here, by pip install"
    )
    slow = compared(BUILT.format(0), laptop | {"avx512f"})
    assert slow.state == "note"
    assert slow.found.startswith("It was built without AVX512, so it is slow: ")
    assert compared("CPU : NEON = 1 | ", {"neon", "dotprod"}).found.startswith("It was built without DOTPROD")


@pytest.mark.parametrize(("system", "state"), [("linux", "note"), ("darwin", "ok")])
def test_a_build_of_llama_cpp_without_openmp(system, state, monkeypatch):
    monkeypatch.setattr(checkup.sys, "platform", system)
    found = compared(BUILT.format(0).replace("OPENMP = 1 | ", ""), {"avx", "avx2", "fma", "f16c"})
    assert found.state == state
    assert found.found.startswith("It was built without OpenMP, so it is slow: build") == (system == "linux")


@pytest.mark.parametrize(
    ("code", "stderr", "found"),
    [
        (-4, "", "It was built for another CPU and ends here: build it again here"),
        (1, "x\nImportError: no libomp", "It cannot be loaded (ImportError: no libomp): build it again here"),
    ],
)
def test_a_llama_cpp_that_cannot_be_loaded(code, stderr, found, monkeypatch, tiny_model, tmp_path):
    ended = SimpleNamespace(returncode=code, stdout="", stderr=stderr)
    monkeypatch.setattr(checkup, "subprocess", SimpleNamespace(run=lambda *_, **__: ended))
    finding = by_subject(tiny_model, tmp_path)["llama.cpp"]
    assert finding.state == "broken"
    assert finding.found.startswith(found)


def test_a_check_that_fails_does_not_stop_the_others(monkeypatch, tiny_model, tmp_path):
    def expires(*_arguments, **_settings):
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr(checkup, "subprocess", SimpleNamespace(run=expires))
    found = by_subject(tiny_model, tmp_path)
    assert list(found) == SUBJECTS
    assert (found["llama.cpp"].state, found["memory"].state) == ("broken", "ok")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_disk_that_cannot_be_written(tiny_model, tmp_path):
    tmp_path.chmod(0o500)
    assert by_subject(tiny_model, tmp_path)["indexes"].state == "broken"


def test_the_command_ends_with_1_where_something_is_broken(tiny_model, tmp_path):
    well = octavo("doctor", "-m", tiny_model, "--index-dir", tmp_path)
    assert well.exit_code == 0
    lines = well.stdout.splitlines()
    assert lines[0].split() == ["checked", "found"]
    assert len(lines) == 2 + len(SUBJECTS)
    missing = octavo("doctor", "-m", tmp_path / "no.gguf", "--index-dir", tmp_path, "-o", "json")
    found = {row["subject"]: row for row in json.loads(missing.stdout)}
    assert missing.exit_code == 1
    assert found["model"] == {
        "subject": "model",
        "state": "broken",
        "found": f"There is no model {tmp_path / 'no.gguf'}.",
    }
    text = tmp_path / "text.gguf"
    text.write_text("no model")
    broken = octavo("doctor", "-m", text, "--index-dir", tmp_path)
    assert broken.exit_code == 1
    assert [line.split()[1] for line in broken.stdout.splitlines() if line.startswith("BROKEN")] == ["model"]


def test_a_report_goes_with_metal(tmp_path):
    fails(octavo("doctor", "--report", tmp_path / "x.json"), 2, "--report goes with --metal: give both.")
