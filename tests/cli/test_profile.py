"""`octavo profile`, by its output and exit codes, on a tiny model."""

import json
import re
import sys

import pytest
from helpers.command_line import fails, octavo
from helpers.index_builds import Entered, Recorded

from octavo.cli.profile import spans
from octavo.convert.plan.profile import ProfileSettings
from octavo.runtime.store.plan import read_plan

QUICK = ["--heads", "--texts", "1", "--tokens", "1024", "--rounds", "2", "--sinks", "16", "--recent", "32"]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def on_tiny(tiny_model, tmp_path):
    return ["-m", str(tiny_model), "--index-dir", str(tmp_path), "-t", "2", *QUICK]


def profile(*arguments):
    return octavo("profile", *arguments)


def test_a_profile_is_made_once_and_drawn(on_tiny, tmp_path):
    first = profile(*on_tiny)
    assert first.exit_code == 0
    path = tmp_path / "tiny.octavo" / "plan.json"
    assert "Letting heads stream: 8 trials" in first.stderr
    assert first.stderr.splitlines()[-1] == f"The plan is {path}"
    lines = first.stdout.splitlines()
    assert lines[0].split() == ["layers", "number", "similarity", "which"]
    assert lines[2].startswith("most important")
    assert lines[4].startswith("least important")
    assert lines[6].startswith("KL divergence from dense attention")
    assert {line.split()[0] for line in lines[9:-3]} >= {"h2o", "quest"}
    assert lines[-2] == "3 of 6 KV heads are retrieval heads; the others see 16 sinks and 64 recent tokens."
    assert re.fullmatch(
        r"Measured on repetition: with full attention the model recalls \d+\.\d% of the tokens\.", lines[-1]
    )

    picture = tmp_path / "plan.png"
    gates = tmp_path / "gates" / "full_attention_heads.tsv"
    gates.parent.mkdir()
    second = profile(*on_tiny, "--plot", picture, "--write-gates", gates, "-o", "json")
    assert second.exit_code == 0
    assert "nothing is measured again." in second.stderr
    assert "Letting heads stream" not in second.stderr
    assert second.stderr.splitlines()[-2:] == [f"The picture is {picture}", f"The gates are {gates}"]
    assert json.loads(second.stdout) == json.loads(path.read_text())
    written, plan = read_plan(gates), read_plan(path)
    assert (written.elimination, written.n_sinks, written.n_recent) == (plan.elimination, 16, 64)
    assert profile(*on_tiny, "--write-gates", gates).exit_code == 0  # again, where config.json is now
    content = picture.read_bytes()
    assert content.startswith(PNG)
    assert int.from_bytes(content[16:20]) > 500  # its width


@pytest.mark.slow
def test_an_interrupted_profile_says_that_it_goes_on(on_tiny, monkeypatch):
    with monkeypatch.context() as patch:
        progress = Recorded(at=9)  # two texts are read, and four trials done
        patch.setattr("octavo.cli.profile.TaskProgress", lambda: Entered(progress))
        result = profile(*on_tiny)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.splitlines()[-1] == "Interrupted: the same command resumes where this one stopped."
    again = profile(*on_tiny)
    assert again.exit_code == 0
    assert re.search(r"Letting heads stream: 8 trials, [1-7] of them done before", again.stderr)


def test_pictures_without_matplotlib(on_tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    fails(profile(*on_tiny, "--plot", tmp_path / "plan.png"), 1, "Pictures need matplotlib: pip install matplotlib.")


def test_pictures_that_cannot_be_written_are_refused_before_the_work(on_tiny, tmp_path):
    for name, message in {
        "plan.jpg": "plan.jpg is not a PNG file's name: give one that ends in .png.",
        "nowhere/plan.png": f"There is no folder {tmp_path / 'nowhere'} to write plan.png in.",
    }.items():
        result = profile(*on_tiny, "--plot", tmp_path / name)
        fails(result, 1, message)
        assert len(result.stderr.splitlines()) == 1


def test_gates_that_cannot_be_written_are_refused_before_the_work(on_tiny, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for name, message in {
        "gates.json": "gates.json is not a TSV file's name: give one that ends in .tsv.",
        "gates.tsv": "config.json is there already, and does not say sink_size 16 and recent_size 64",
    }.items():
        result = profile(*on_tiny, "--write-gates", tmp_path / name)
        fails(result, 1, message)
        assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "gates.tsv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--texts", "0"], "0 is not in the range 1<=x<=100."),
        (["--tokens", "many"], "'many' is not a valid whole number."),
        (["--rounds", "0"], "0 is not in the range 1<=x<=1000."),
        (["--sinks", "257"], "257 is not in the range 1<=x<=256."),
        (["--recent", "0"], "0 is not in the range 1<=x<=1048576."),
        (["-o", "xml"], "'xml' is not one of 'text', 'json'."),
    ],
)
def test_bad_options(on_tiny, arguments, message):
    fails(profile(*on_tiny, *arguments), 2, message)


@pytest.mark.parametrize("option", [*zip(QUICK[1::2], QUICK[2::2], strict=True), ("--write-gates", "gates.tsv")])
def test_options_of_heads_are_refused_without_heads(on_tiny, option):
    """Except --tokens, which the layers have too."""
    settings = on_tiny[: -len(QUICK)]
    if option[0] != "--tokens":
        fails(profile(*settings, *option), 2, f"{option[0]} is for the heads: add --heads.")


def test_a_text_that_is_too_short(on_tiny):
    fails(profile(*on_tiny, "--recent", "600"), 1, "give 1,232 or more (--tokens), or fewer rows (--sinks, --recent).")


def test_help_names_the_defaults_of_the_settings():
    text = " ".join(profile("--help").stdout.split())
    defaults = ProfileSettings()
    for name in ("texts", "tokens", "rounds", "sinks", "recent"):
        assert f"[env var: OCTAVO_{name.upper()}; default: {getattr(defaults, name)};" in text


def test_spans():
    assert spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert spans([4]) == "4"
