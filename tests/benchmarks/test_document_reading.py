"""Test how what is read of documents is compared with what is right."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "document_reading.py"


@pytest.fixture(scope="module")
def reading():
    spec = importlib.util.spec_from_file_location("document_reading", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('a [b](c_(d) "e") [[1]](#f) <!-- g --> \\_h\\_', "a [b] [[1]]   h"),
        ("a ![b](c) ![d] e", "a     e"),
        (r"so $\frac{\pi r}{\cos x}$ is", "so { π r } { c o s x } is"),
        ("$$a^2$$ costs $5", "a ^ 2 costs $5"),
        ("| a |\n| --- |", "| a |\n "),
    ],
)
def test_marks_are_not_compared(reading, text, plain):
    assert reading.plain(text) == plain


def test_figures_are_1_for_what_is_right_and_0_for_nothing(reading):
    right = "# A\n\nb c\n\n| d | e |\n| --- | --- |\n"
    assert reading.compare(right, right) == [1, 1, 1, 1]
    assert reading.compare("", right) == [0, 0, 0, 0]
