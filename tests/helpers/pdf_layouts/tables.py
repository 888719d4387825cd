"""Tables: with some rules or none, groups of rows, empty cells, centred cells, heads in two rows, turned labels."""

from __future__ import annotations

from collections.abc import Sequence

from .layout import Drawing, Layout

_ROTA = [
    ("Schicht", "Posten", "Name"),
    ("Früh", "Tor", "Anna"),
    ("", "Hof", "Bernd"),
    ("", "Steg", "Clara"),
    ("Spät", "Turm", "Dirk"),
    ("", "Mühle", "Eva"),
    ("", "Schuppen", "Falk"),
]


def _html_table(rows: Sequence[Sequence[str]], css: str = "", title: str = "") -> str:
    cells = "".join("<tr>" + "".join(f"<t{'hd'[number > 0]}>{cell}" for cell in row) for number, row in enumerate(rows))
    return (
        "<style>body{font:10pt serif} table{border-collapse:collapse} td,th{padding:3pt 9pt;text-align:left}"
        f"{css}</style>{title and f'<h1>{title}</h1>'}<table>{cells}</table>"
    )


_RAIN = [
    ("Year", "North", "South", "East", "West"),
    ("2011", "", "31,204", "48,117", ""),
    ("2012", "57,090", "73,411", "", "15,622"),
    ("2013", "81,345", "", "38,250", "62,908"),
    ("2014", "", "46,771", "78,003", ""),
    ("2015", "38,514", "78,690", "", "67,145"),
    ("2016", "62,227", "", "67,830", "25,461"),
]


def _rain(page: Drawing) -> None:
    """Draw numbers of which each column is hardly a letter from the next."""
    for i, row in enumerate(_RAIN):
        page.row(780 - 12 * i, (60, -150, -184, -218, -252), row, size=9)


_HARVESTS = [("2017", "41,676", "", "49,595", ""), *_RAIN[2:]]


def _harvests(page: Drawing) -> None:
    """Draw the same below heads that touch one another."""
    page.row(792, (60, -150, -184, -218, -252), ("Jahr", "Weizen", "Roggen", "Haferle", "Gerste"), size=9)
    for i, row in enumerate(_HARVESTS):
        page.row(780 - 12 * i, (60, -150, -184, -218, -252), row, size=9)


def _close_cells(page: Drawing) -> None:
    """Draw a table whose widest cells are as close as the usual insets of programs make them."""
    for i, row in enumerate(_COSTS):
        page.row(780 - 17 * i, (60, 104, -230, -281, -336), row, size=11, font="Times-Roman")


_COSTS = [
    ("Valuta", "Text", "Soll", "Haben", "Saldo"),
    ("03.08.", "Miete im August", "740,00", "", "1.260,00"),
    ("07.08.", "Verkauf Rad", "", "95,00", "1.355,00"),
    ("12.08.", "Wasser", "23,18", "", "1.331,82"),
    ("25.08.", "Lohn", "", "2.050,00", "3.381,82"),
]


_BARE = [
    ("Päiväys", "Selite", "Otto", "Pano", "Saldo"),
    ("2.6.", "Alkusaldo", "", "", "1204,11"),
    ("3.6.", "Kauppa mäen päällä ja sen pojat", "46,20", "", "1157,91"),
    ("5.6.", "Palkka", "", "2310,00", "3467,91"),
    ("6.6.", "Vuokra", "890,00", "", "2577,91"),
]
_SPANS = (
    "<table><tr><td rowspan=2>Port<td colspan=2>2024<td colspan=2>2025<tr><td>In<td>Out<td>In<td>Out"
    "<tr><td>Nord<td>12<td>7<td>15<td>9<tr><td>Süd<td>3<td>8<td>4<td>6</table>"
)
_NESTED = (
    "<table><tr><td>Vogt &amp; Co.<br>Kiel<td><table><tr><td>Nummer<td>17<tr><td>Datum<td>3.4.</table><tr>"
    "<td colspan=2><table><tr><td>Ware<td>Preis<tr><td>Leinöl<td>2,50<tr><td>Mehl<td>11,10</table></table>"
)


def _bare(cell: str) -> str:
    """Return a table without any style, whose cells are hardly a blank apart."""
    first, *rows = ("<tr>" + "".join(f"<td>{each}" for each in row) for row in _BARE)
    return "<h1>Tili</h1><table>" + first.replace("td", cell) + "".join(rows) + "</table>"


def _tilted(page: Drawing) -> None:
    """Draw more letters in slanted heads than in the rows of two tables that have them, one below the other."""
    for top, town in ((690, "Trier"), (490, "Mainz")):
        page.text(60, top + 90, town, 12, "Helvetica-Bold")
        for i, head in enumerate(("Glocken aus Bronze", "Gitter aus Eisen", "Türen aus Eiche")):
            page.text(170 + 80 * i, top, head, 10, angle=50)
        page.row(top - 20, (60, 170, 250, 330), ("Nord", "3", "14", "5"))


def _ferries(page: Drawing) -> None:
    """Draw a table of times without any words, in close columns."""
    page.text(60, 790, "Ferries to the islands", 13, "Helvetica-Bold")
    for i, row in enumerate(_TIMES):
        page.row(765 - 13 * i, (60, 110, 160, 210, 260, 310), row)


_TIMES = [tuple(f"{6 + i + n // 2:02}:{(7 * n + 11 * i) % 60:02}" for n in range(6)) for i in range(9)]


def _sideways(page: Drawing) -> None:
    """Draw a table whose groups of rows are named at the left edge, bottom up."""
    page.text(60, 790, "Bookings", 13, "Helvetica-Bold")
    for group, (name, y) in enumerate((("SPRING", 690), ("AUTUMN", 600))):
        page.text(72, y - 8, name, 9, angle=90)
        page.rule(60, y - 22, 400, y - 22)
        for i in range(4):
            page.row(
                y + 40 - 16 * i,
                (100, 200, -390),
                (f"Hut {4 * group + i + 1}", f"family {'KLMNOPQR'[4 * group + i]}", f"{31 + 7 * i}.50"),
            )


def _slanted(page: Drawing) -> None:
    """Draw a grid whose heads stand aslant above their columns, on two pages."""
    for town in ("Visby", "Lund"):
        page.text(60, 790, f"Trades in {town}", 13, "Helvetica-Bold")
        for i, head in enumerate(("Copper roofs", "Stone walls", "Glass panes")):
            page.text(170 + 80 * i, 690, head, 10, angle=45)
        for i, year in enumerate(("1908", "1909", "1910")):
            page.row(670 - 18 * i, (60, 170, 250, 330), (year, f"{len(town)}{i}4", f"{i}7", f"{i + 3}1"))
        page.page()


def _small_tables(page: Drawing) -> None:
    """Draw a ruled table of two rows near the top of each of four pages."""
    for number, day in (
        ("K-2207", "01.02.2026"),
        ("K-2219", "03.02.2026"),
        ("K-2230", "08.02.2026"),
        ("K-2241", "09.02.2026"),
    ):
        for x in (380, 460, 540):
            page.rule(x, 790, x, 822)
        for y in (790, 806, 822):
            page.rule(380, y, 540, y)
        page.row(811, (385, 465), ("Fall-Nr.", "Eingang"), size=9)
        page.row(795, (385, 465), (number, day), size=9)
        page.lines(
            60, 720, ["Der Antrag wurde geprüft und an den Hafenmeister", f"weitergegeben, der ihn am {day} erhielt."]
        )
        page.page()


def _alike_rows(page: Drawing) -> None:
    """Draw tables that reach down to the edge of three pages, whose rows differ by digits alone."""
    for number in range(3):
        page.row(800, (60, -300), ("Meter", "Reading"), font="Helvetica-Bold")
        for i in range(40):
            page.row(780 - 18.5 * i, (60, -300), (f"Meter {number * 40 + i + 1}", f"{1000 + 37 * (number * 40 + i)}.5"))
        page.page()


_GOODS = [
    ("Datum", "Gegenstand", "Preis", "Rest"),
    ("04.05.2026", "ein Satz Segel mit allen Latten und zwei Säcken für den Winter", "812,40", "387,60"),
    ("06.05.2026", "Tauwerk", "61,10", "326,50"),
    ("09.05.2026", "Farbe für den Rumpf und für das Deck, dazu vier Pinsel", "148,75", "177,75"),
]
_CROPS = (
    "<style>body{font:10pt sans-serif} table{border-collapse:collapse} td,th{padding:2pt 10pt}</style><h1>Ernte</h1>"
    "<table><tr><th rowspan=2>Feld<th colspan=2>2024<th colspan=2>2025<tr><th>Hafer<th>Roggen<th>Hafer<th>Roggen"
    + "".join(
        f"<tr><td>{name}<td>{n}<td>{n + 3}<td>{2 * n}<td>{3 * n}"
        for name, n in (("Au", 14), ("Berg", 21), ("Moor", 35))
    )
    + "</table>"
)
_TERMS = [
    (
        "Liegegeld",
        "zahlt jedes Boot, das länger als eine Nacht am Steg liegt, und jedes mit einer Kajüte, bei jedem Wetter",
    ),
    ("Lampe", "brennt ab Dämmerung"),
    (
        "Gast",
        "wer von zwei Mitgliedern geladen wurde und sich in das Buch eingetragen hat, das bei der Treppe liegt",
    ),
    ("Winter", "November bis März"),
    (
        "Anteil am Seil",
        "der Teil der Kosten neuer Seile, den ein Mitglied im Frühjahr zahlt, berechnet nach der Länge des Bootes",
    ),
    ("Unteres Tor", "schließt um zehn"),
]
_TERMS_CSS = "table{width:11cm;font-size:8pt} td{padding:1pt 3pt;vertical-align:middle}"
_ENTRIES = [
    ("Datum", "Text", "Ut", "Inn", "Saldo"),
    *(
        (
            f"{day:02}.03.2026",
            text,
            "" if paid else f"{day * 11}.20",
            f"{day * 90}.00" if paid else "",
            f"{900 + 31 * day}.10",
        )
        for day, text, paid in (
            (1, "brød", 1),
            (2, "leie", 0),
            (3, "strøm", 0),
            (4, "lønn", 1),
            (5, "bøker", 0),
            (6, "hage", 0),
        )
    ),
]

LAYOUTS = [
    Layout(
        "rows of a group",
        _html_table(_ROTA, title="Dienstplan"),
        table=_ROTA,
        headings=["Dienstplan"],
    ),
    Layout("empty cells of close columns", _rain, table=_RAIN),
    Layout("close columns below heads that touch", _harvests, table=_HARVESTS),
    Layout("cells as close as the insets", _close_cells, table=_COSTS),
    Layout(
        "slanted heads of two tables",
        _tilted,
        rows=[("Nord", "3", "14", "5")],
        order=["Trier", "Nord", "Mainz", "Nord"],
        whole=["Glocken aus Bronze", "Gitter aus Eisen", "Türen aus Eiche"],
        left_out="glocken aus bronze gitter aus eisen türen aus eiche",
    ),
    Layout("times in close columns", _ferries, rows=_TIMES),
    Layout("table without a style", _bare("th"), table=_BARE, headings=["Tili"]),
    Layout("table without a style or heads", _bare("td"), table=_BARE, headings=["Tili"]),
    Layout(
        "cells of several rows and columns",
        _SPANS,
        table=[
            ("Port", "2024", "", "2025", ""),
            ("", "In", "Out", "In", "Out"),
            ("Nord", "12", "7", "15", "9"),
            ("Süd", "3", "8", "4", "6"),
        ],
    ),
    Layout(
        "tables in a table",
        _NESTED,
        table=[("Nummer", "17"), ("Datum", "3.4."), ("Ware", "Preis"), ("Leinöl", "2,50"), ("Mehl", "11,10")],
        whole=["Vogt & Co. Kiel"],
    ),
    Layout(
        "sideways names of groups",
        _sideways,
        rows=[("Hut 2", "family L", "38.50")],
        order=["SPRING", "Hut 1", "AUTUMN", "Hut 5"],
    ),
    Layout(
        "slanted heads",
        _slanted,
        rows=[("1908", "504", "07", "31"), ("1910", "424", "27", "51")],
        order=["Trades in Visby", "Copper roofs", "Stone walls", "Glass panes", "1908", "Trades in Lund", "1908"],
    ),
    Layout(
        "small tables in the margin",
        _small_tables,
        table=[("Fall-Nr.", "Eingang"), ("K-2207", "01.02.2026"), ("K-2241", "09.02.2026")],
    ),
    Layout(
        "alike rows near the edge",
        _alike_rows,
        rows=[("Meter 1", "1000.5"), ("Meter 40", "2443.5"), ("Meter 80", "3923.5"), ("Meter 120", "5403.5")],
    ),
    Layout(
        "centred cells",
        _html_table(_GOODS, "table{width:15cm} td:nth-child(2){width:5cm} td{vertical-align:middle}", "Einkauf"),
        table=_GOODS,
    ),
    Layout(
        "a head of two rows",
        _CROPS,
        rows=[("Au", "14", "17", "28", "42"), ("Moor", "35", "38", "70", "105"), ("Feld", "2024", "2025")],
        headings=["Ernte"],
        texts=["2024", "2025", "Hafer"],
    ),
    Layout("terms and their texts", _html_table(_TERMS, _TERMS_CSS), pairs=_TERMS),
    Layout(
        "vertical rules only",
        _html_table(
            _ENTRIES,
            "table{border:1px solid;width:15cm} td,th{border-left:1px solid} th{border-bottom:1px solid}",
            "Kontoutskrift",
        ),
        table=_ENTRIES,
        headings=["Kontoutskrift"],
    ),
]
