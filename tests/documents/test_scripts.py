"""Test how powers and indices become plain text."""

import pytest

from octavo.documents.html.html import parse, to_markdown
from octavo.documents.scripts import Run, lowered, raised, with_marks


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("6", "^6"),
        ("-4", "^-4"),
        ("\u22124", "^\u22124"),
        ("n", "^n"),
        ("n+1", "^{n+1}"),
        ("1,2", "^{1,2}"),
        ("-kt", "^{-kt}"),
        ("2n", "^{2n}"),
        ("½", "^½"),
        ("th", "th"),
        ("ème", "ème"),
        ("TM", "TM"),
        ("*", "*"),
        ("see the note below", "see the note below"),
        ("", ""),
    ],
)
def test_a_power_has_a_mark_and_the_end_of_a_word_has_none(text, written):
    assert raised(text) == written


@pytest.mark.parametrize(
    ("before", "text", "after", "written"),
    [
        ("H", "2", "O", "2"),
        ("log", "2", "8", "_2"),
        ("101", "2", " is five", "_2"),
        ("x", "n+1", "", "_{n+1}"),
        ("x", "i,j", "", "_{i,j}"),
        ("v", "max", "", "max"),
        ("a", "\u22121", "", "_\u22121"),
    ],
)
def test_an_index_has_a_mark_where_it_would_be_misread(before, text, after, written):
    assert lowered(text, before, after) == written


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("2<sup>n+1</sup> e<sup>\u2212kt</sup> 10<sup>2n</sup>", "2^{n+1} e^{\u2212kt} 10^{2n}"),
        ("e<sup>x<sup>2</sup></sup>", "e^{x^2}"),
        ("10<sup><i>6</i></sup> m<sup>2</sup>", "10^6 m^2"),
        ("the 1<sup>er</sup> of H<sub>2</sub>O, x<sub>n+1</sub>", "the 1er of H2O, x_{n+1}"),
        ("x<sub>1</sub><sup>2</sup>, log<sub>2</sub>8", "x1^2, log_28"),
        ("<table><tr><td>10<sup>6</sup><td>10<sup>-6</sup></table>", "| 10^6 | 10^-6 |\n| --- | --- |"),
    ],
)
def test_powers_of_pages_are_no_other_numbers(html, text):
    assert to_markdown(parse(f"<p>{html}</p>", "x"))[0].strip() == text


def test_runs_side_by_side_are_one_power():
    assert with_marks([Run("10"), Run("-", 1), Run("3", 1), Run(" m")]) == "10^-3 m"
    assert with_marks([Run("H"), Run("2", -1), Run("O")]) == "H2O"
    assert with_marks([Run("log"), Run("2", -1), Run("8")]) == "log_28"


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([Run("The rent is "), Run("900 ", is_struck=True), Run("950")], "The rent is ~~900~~ 950"),
        ([Run("10", 0, True), Run("6", 1, True), Run(" m", 0, True), Run("10"), Run("5", 1)], "~~10^6 m~~10^5"),
        ([Run(" ", is_struck=True), Run("x")], " x"),
        ([Run("~~a~~", is_struck=True)], "~~a~~"),
        ([], ""),
    ],
)
def test_struck_out_runs_have_one_mark_around_them(runs, text):
    assert with_marks(runs) == text
