"""What runs README.md notices a command that fails, and one that prints something else than README shows."""

import re

from helpers.product import ROOT
from readme.run_readme import ANSWERS, OWN, Command, Outcome, Shell, commands, fits, misses_answer, run_page

PAGE = """
```
export NAME=finch       # for the next one
```

```
$ echo "$NAME"
finch
$ printf 'a\\nb\\nc\\n'
a
...
```

```sh
test -d . && \\
    echo two lines
```
"""


def test_the_commands_of_a_page_stand_in_its_blocks():
    assert list(commands(PAGE)) == [
        Command("export NAME=finch"),
        Command('echo "$NAME"', ["finch"]),
        Command("printf 'a\\nb\\nc\\n'", ["a", "..."]),
        Command("test -d . && \\\n    echo two lines\n"),
    ]


def test_a_page_runs_top_to_bottom(tmp_path):
    assert run_page(PAGE, Shell(tmp_path, tmp_path)) == []


def test_what_fails_or_prints_something_else_is_named(tmp_path):
    page = PAGE.replace("finch\n$", "siskin\n$").replace("test -d .", "test -d nothing")
    assert run_page(page, Shell(tmp_path, tmp_path)) == [
        'echo "$NAME": prints something else than README shows',
        "test -d nothing && \\: exit code 1",
    ]


def test_an_answer_that_is_wrong_or_was_stopped_is_named():
    line = 'octavo ask examples/ "Who sang the national anthem?"'
    assert not misses_answer(line, Outcome(0, "It was Lady Gaga.", ""))
    assert misses_answer(line, Outcome(0, "It was Beyonce.", ""))
    assert misses_answer(line, Outcome(0, "It was Lady Gaga.", "(The answer was stopped: the model repeated itself.)"))
    assert misses_answer("octavo chat examples/encyclopedia.pdf", Outcome(0, "It is the Pleistocene.", ""))
    assert not misses_answer("octavo --help", Outcome(0, "", ""))


def test_each_question_of_readme_has_an_answer():
    page = (ROOT / "README.md").read_text("utf-8")
    asking = [
        command.line for command in commands(page) if re.search(r"octavo ask|\.ask\(|chat/completions", command.line)
    ]
    assert len(asking) >= 5
    assert all(any(question in line for question in ANSWERS) for line in asking)


def test_dots_stand_for_any_lines():
    assert fits(["a", "...", "z"], "a\nb\nc\nz\n")
    assert not fits(["a", "...", "z"], "a\nb\n")
    assert fits(["a", "..."], "a\n")
    assert fits(["...", "z"], "a\nz\n")
    assert not fits(["a", "..."], "ab\nc\n")
    assert fits([], "anything")


def test_readme_has_its_commands_in_blocks():
    page = (ROOT / "README.md").read_text("utf-8")
    lines = [command.line for command in commands(page)]
    first = [line.split()[0] for line in lines]
    assert {"make", "source", "octavo", "curl", "python"} <= set(first)
    assert any(line.startswith("octavo serve") for line in lines)
    assert f"`{OWN}`" in page
