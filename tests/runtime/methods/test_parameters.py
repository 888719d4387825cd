"""Parameters of methods: what `NAME:key=value,...` sets, and what it refuses."""

from dataclasses import dataclass, replace

import pytest
from click.testing import CliRunner

from octavo.cli.main import cli
from octavo.cli.option_types import AttentionListType
from octavo.errors import OctavoError
from octavo.runtime.methods import words
from octavo.runtime.methods.attention import Attention, parameters_of
from octavo.runtime.methods.parameters import Parameters, explain, explain_presets, parameter, read_settings, summary


@dataclass(frozen=True)
class Garden(Parameters):
    """Grow something.

    It may take
    some time.

    Parameters
    ----------
    rows : int
        Rows of the bed, at
        least one.
    share : float
        What is watered.
    wet, fenced : bool
        How it is.
    crop : str
        What grows.
    depth : int
        How deep; by default as the crop wants it.
    side : int
        Length of a square.

    Raises
    ------
    OctavoError
        If it rains.
    """

    rows: int = parameter(3, least=1)
    share: float = parameter(0.5, above=0, most=1)
    wet: bool = parameter(False)
    fenced: bool = parameter(True)
    crop: str = parameter("peas", choices=("peas", "beans", "corn"))
    depth: int | None = parameter(None, int, least=0, most=9)
    side: int = parameter(4, choices=(2, 4, 8))

    name = "garden"
    presets = {"paper": {"rows": 8, "wet": True}, "wild": {"fenced": False}}  # noqa: RUF012


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("rows=4", {"rows": 4}),
        ("rows=4,share=.25", {"rows": 4, "share": 0.25}),
        ("share=1", {"share": 1.0}),
        ("wet=on,fenced=off", {"wet": True, "fenced": False}),
        ("crop=corn,depth=0", {"crop": "corn", "depth": 0}),
        ("side=8", {"side": 8}),
        ("paper", {"rows": 8, "wet": True}),
        ("paper,rows=2", {"rows": 2, "wet": True}),
        ("rows=2,paper", {"rows": 8, "wet": True}),
        ("paper,wild", {"rows": 8, "wet": True, "fenced": False}),
    ],
)
def test_settings_are_read(text, settings):
    read = read_settings(Garden, text)
    assert read == settings
    assert {name: type(value) for name, value in read.items()} == {n: type(v) for n, v in settings.items()}
    Garden(**read)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "",
            "garden has no preset named '': its parameters are rows, share, wet, fenced, crop, depth, side; "
            "its presets are",
        ),
        ("row=4", "garden has no parameter named 'row'"),
        ("papers", "garden has no preset named 'papers'"),
        ("rows", "garden has no preset named 'rows'"),
        ("rows=x", "garden's rows has to be a whole number from 1 on, not x."),
        ("rows=0", "garden's rows has to be a whole number from 1 on, not 0."),
        ("rows=1.5", "a whole number from 1 on, not 1.5."),
        ("share=0", "garden's share has to be a number above 0 and at most 1, not 0."),
        ("share=nan", "garden's share has to be a number above 0 and at most 1, not nan."),
        ("wet=yes", "garden's wet has to be on or off, not yes."),
        ("crop=", "garden's crop has to be peas, beans or corn, not ."),
        ("depth=10", "garden's depth has to be a whole number from 0 to 9, not 10."),
        ("side=3", "garden's side has to be 2, 4 or 8, not 3."),
        ("side=x", "garden's side has to be 2, 4 or 8, not x."),
    ],
)
def test_wrong_settings_are_refused(text, reason):
    with pytest.raises(OctavoError) as refusal:
        read_settings(Garden, text)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    "wrong", [{"rows": 0}, {"share": 2}, {"wet": 1}, {"crop": 3}, {"depth": "x"}, {"rows": 1.5}, {"side": 3}]
)
def test_python_may_set_no_other_values_than_the_command_line(wrong):
    with pytest.raises(OctavoError, match=r"garden's .* has to be"):
        Garden(**wrong)


def test_parameters_are_explained_by_the_docstring():
    assert summary(Garden) == "Grow something."
    assert explain(Garden) == [
        ("rows=3", "a whole number from 1 on", "Rows of the bed, at least one."),
        ("share=0.5", "a number above 0 and at most 1", "What is watered."),
        ("wet=off", "on or off", "How it is."),
        ("fenced=on", "on or off", "How it is."),
        ("crop=peas", "peas, beans or corn", "What grows."),
        ("depth", "a whole number from 0 to 9", "How deep; by default as the crop wants it."),
        ("side=4", "2, 4 or 8", "Length of a square."),
    ]
    assert explain_presets(Garden) == [("paper", "rows=8,wet=on"), ("wild", "fenced=off")]


@pytest.mark.parametrize("word", words())
def test_every_word_explains_its_parameters_and_its_presets_hold(word):
    owner = parameters_of(word)
    assert owner.name == word
    assert summary(owner).endswith(".")
    assert [name for name, _, said in explain(owner) if not said] == []
    for values in owner.presets.values():
        owner(**values)


def test_help_prints_every_parameter():
    shown = CliRunner().invoke(cli, ["ask", "x", "y", "--attention", "help"])
    assert shown.exit_code == 0
    for word in words():
        assert f"\n{word}: " in shown.stdout
        assert all(f"  {name}  " in shown.stdout for name, _, _ in explain(parameters_of(word)))


def test_settings_reach_the_method():
    quest = Attention.parse("quest:dense_layers=0,budget=0.5")
    assert quest.parameters == {"dense_layers": 0, "budget": 0.5}
    assert replace(quest, budget=0.1).new_method().dense_layers == 0
    assert replace(quest, budget=0.1).new_method().budget == 0.5
    assert not quest.has_budget, "its own budget counts"
    assert Attention.parse("quest:dense_layers=0").has_budget


def test_commas_of_settings_divide_no_list():
    read = AttentionListType().convert("dense,quest:dense_layers=0,budget=0.5,sparq+duo:retrieval=0.5", None, None)
    assert read == ["dense", "quest:dense_layers=0,budget=0.5", "sparq+duo:retrieval=0.5"]
