"""Books, papers and laws: heads, numbers of pages, lines and notes, drop capitals, indexes, fractions, columns."""

from __future__ import annotations

import textwrap

from .layout import Drawing, Layout

_STORY = (
    "The miller had three sons, and the youngest kept the geese beside the weir. In the dry summer the wheel stood "
    "still for nine weeks, and the bread of the valley came by cart from the town. It was said that the old mill had "
    "been sold, but nobody knew to whom, and the miller did not speak of it. When the rain came at last, the wheel "
    "turned for a day and a night, and in the morning the youngest was gone with the cart."
)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width)


def _book(page: Drawing) -> None:
    """Draw five pages with a running head, the same on left and right pages, and their numbers at the foot."""
    for number in range(5):
        page.text(297, 812, ("THE MILL AT THE WEIR", "A. N. Author")[number % 2], 9, "Times-Italic", at="middle")
        if not number:
            page.text(60, 760, "Of Geese", 18, "Times-Bold")
        page.lines(60, 730, _wrapped(f"On day {number + 8} nothing stirred. {_STORY}", 90), font="Times-Roman")
        page.text(297, 30, str(number + 17), 9, "Times-Roman", at="middle")
        page.page()


def _years(page: Drawing) -> None:
    """Draw a chronicle whose titles are years, one for each page."""
    for year, event in ((1954, "The bridge burned."), (1955, "A new bridge was built."), (1956, "The toll fell.")):
        page.text(60, 800, str(year), 16, "Times-Bold")
        page.lines(60, 770, [event, *_wrapped(_STORY, 90)[:3]], font="Times-Roman")
        page.page()


def _days(page: Drawing) -> None:
    """Draw a log with one page for each day, named at the top."""
    for day, wind in (
        ("3 mars 2026", "nord"),
        ("4 mars 2026", "nord-est"),
        ("5 mars 2026", "sud"),
        ("7 mars 2026", "nul"),
    ):
        page.text(535, 812, day, 9, at="right")
        page.lines(60, 760, [f"Le vent : {wind}.", "Rien à signaler sur la côte avant midi."], 16)
        page.page()


def _clauses(page: Drawing) -> None:
    """Draw a contract each of whose pages begins with a clause."""
    texts = {
        "Scope": "This is about the pier.",
        "Term": "It ends in May.",
        "Price": "It costs 900.",
        "Notice": "Write a letter.",
    }
    for number, (title, text) in enumerate(texts.items(), 1):
        page.text(60, 800, f"{number} {title}", 13, "Helvetica-Bold")
        page.lines(60, 775, [text, *_wrapped(_STORY, 95)[:4]])
        page.page()


def _sections(page: Drawing) -> None:
    """Draw a manual whose head names the chapter, which nothing else does, and differs from part to part."""
    for chapter, recipe in (("Soups", "Leek"), ("Soups", "Barley"), ("Cakes", "Plum"), ("Cakes", "Nut")):
        page.text(60, 812, chapter, 9, "Helvetica-Oblique")
        page.text(60, 765, recipe, 14, "Helvetica-Bold")
        page.lines(60, 740, _wrapped(_STORY, 95)[:5])
        page.page()


def _numbered_lines(page: Drawing) -> None:
    """Draw a deposition whose lines are all numbered at the left, on two pages."""
    for number in range(2):
        for i, line in enumerate(_wrapped(_STORY + " " + _STORY, 60)):
            page.text(72, 760 - 22 * i, str(i + 1), 10, "Courier", at="right")
            page.text(100, 760 - 22 * i, line, 10, "Courier")
        page.text(100, 800, f"Hearing of Ms. Holm, part {'AB'[number]}", 10, "Courier-Bold")
        page.page()


def _fifth_lines(page: Drawing) -> None:
    """Draw verses of which each fifth has its number in the right margin."""
    page.text(60, 800, "The Weir", 15, "Times-Bold")
    for i, line in enumerate(_wrapped(_STORY, 38)):
        page.text(60, 770 - 15 * i, line, 11, "Times-Roman")
        if i % 5 == 4:
            page.text(330, 770 - 15 * i, str(i + 1), 8, "Times-Roman")


_SUBJECTS = (
    *("alder, 4, 19", "ash, 7", "  bark of, 8", "  leaves of, 9-11", "beech, 12", "  in hedges, 40-42", "birch, 3"),
    *("box, 31", "cedar, 22", "cherry, 17", "  wild, 18", "elder, 5", "elm, 28", "  in towns, 29", "fir, 33"),
    *("hazel, 2", "  nuts of, 6", "holly, 14", "ivy, 20, 37", "larch, 25"),
)
_PLANTS = "agrest brzoza cis dąb fiołek głóg jawor klon lipa modrzew olcha paproć róża sosna"


def _index(page: Drawing) -> None:
    """Draw an index in two columns, with entries below entries."""
    page.text(60, 800, "Index", 16, "Times-Bold")
    for i, entry in enumerate(_SUBJECTS):
        page.text(
            60 + 260 * (i // 10) + 12 * entry.startswith(" "), 770 - 14 * (i % 10), entry.strip(), 10, "Times-Roman"
        )


def _notes(page: Drawing) -> None:
    """Draw a page with two notes at its foot, whose marks stand apart from them."""
    page.lines(
        60, 780, ["The mill was sold to a stranger 1) in the autumn, who", "closed it 2) before the first frost."]
    )
    page.rule(60, 112, 200, 112)
    for i, (mark, note) in enumerate((("1)", "His name is not in the book."), ("2)", "The date is lost."))):
        page.text(60, 98 - 12 * i, mark, 8)
        page.text(78, 98 - 12 * i, note, 8)


def _fractions(page: Drawing) -> None:
    """Draw a fraction, with its rule, within a line."""
    page.text(60, 780, "The share of each heir is")
    for y, number in ((787, "17"), (773, "48")):
        page.text(198, y, number, 9, at="middle")
    page.rule(190, 783, 206, 783)
    page.text(214, 780, "of the whole estate, and no more.")


def _addresses(page: Drawing) -> None:
    """Draw the addresses of two firms side by side: no table."""
    page.lines(60, 780, ["Seller", "Weir Mills Ltd.", "9 Lock Road", "Tewksby"])
    page.lines(330, 780, ["Buyer", "Otto Brandt", "Am Kai 30", "Emden"])
    page.lines(60, 700, _wrapped(_STORY, 95))


def _big_letters(page: Drawing) -> None:
    """Draw big letters, each before an answer."""
    page.text(60, 790, "Which town has the oldest lock?", 12)
    for i, town in enumerate(("Gent", "Brugge", "Leiden")):
        page.text(60, 740 - 40 * i, "ABC"[i], 22, "Helvetica-Bold")
        page.text(60 + 22 * 0.75, 740 - 40 * i, town, 11)


def _hashes(page: Drawing) -> None:
    """Draw lines that begin as headings of Markdown do."""
    page.text(60, 790, "Inventory", 16, "Helvetica-Bold")
    page.lines(
        60,
        760,
        ["# of oars: 14", "# open the sluice first", "- 3 degrees at noon", "> 40 is too warm", "1986. A good year"],
        22,
    )


_HUNG = ["hen the miller slept, the water rose over the weir", "and took the geese as far as the Old Gate, where the"]
_HUNG += ["Warden held the lamp and called until all of them", "were awake and came with their boats."]


def _hung(page: Drawing) -> None:
    """Draw a capital of three lines whose top is above that of the first line, and whose foot is on the third."""
    page.text(60, 760, "W", 41, "Times-Roman")
    for i, line in enumerate(_HUNG):
        page.text(60 + 42 * (i < 3), 788 - 14 * i, line, 11, "Times-Roman")


def _left_note(page: Drawing) -> None:
    """Draw a narrow note of three lines at the left of a paragraph, whose lines are closer than the text's."""
    page.lines(190, 780, _wrapped(_STORY, 60), font="Times-Roman")
    page.lines(60, 767, ["Ask the", "warden", "first."], 10, size=8)


def _lessons(page: Drawing) -> None:
    """Draw lessons with the number of their page, at the top of four pages."""
    for number, name in enumerate(("Rope", "Sail", "Oar", "Keel"), 1):
        page.text(60, 805, f"{name} {number}", 13, "Helvetica-Bold")
        page.lines(60, 780, [f"This is about the {name.lower()}.", *_wrapped(_STORY, 90)])
        page.page()


_RULES = [
    "Boats wait below the lock until the lamp is green.",
    "No boat goes up while another one comes down.",
    "The warden has the keys and the book.",
]


def _far_lines(page: Drawing) -> None:
    """Draw three rules, one a line, so far apart that they are no paragraph."""
    page.lines(60, 780, _RULES, step=23, size=11)


_ENTRIES = [
    ("alder", "A tree of wet ground whose wood does not", "rot under the water of a lock."),
    ("beech", "A tree of dry ground whose nuts feed the", "pigs of the whole valley."),
    ("birch", "A white tree that grows where others were", "cut, and gives brooms."),
    ("elder", "A bush beside the house in which a woman", "is said to live."),
]


def _glossary(page: Drawing) -> None:
    """Draw entries of two lines in two columns whose lines are not level."""
    for i, (name, first, second) in enumerate(_ENTRIES * 2):
        x, y = 50 + 260 * (i // 4), 780 - 34 * (i % 4) + 10 * (i // 4)
        page.text(x, y, f"{name} {'AB'[i // 4]}. {first}", 10, "Times-Roman")
        page.text(x, y - 12, second, 10, "Times-Roman")


_BOXED = (
    "<style>body{font:11pt serif} aside{float:right;width:3cm;border:1px solid;padding:5pt;margin:0 0 5pt 12pt;"
    f"font-size:8pt}}</style><p><aside>The keys are<br>in the book<br>of the warden.</aside>{_STORY} {_STORY}</p>"
)

_SLIDE = "<section><h2>{}</h2><ul>{}</ul></section>"
_SLIDES = (
    "<style>@page{size:254mm 143mm;margin:12mm} body{font:20pt sans-serif} section{break-after:page}</style>"
    + _SLIDE.format("Overview", "<li>three harbours<li>one winter")
    + _SLIDE.format("Results", "<li>north: 41 ships")
    + _SLIDE.format("Results", "<li>south: 17 ships")
    + _SLIDE.format("Results", "<li>east: none")
)
_FRAGMENTS = (
    "<style>@page{size:254mm 143mm;margin:12mm} p{font:20pt sans-serif} p:last-child{break-after:page}</style>"
    + "".join(f"<div><p>the {side} has<p>{number} ships</div>" for side, number in (("north", "many"), ("south", "no")))
)
_CAPITAL = (
    "<style>body{font:11pt serif;width:11cm} p::first-letter{float:left;font-size:38pt;line-height:.8;"
    "margin:4pt 3pt 0 0}"
    f"</style><h1>The Weir</h1><p>{_STORY}</p>"
)
_MARGIN = (
    "<style>body{font:10pt serif;margin-right:5cm;position:relative} aside{position:absolute;right:-4.6cm;width:4cm;"
    f"font-size:7pt;margin-top:4pt}}</style><aside>Ask the miller first.</aside><p>{_STORY}</p>"
    "<aside>See the plan of the weir.</aside><p>Boats wait below the lock until the lamp is green, and no boat goes up "
    "while another comes down, whatever the hour and however low the water may be in the summer.</p>"
)
_THREE = (
    "<style>body{font:9pt serif} div{columns:3} p{margin:0;padding-left:1em;text-indent:-1em}</style>"
    "<h1>Rejestr</h1><div>"
    + "".join(
        f"<p>{word}, {n}, {n + 9}-{n + 14}, {3 * n}" + (", zob. także młyn i śluza" if n % 4 == 1 else "")
        for n, word in enumerate(_PLANTS.split(), 3)
    )
    + "</div>"
)
_NAMED = (
    "<style>body{font:11pt sans-serif} h1,h2{font:11pt sans-serif;margin:0} p{margin:0} li{margin:0}</style>"
    "<h1>Ohje</h1><p>Sulku avataan<p>Vene ajetaan sisään<p><b>Portti suljetaan</b><h2>Luettelo</h2>"
    "<ul><li>köysi<li>airo, joka on<br>veneessä<ul><li>tuppi</ul></ul>"
)
_REPORT = (
    f"<style>body{{font:11pt serif}} pre{{font:10pt monospace}}</style><h1>Отчёт</h1><p>{_STORY}</p><h2>Πύργος</h2>"
    "<ol><li>one thing</li><li>another</li></ol><pre>if wet:\n    close(gate)</pre><h2>Ende</h2><p>The codes are "
    "qa-wsed-rf and www.old-mill-weir.example, for self-service at half-price.</p>"
)
_HYPHENS = f'<html lang="en"><style>p{{font:11pt serif;width:5cm;hyphens:auto;text-align:justify}}</style><p>{_STORY}'

LAYOUTS = [
    Layout(
        "book",
        _book,
        headings=["Of Geese"],
        order=[f"On day {number}" for number in range(8, 13)],
        whole=["The miller had three sons, and the youngest kept the geese beside the weir."],
        texts=["MILL AT", "Author"],
        left_out="17 18 19 20 21" + " the mill at the weir" * 2 + " a n author" * 1,
    ),
    Layout(
        "chronicle of years",
        _years,
        order=["1954", "bridge burned", "1955", "was built", "1956", "toll fell"],
        rows=[("1955",)],
    ),
    Layout(
        "log of days",
        _days,
        order=["3 mars", "nord.", "4 mars", "nord-est", "5 mars", "sud", "7 mars", "nul"],
    ),
    Layout(
        "clauses at the top of pages",
        _clauses,
        headings=["1 Scope", "2 Term", "3 Price", "4 Notice"],
        order=["1 Scope", "about the pier", "2 Term", "in May", "3 Price", "900", "4 Notice", "a letter"],
    ),
    Layout(
        "kinds in the head",
        _sections,
        order=["Soups", "Leek", "Barley", "Cakes", "Plum", "Nut"],
        headings=["Leek", "Barley", "Plum", "Nut"],
        left_out="soups cakes",
    ),
    Layout(
        "numbered lines",
        _numbered_lines,
        whole=[_STORY],
        order=["part A", "part B"],
        left_out=" ".join(str(number) for number in (*range(1, 31), *range(1, 31))),
    ),
    Layout("each fifth line numbered", _fifth_lines, whole=[_STORY], left_out="5 10"),
    Layout(
        "index in two columns",
        _index,
        order=[entry.strip() for entry in _SUBJECTS],
        headings=["Index"],
    ),
    Layout(
        "index in three columns", _THREE, order=["agrest", "cis, 5", "także młyn i śluza", "dąb", "lipa", "sosna, 16"]
    ),
    Layout("notes at the foot", _notes, pairs=[("1)", "His name is not in the book."), ("2)", "The date is lost.")]),
    Layout(
        "fraction",
        _fractions,
        whole=["heir is 17/48 of the whole estate, and no more."],
    ),
    Layout(
        "two addresses",
        _addresses,
        order=["Seller", "Weir Mills", "9 Lock", "Tewksby", "Buyer", "Otto", "Am Kai", "Emden", "The miller"],
    ),
    Layout(
        "big letters",
        _big_letters,
        pairs=[("A", " Gent"), ("B", " Brugge"), ("C", " Leiden")],
    ),
    Layout(
        "lines like Markdown",
        _hashes,
        headings=["Inventory"],
        texts=["of oars", "open the sluice", "1986"],
    ),
    Layout(
        "slides with one title",
        _SLIDES,
        order=["Overview", "one winter", "Results", "north: 41", "south: 17", "east: none"],
        headings=["Overview", "Results"],
        left_out="results results",
        options={"landscape": False, "printBackground": True},
    ),
    Layout(
        "fragments on slides", _FRAGMENTS, rows=[("the north has",), ("many ships",), ("the south has",), ("no ships",)]
    ),
    Layout("drop capital", _CAPITAL, whole=["The miller had three sons, and the youngest"], headings=["The Weir"]),
    Layout(
        "notes in the margin",
        _MARGIN,
        whole=[
            "Ask the miller first.",
            _STORY,
            "See the plan of the weir.",
            "and no boat goes up while another comes down",
        ],
    ),
    Layout(
        "report",
        _REPORT,
        headings=["Отчёт", "Πύργος", "Ende"],
        whole=[_STORY, "The codes are qa-wsed-rf and www.old-mill-weir.example, for self-service at half-price."],
        order=["1. one thing", "2. another", "```", "    close(gate)", "```"],
    ),
    Layout("hyphens", _HYPHENS, whole=[_STORY]),
    Layout(
        "named headings, paragraphs and items",
        _NAMED,
        headings=["Ohje", "Luettelo"],
        rows=[("Sulku avataan",), ("Vene ajetaan sisään",), ("köysi",), ("tuppi",)],
        order=["- köysi", "- airo, joka on veneessä", "- tuppi"],
    ),
    Layout("capital above its line", _hung, whole=[f"W{' '.join(_HUNG)}"], left_out="w hen"),
    Layout("note at the left", _left_note, whole=[_STORY, "Ask the warden first."]),
    Layout("lessons with the number of their page", _lessons, headings=["Rope 1", "Sail 2", "Oar 3", "Keel 4"]),
    Layout("lines far apart", _far_lines, rows=[(rule,) for rule in _RULES]),
    Layout(
        "glossary in two columns",
        _glossary,
        whole=[f"{first} {second}" for _, first, second in _ENTRIES],
        order=[f"{name} {column}." for column in "AB" for name, _, _ in _ENTRIES],
    ),
    Layout("box beside a paragraph", _BOXED, whole=[f"{_STORY} {_STORY}", "The keys are in the book of the warden."]),
]
