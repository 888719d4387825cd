"""Reports: `octavo bench --report` and `octavo eval suite --report` on a tiny model, interrupted and continued."""

import json
import re

import pytest
from click.testing import CliRunner
from helpers.product import ROOT

from octavo.cli.main import cli
from octavo.errors import OctavoError
from octavo.evaluation import report_quality, report_speed
from octavo.evaluation.pace import Pace, longest_within
from octavo.evaluation.report import Report, without_names
from octavo.runtime.load_model import locate_model
from octavo.runtime.methods import METHODS
from octavo.settings import ModelSettings

SPEED = ["bench", "-t", "2", "-n", "2", "--question", "3", "--depths", "16,32,48"]
SUITE = ["eval", "suite", "-t", "2", "--samples", "2", "--depths", "300"]


@pytest.fixture
def home(tmp_path, tiny_model, monkeypatch):
    """A home with the tiny model, of a user and on a machine whose names must not get out."""
    folder = tmp_path / "ariadne"
    folder.mkdir()
    (folder / "tiny.gguf").symlink_to(tiny_model)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("LOGNAME", "ariadne")
    monkeypatch.setattr("socket.gethostname", lambda: "labyrinth.example")
    return folder


@pytest.fixture
def octavo(home):
    def run(arguments, *more, code=0):
        own = ["-m", str(home / "tiny.gguf"), "--report", str(home / "mine.json")]
        own += ["--index-dir", str(home / "index")] if arguments[0] == "eval" else []
        done = CliRunner().invoke(cli, [*arguments, *own, *more])
        assert done.exit_code == code, done.output
        return done

    return run


def interrupted(function, times):
    """Call a function so many times, and then raise KeyboardInterrupt."""
    calls = iter(range(times))

    def call(*arguments):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return function(*arguments)

    return call


def test_speed_continues_after_an_interruption_and_names_nobody(octavo, home, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(report_speed, "sweep", interrupted(report_speed.sweep, 2))
        stopped = octavo(SPEED, code=130)
    assert re.search(r"The speed of this report lacks 3 measurements: about \d+ min", stopped.stderr)
    before = json.loads((home / "mine.json").read_text())
    assert [piece["result"] is None for piece in before["speed"]] == [False, False, True]

    monkeypatch.setattr(report_speed, "speed_pieces", None)  # what is planned is not planned anew
    done = octavo(SPEED)
    assert re.search(r"lacks 1 of 3 measurements", done.stderr)
    text = (home / "mine.json").read_text()
    report = json.loads(text)
    assert report["speed"][:2] == before["speed"][:2]
    for piece in report["speed"]:
        rows = piece["result"]["results"]
        assert [row["attention"] for row in rows] == ["llama.cpp", "dense", "auto", *list(METHODS)[1:]]
        assert {row["depth"] for row in rows} == {piece["depth"]}
    assert report["quality"] == []
    for name in ("ariadne", "labyrinth", str(home)):
        assert name not in text
    lines = done.stdout.splitlines()
    assert lines[0].startswith("| model | CPU | threads | depth |")
    assert len(lines) == 5


def test_the_suite_continues_and_pairs_methods_with_dense(octavo, home, monkeypatch):
    monkeypatch.setattr(report_quality, "TASKS_OF_SUITE", ("niah-single", "niah-single:value=word"))
    with monkeypatch.context() as patch:
        patch.setattr(report_quality.Evaluation, "run", interrupted(report_quality.Evaluation.run, 1))
        octavo(SUITE, code=130)
    before = json.loads((home / "mine.json").read_text())
    assert [piece["result"] is None for piece in before["quality"]] == [False, True]

    monkeypatch.setattr(report_quality, "quality_pieces", None)  # what is planned is not planned anew
    done = octavo(SUITE)
    text = (home / "mine.json").read_text()
    report = json.loads(text)
    assert report["quality"][0] == before["quality"][0]
    for piece in report["quality"]:
        rows = piece["result"]["results"]
        assert [row["attention"] for row in rows[:2]] == ["dense", "auto"]
        assert {row["samples"] for row in rows} == {2}
        assert piece["result"]["task"] == "niah-single"
    assert "ariadne" not in text
    assert done.stdout.splitlines()[2].startswith("| niah-single | 300 | 2 |")


def speed_of(*_):
    """What a benchmark returns, without one."""
    row = {"attention": "dense", "cannot": None, "prefill_tokens_per_s": 9.0, "decode_ms": 1.0, "kl_divergence": 0.0}
    return {"results": [row]}


def lacks(part, count):
    return rf"The {part} of this report lacks {count} measurements: "


def test_only_the_depths_that_are_asked_for_are_measured(octavo, home, monkeypatch):
    def measured():
        return {piece["depth"] for piece in json.loads((home / "mine.json").read_text())["speed"] if piece["result"]}

    monkeypatch.setattr(report_speed, "sweep", interrupted(speed_of, 0))
    octavo(SPEED, code=130)
    monkeypatch.setattr(report_speed, "sweep", speed_of)
    assert re.search(lacks("speed", 1), octavo([*SPEED[:-1], "32"]).stderr)
    assert measured() == {32}
    assert re.search(lacks("speed", "1 of 2"), octavo(["bench", "-t", "2", "--depths", "32,16"]).stderr)
    assert measured() == {16, 32}
    assert "lacks" not in octavo(["bench", "-t", "2", "--depths", "16"]).stderr
    octavo(["bench", "-t", "2"])
    assert measured() == {16, 32, 48}


def test_a_new_depth_of_a_report_is_measured_as_the_others(octavo, home, monkeypatch):
    monkeypatch.setattr(report_speed, "sweep", speed_of)
    monkeypatch.setattr("octavo.cli.bench.install_peers", lambda *_: None)
    octavo([*SPEED, "-r", "3", "--peers", "llama.cpp,openvino", "--yes"])
    octavo(["bench", "-t", "2", "--depths", "64", "--peers", "openvino,llama.cpp", "-n", "2", "--yes"])
    pieces = json.loads((home / "mine.json").read_text())["speed"]
    assert [piece.pop("depth") for piece in pieces] == [16, 32, 48, 64]
    own = [{**piece, "estimated_s": 0} for piece in pieces]
    assert own == own[:1] * 4
    assert (own[0]["repetitions"], own[0]["question"]) == (3, 3)


def test_a_speed_with_other_settings_is_refused(octavo, home, monkeypatch):
    monkeypatch.setattr(report_speed, "sweep", speed_of)
    octavo(SPEED)
    before = (home / "mine.json").read_text()
    for more, message in (
        (["-r", "5"], "with repetitions 1, not with repetitions 5: give another file with --report."),
        (["-n", "128", "--depths", "16"], "with predict 2, not with predict 128"),
        (["--depths", "64", "--question", "9"], "with question 3, not with question 9"),
        (["--alone"], "with alone false, not with alone true"),
        (["-n", "2", "--delay", "4"], "with delay_s 0.0, not with delay_s 4.0"),
        (["--peers", "llama.cpp"], "with peers none, not with peers llama.cpp"),
    ):
        done = octavo(["bench", "-t", "2", *more], code=1)
        assert f"The speed of {home / 'mine.json'} is measured {message}" in done.stderr
        assert done.stdout == ""
    assert (home / "mine.json").read_text() == before


def test_the_suite_measures_what_is_asked_for_and_refuses_other_samples(octavo, home, monkeypatch):
    def score(evaluation):
        figures = {"score": 1.0, "difference": 0.0, "difference_standard_error": None, "bytes_read_share": 1.0}
        return {"results": [{"attention": "dense", "depth": 1, "samples": evaluation.settings.n_samples, **figures}]}

    def pieces():
        return json.loads((home / "mine.json").read_text())["quality"]

    monkeypatch.setattr(report_quality, "TASKS_OF_SUITE", ("niah-single", "fixed-context"))
    monkeypatch.setattr(report_quality, "_sized", lambda *_: report_quality._Sized((300,), 1))
    monkeypatch.setattr(report_quality.Evaluation, "run", interrupted(score, 0))
    octavo([*SUITE[:-1], "300,400"], code=130)
    monkeypatch.setattr(report_quality.Evaluation, "run", score)
    octavo(SUITE)
    assert [piece["depth"] for piece in pieces() if piece["result"]] == [300, 0]
    octavo(["eval", "suite", "-t", "2", "--depths", "500"])
    assert [piece["depth"] for piece in pieces() if piece["result"]] == [300, 0, 500]
    assert {piece["samples"] for piece in pieces()} == {2}
    for depths in ([], ["--depths", "300"], ["--depths", "600"]):
        done = octavo(["eval", "suite", "-t", "2", "--samples", "5", *depths], code=1)
        assert "is measured with samples 2, not with samples 5: give another file with --report." in done.stderr
    assert len(pieces()) == 4
    stretched = ["eval", "suite", "-t", "2", "--rope-scaling", "linear", "--rope-scale", "2"]
    assert "was measured with another rope (None, and now linear 2)" in octavo(stretched, code=1).stderr


def test_a_report_is_of_one_model_and_setting(octavo, home):
    octavo(["eval", "suite", "-t", "2", "--cache-type", "q8_0"], "--depths", "9000", code=1)
    (home / "mine.json").write_text(json.dumps({"report": 1, "octavo": "0.1", "speed": [], "quality": []}))
    done = octavo(SPEED, code=1)
    assert "was measured with another octavo (0.1, and now" in done.stderr
    (home / "mine.json").write_text("{}")
    assert "is not a report of octavo" in octavo(SPEED, code=1).stderr


def report_of(home, **settings):
    located, library = locate_model(ModelSettings(home / "tiny.gguf", 0, 2, index_dir=home, **settings), print)
    return Report(home / "mine.json", located, library)


def test_a_report_is_of_one_cache_type_and_rope_scaling(home):
    report_of(home).plan("speed", [])
    content = json.loads((home / "mine.json").read_text())
    older = {name: value for name, value in content.items() if not name.startswith("rope")}
    (home / "mine.json").write_text(json.dumps(older))
    report_of(home)  # a report from before has the defaults
    scaled = {"rope_scaling": "yarn", "rope_scale": 2.0}
    with pytest.raises(OctavoError, match=r"another rope \(None, and now yarn 2\)"):
        report_of(home, **scaled)
    (home / "mine.json").unlink()
    report_of(home, **scaled, cache_type="q4_0").plan("speed", [])
    report_of(home, **scaled, cache_type="q4_0")
    for other in ({}, {**scaled, "rope_scale": 4.0}, {**scaled, "rope_scaling": "linear"}):
        with pytest.raises(OctavoError, match="another"):
            report_of(home, **other, cache_type="q4_0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "--report", "a.json", "--attention", "auto"], "over octavo's own text: leave out --attention."),
        (["bench", "--report", "a.json", "--peer", "mine=/bin/true"], "over octavo's own text: leave out --peer."),
        (["bench", "--report", "a.json", "-t", "1,2"], "--report takes one number of threads"),
        (["bench", "--report", "a.json", "-o", "csv"], "--report prints -o md or json."),
        (["eval", "suite"], "suite keeps its results in a file: name it with --report FILE.json."),
        (["eval", "suite", "--report", "a.json", "--seed", "3"], "measures the same for all owners: leave out --seed."),
        (["eval", "needle", "--report", "a.json"], "--report keeps all tasks: octavo eval suite --report FILE.json."),
    ],
)
def test_wrong_use_exits_with_2(arguments, message):
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_folders_users_and_machines_are_left_out(home):
    given = {
        "cannot": f"failed to load '{home}/models/tiny.gguf': no such file",
        "text": ["C:\\Users\\ariadne\\notes.txt", "~/notes.txt", "by ariadne on labyrinth"],
        "kept": ["tokens/s", "AMD EPYC", "Linux-6.1-x86_64", "and/or", "https://example.org/a", "ariadnes", 3, None],
    }
    assert without_names(given) == {
        "cannot": "failed to load 'tiny.gguf': no such file",
        "text": ["notes.txt", "notes.txt", "by - on -"],
        "kept": given["kept"],
    }


def test_a_slow_model_is_measured_at_fewer_depths_with_fewer_samples(llama, monkeypatch):
    assert longest_within([1, 2, 3], lambda plan: 10 - plan, 8) == 2
    assert longest_within([1, 2], lambda plan: 10.0, 8) == 2
    monkeypatch.setattr(report_quality, "TASKS_OF_SUITE", ("niah-single",))
    monkeypatch.setattr(report_quality, "_DEPTHS", (300, 400))
    plans = []
    for seconds in (1e-6, 2e-3, 1.0):
        monkeypatch.setattr(Pace, "of", lambda *_, seconds=seconds: Pace(seconds, 0, seconds, 0))
        pieces = report_quality.quality_pieces(llama, None, [], None, print)
        plans.append(({piece["depth"] for piece in pieces}, pieces[0]["samples"]))
        assert all(piece["estimated_s"] <= 3600 for piece in pieces) or plans[-1] == ({300}, 5)
    assert plans[0] == ({300, 400}, 20)
    assert plans[-1] == ({300}, 5)


def test_each_task_of_the_suite_has_data_of_its_own():
    tasks = [report_quality.suite_task(words) for words in report_quality.TASKS_OF_SUITE]
    assert len(set(tasks)) == 15
    for task in tasks:
        assert task.higher_is_better
        assert task.data.is_relative_to(ROOT)
