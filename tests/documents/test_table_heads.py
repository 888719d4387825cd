"""The head of the table that a place in a text is in, whichever file the text is of."""

import pytest

from octavo.documents.table_heads import MOST_HEAD, TableHeads

ROWS = "".join(f"| nut {number} | {number}.50 |\n" for number in range(9))


def lead(text, place, name="stock.md"):
    """Return what belongs before a place: the head, and the row up to the place."""
    heads, offset = TableHeads(text, name), text.index(place)
    above = heads.above(offset)
    return (text[above.start : above.stop], text[above.row : offset]) if above else None


@pytest.mark.parametrize(
    ("name", "head", "rows"),
    [
        ("bars", "| name | price |\n| --- | --- |\n", "| nut 1 | 1.50 |\n| nut 2 | 2.50 |\n"),
        ("no bars", "name | price\n--- | ---:\n", "nut 1 | 1.50\nnut 2 | 2.50\n"),
        ("narrow rule", "|name|price|\n|-|:-:|\n", "|nut 1|1.50|\n|nut 2|2.50|\n"),
        ("in a quotation", "> | name | price |\n> | --- | --- |\n", "> | nut 1 | 1.50 |\n> | nut 2 | 2.50 |\n"),
        ("one column", "| name |\n| --- |\n", "| nut 1 |\n| nut 2 |\n"),
        ("years", "| name | 2019 | 2020 |\n| --- | --- | --- |\n", "| nut 1 | 3001 | 2 |\n| nut 2 | 4001 | 3 |\n"),
        ("months", "| name | 1 | 2 |\n| --- | --- | --- |\n", "| nut 1 | 30 | 2 |\n| nut 2 | 40 | 3 |\n"),
        ("a column without a name", "| name | |\n| --- | --- |\n", "| nut 1 | 1.50 |\n| nut 2 | 2.50 |\n"),
        ("no corner", "| | price |\n| --- | --- |\n", "| nut 1 | 1.50 |\n| nut 2 | 2.50 |\n"),
        (
            "names under groups",
            "| item | sales | sales |\n| --- | --- | --- |\n| item | 2019 | 2020 |\n",
            "| nut 1 | 7 | 8 |\n| nut 2 | 9 | 10 |\n",
        ),
        (
            "groups and names under a title",
            "| Prices of 2024 | | |\n| --- | --- | --- |\n| item | sales | sales |\n| item | north | south |\n",
            "| nut 1 | 1.50 | 2.50 |\n| nut 2 | 9.50 | 1.50 |\n",
        ),
        ("an empty head", "", "| | |\n| --- | --- |\n| nut 1 | oak |\n| nut 2 | elm |\n"),
        ("values in place of a head", "", "| nut 0 | 0.50 |\n| --- | --- |\n| nut 1 | 1.50 |\n| nut 2 | 2.50 |\n"),
    ],
)
def test_a_row_belongs_to_the_names_of_its_columns(name, head, rows):
    text = f"Before.\n\n{head}{rows}\nAfter | all.\n"
    begin = rows.rfind("\n", 0, rows.index("nut 2")) + 1
    assert lead(text, "nut 2") == (head, rows[begin : rows.index("nut 2")])
    assert lead(text, "After") is None
    assert lead(text, "Before") is None


@pytest.mark.parametrize(
    ("name", "head", "rows"),
    [
        ("a.csv", "name,price\n", "nut 1,1.50\nnut 2,2.50\n"),
        ("A.CSV", "name;price\r\n", "nut 1;1,50\r\nnut 2;2,50\r\n"),
        ("a.tsv", "name\tprice, net\n", "nut 1\t1.50\nnut 2\t2.50\n"),
        ("a.csv", '"name\nof the part","price, net"\n', '"nut 1",1.50\n"nut 2",2.50\n'),
        ("a.csv", ",name,price\n", "0,nut 1,1.50\n1,nut 2,2.50\n"),
        ("a.csv", "name,price,\n", "nut 1,1,\nnut 2,2,\n"),
        ("a.csv", "sep=|\nname|price\n", "nut 1|1.50\nnut 2|2.50\n"),
        ("a.csv", "Preise, Stand 2024\n\nname;price;place\n", "nut 1;1,50;Ulm\nnut 2;2,50;Ulm\n"),
        ("a.csv", "", "nut 0,0.50\nnut 1,1.50\nnut 2,2.50\n"),
        ("a.csv", "名前,価格\n", "nut 1,1.50\nnut 2,2.50\n"),
    ],
)
def test_a_file_of_separated_values_is_a_table(name, head, rows):
    text = head + rows
    assert lead(text, "nut 2", name)[0] == head
    assert TableHeads(text, name).head(0) == ""
    assert TableHeads(text, "a.txt").above(len(text) - 3) is None


def test_two_tables_have_their_own_heads_and_a_place_in_a_head_lacks_only_what_is_before():
    first, second = "| name | price |\n| --- | --- |\n", "| town | people |\n| --- | --- |\n"
    text = f"Stock:\n\n{first}{ROWS}\n{second}| Ulm | many |\n| Bonn | more |\n"
    assert lead(text, "nut 7") == (first, "| ")
    assert lead(text, "Bonn") == (second, "| ")
    assert lead(text, "Ulm") == (second, "| ")
    assert lead(text, "people") == ("", "| town | ")
    assert lead(text, "| town") is None


def test_a_table_goes_on_below_the_head_that_it_has_on_the_page_before():
    head = "| name | price |\n| --- | --- |\n"
    more = "".join(f"| nut {i}0 | 1.50 |\n| --- | --- |\n| nut {i}1 | 2.50 |\n\n" for i in (1, 2))
    for place in ("nut 10", "nut 11", "nut 20", "nut 21"):
        assert lead(f"{head}{ROWS}\n{more}", place) == (head, "| ")
    assert lead(f"{head}{ROWS}\nOthers:\n\n{more}", "nut 11") == ("", "| ")
    assert TableHeads(f"{head}{ROWS}\n{more}", "a.md").head(len(head + ROWS) + 1) == head


def test_the_rows_that_a_part_of_a_document_begins_with_go_on():
    rows = "| nut 1 | 1.50 |\n| nut 2 | 2.50 |\n"
    for name, text in (("a.csv", "nut 1,1.50\nnut 2,2.50\n"), ("a.md", rows)):
        assert TableHeads(text, f"{name}, part 2 of 12").n_continued == len(text)
        assert TableHeads(text, name).n_continued == 0
    heads = TableHeads(f"{rows}| a | b |\n| --- | --- |\n| c | d |\n", "a.md, part 12 of 12")
    assert heads.n_continued == len(rows)
    assert heads.head(len(rows) + 25) == "| a | b |\n| --- | --- |\n"


@pytest.mark.parametrize("width", [10, 5000])
def test_a_head_or_a_row_larger_than_others_is_not_repeated(width):
    names = "| " + " | ".join(f"column {number}" for number in range(width)) + " |\n"
    text = f"{names}|{' --- |' * width}\n| nut | {'long ' * width}here |\n| bolt | 2 |\n"
    head, row = lead(text, "here")
    assert bool(head) == bool(row) == (width == 10)
    assert len(head) <= MOST_HEAD


def test_what_only_looks_like_a_table_is_none():
    for text in (
        "A title\n---\n\nText | more.\nText | again.\n",
        "| a | b |\n| c | d |\n",
        "---\n| a |\n",
        "|---|\n|x|",
    ):
        assert not TableHeads(text, "a.md").tables
