"""benchmarks/many_questions.py: the rows of its table, and what it keeps."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import many_questions

    return many_questions


def answer(way, number, kl, same=1.0):
    figures = {"dense F1": 0.5, "F1 more": 0.0, "same": same, "KL": kl, "true coverage": 0.95, "estimated": 0.96}
    return {"way": way, "number": number, **figures}


def test_a_row_has_means_and_standard_errors(script):
    answers = [answer("alone", 1, 0.2), answer("kept", 2, 0.1), answer("kept", 3, 0.3, same=0.0)]
    means = [
        ["0.500", "0.000", "1.000", "0.2000", "0.950", "0.960"],
        ["0.500", "0.000 ± 0.000", "0.500 ± 0.500", "0.2000 ± 0.1000", "0.950", "0.960"],
    ]
    heads = [["quest", "alone", "1 to 1", "1"], ["quest", "kept", "2 to 5", "2"]]
    assert script.rows_of("quest", answers) == [[*head, *row] for head, row in zip(heads, means, strict=True)]


def test_an_order_is_measured_once(script, monkeypatch, capsys, tmp_path):
    measured = []

    def answers_of(_new_asker, name, questions):
        measured.append((name, [each.question for each in questions]))
        return [answer("alone", 1, 0.2)]

    monkeypatch.setattr(script, "answers_of", answers_of)

    folder = tmp_path / "kept"
    folder.mkdir()
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "model.gguf").write_bytes(bytes([number]))

    def run(*orders, model=0):
        options = [
            "-m",
            str(tmp_path / str(model) / "model.gguf"),
            "--attentions",
            "quest",
            "--questions",
            "2",
            "--orders",
            *orders,
        ]
        monkeypatch.setattr(sys, "argv", ["many_questions.py", str(folder), *options])
        script.main()
        return capsys.readouterr().out.splitlines()[-1]

    assert "| 1 to 1 | 1 |" in run("0")
    assert "| 1 to 1 | 2 |" in run("0", "3")
    assert [name for name, _ in measured] == ["quest", "quest"]
    assert measured[0][1] != measured[1][1]
    run("0", model=1)
    assert len(measured) == 3  # another model of the same name
    monkeypatch.setattr(script, "__version__", "9.9")
    run("0")
    assert len(measured) == 4
    assert sorted(path.name[-14:] for path in folder.iterdir()) == 3 * ["quest-2-0.json"] + ["quest-2-3.json"]
