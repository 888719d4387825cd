"""The line below an answer that says what it was given from."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from octavo.ask.answer.answer import ContextShare
from octavo.cli.answers import say_which
from octavo.library.expand_paths import distinct_names

PASSAGES = ContextShare("excerpts", 5, 0.0312)


def session_of(names, basis, rest="being read", needs_whole=False):
    """Return a conversation whose last answer came from files of these names."""
    paths, answer = (
        [Path(name) if name == "-" else Path("/home/user/papers") / name for name in names],
        SimpleNamespace(read=basis),
    )
    shown = {"names": distinct_names(paths), "read_from": paths, "answer": answer, "rest": rest}
    return SimpleNamespace(found=["any"], needs_whole=needs_whole, **shown)


@pytest.mark.parametrize(
    ("names", "basis", "more", "line"),
    [
        (["a.pdf"], PASSAGES, {}, "From 5 passages, 3.1% of a.pdf; the rest is being read."),
        (["a.pdf"], PASSAGES, {"rest": "indexed"}, "From 5 passages, 3.1% of a.pdf."),
        (["a.pdf", "b.md"], ContextShare("excerpts", 1), {}, "From 1 passage of a.pdf and b.md."),
        (["a.pdf, part 2 of 3", "a.pdf, part 1 of 3"], ContextShare("excerpts", 2), {}, "From 2 passages of a.pdf."),
        (["a.pdf, part 2 of 3"], ContextShare("part"), {}, "From a.pdf, part 2 of 3."),
        (["x/a.md", "y/a.md"], ContextShare("excerpts", 2), {}, "From 2 passages of x/a.md and y/a.md."),
        (
            ["a.pdf"],
            PASSAGES,
            {"needs_whole": True},
            "From 5 passages, 3.1% of a.pdf; about all of it? Use --read document.",
        ),
        (
            ["a.md"],
            ContextShare("part", 0, 0.4, True),
            {},
            "From the 40% of a.md that are read; the rest is being read.",
        ),
        (["-"], ContextShare("document"), {}, "From Standard input."),
        (["a.md, part 1 of 9", "a.md, part 2 of 9"], ContextShare("findings"), {}, "From the answers of all of a.md."),
        (
            ["a.md"],
            ContextShare("findings", share=0.25),
            {"needs_whole": True},
            "From the answers of 25% of a.md; asked again, the question goes to the rest.",
        ),
    ],
)
def test_the_line_names_documents_as_they_are_listed(names, basis, more, line, capsys):
    say_which(session_of(names, basis, **more))
    assert capsys.readouterr().err == f"({line})\n"


@pytest.mark.parametrize("n_letters", [5, 20, 60, 200])
def test_it_is_one_line_of_a_terminal(n_letters, monkeypatch, capsys):
    monkeypatch.setattr("octavo.cli.answers.columns_of", lambda stream: 80)
    monkeypatch.setattr("octavo.cli.render.columns_of", lambda stream: 80)
    say_which(session_of([f"{letter * n_letters}.pdf" for letter in "abcdef"], PASSAGES))
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert re.search(r"^\(From 5 passages, 3\.1% of a\S+(, b\S+)* and \d more; the rest is being read\.\)$", line)
