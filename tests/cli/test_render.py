"""What commands show."""

import sys

import pytest

from octavo.cli import render
from octavo.cli.batch_progress import ManyProgress
from octavo.cli.fitting import Wrapper
from octavo.cli.render import TaskProgress, markdown_table, size
from octavo.progress import clock


def test_a_table_in_markdown():
    rows = [["quest", "1"], ["sparq", "20"]]
    assert markdown_table(["method", "ms"], rows).splitlines() == [
        "| method | ms |",
        "| --- | ---: |",
        "| quest | 1 |",
        "| sparq | 20 |",
    ]
    assert markdown_table(["a", "b", "c"], [], n_left=2).splitlines()[1] == "| --- | --- | ---: |"


def test_sizes_are_for_people():
    assert [size(n) for n in (0, 1023, 1536, 3 << 20, 5 << 40)] == [
        "0 B",
        "1,023 B",
        "1.5 KiB",
        "3.0 MiB",
        "5,120.0 GiB",
    ]


def test_durations_are_for_people():
    assert [clock(seconds) for seconds in (0, 59.6, 125, 3725)] == ["0:00", "1:00", "2:05", "1:02:05"]


TEXT = "The keeper wrote down each ship.\n\n- One was called Petrel, of Leith.\n| a table | stays as wide as it is |\n"


@pytest.mark.parametrize("length", [1, 3, 1000])
def test_words_wrap_wherever_pieces_end(length):
    wrapper = Wrapper(16)
    pieces = [TEXT[i : i + length] for i in range(0, len(TEXT), length)]
    assert "".join([*map(wrapper.add, pieces), wrapper.rest()]) == (
        "The keeper wrote\ndown each ship.\n\n- One was called\nPetrel, of\nLeith.\n"
        "| a table | stays as wide as it is |\n"
    )


def test_code_a_long_word_and_the_last_word_stay_whole():
    text = "```\nx = first + second\n```\na_word_of_many_letters and\ttabs end"
    wrapper = Wrapper(10)
    assert wrapper.add(text) + wrapper.rest() == text.replace(" and\ttabs", "\nand\ttabs").replace(" end", "\nend")


def test_wide_characters_count_twice():
    wrapper = Wrapper(8)
    assert wrapper.add("日本 語語 a") + wrapper.rest() == "日本\n語語 a"


def test_progress_off_a_terminal_comes_now_and_then(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(render.time, "perf_counter", lambda: now[0])
    with TaskProgress() as progress:
        progress.start("Reading", 100, "tokens")
        for _ in range(50):
            now[0] += 0.6
            progress.advance(2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Reading: 100 tokens"
    assert lines[1].startswith("Reading: 34/100 tokens 3.3 tokens/s ")
    assert len(lines) == 4
    assert lines[-1] == "Reading: 100/100 tokens 3.3 tokens/s in 0:30"


@pytest.mark.parametrize("ends", [True, False])
def test_nothing_is_drawn_while_an_answer_is_written(ends, monkeypatch, capsys):
    """Also when the reading of a document was given up, whose bar is not full."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    many = ManyProgress()

    def pieces():
        many.begin(1)
        document = many.document("book.txt")
        document.start("Reading book.txt", 100, "tokens")
        document.advance(10)
        drawn.append([bar.live.is_started for bar in render._drawn])
        if ends:
            document.end()
        for word in ("It ", "was."):
            yield word
            drawn.append([bar.live.is_started for bar in render._drawn])

    drawn = []
    with many, render.signs_of_life("Reading the question") as alive:
        render.stream(alive(pieces()))
    assert drawn == [[False, True], [], []]
    assert capsys.readouterr().out == "It was.\n"
