"""What commands show."""

from octavo.cli.render import clock, markdown_table, size


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
