"""Bills, statements, payslips, receipts and price lists: labels, amounts, totals and empty cells."""

from __future__ import annotations

from .layout import Drawing, Layout

_ITEMS = [
    ("Wartung der Heizung", "2", "118,00", "236,00"),
    ("Anfahrt", "1", "35,50", "35,50"),
    ("Dichtung 3/4 Zoll", "6", "1,20", "7,20"),
]
_SUMS = [("Zwischensumme", "278,70"), ("zzgl. MwSt. 19 %", "52,95"), ("Rechnungsbetrag", "331,65")]


def _bill(page: Drawing) -> None:
    """Draw a bill without rules, the sums at the right below a gap."""
    page.text(60, 780, "Brunnen & Söhne GmbH", 15, "Helvetica-Bold")
    page.lines(60, 745, ["Frau Anke Vogt", "Lindenweg 8", "24103 Kiel"])
    for i, (label, value) in enumerate([("Rechnungsnummer", "2026-0417"), ("Datum", "17.04.2026")]):
        page.text(360, 745 - 14 * i, label)
        page.text(535, 745 - 14 * i, value, at="right")
    places = (60, -330, -430, -535)
    page.row(660, places, ("Leistung", "Menge", "Einzelpreis", "Betrag"), font="Helvetica-Bold")
    for i, cells in enumerate(_ITEMS):
        page.row(640 - 15 * i, places, cells)
    for i, (label, amount) in enumerate(_SUMS):
        page.row(585 - 15 * i, (330, -535), (label, amount))


_ENTRIES = [
    ("Date", "Details", "Paid out", "Paid in", "Balance"),
    ("02 Jun", "Opening balance", "", "", "1,204.11"),
    ("03 Jun", "Hill Grocers", "46.20", "", "1,157.91"),
    ("05 Jun", "Salary", "", "2,310.00", "3,467.91"),
    ("06 Jun", "Rent June", "890.00", "", "2,577.91"),
    ("11 Jun", "Refund of a coat", "", "59.99", "2,637.90"),
]


def _statement(page: Drawing) -> None:
    """Draw a statement in a fixed pitch, its columns made by blanks."""
    page.text(60, 790, "STATEMENT OF ACCOUNT", 12, "Courier-Bold")
    for i, (day, details, out, paid, balance) in enumerate(_ENTRIES):
        page.text(60, 760 - 12 * i, f"{day:<8}{details:<22}{out:>10}{paid:>12}{balance:>12}", 10, "Courier")


def _time_sheets(page: Drawing) -> None:
    """Draw three sheets, one for each person, whose total is at the foot of the page."""
    for who, hours in (("Ida Blom", "31.75"), ("Per Aas", "35.10"), ("Liv Moe", "42.95")):
        page.text(60, 790, f"Time sheet of {who}", 14, "Times-Bold")
        for i, day in enumerate(("Monday", "Tuesday", "Thursday")):
            page.row(
                750 - 16 * i, (60, -300), (f"{day} in the yard", f"{float(hours) / 4 + i:.2f}"), font="Times-Roman"
            )
        page.text(60, 48, f"Hours in all: {hours}", 11, "Times-Roman")
        page.page()


_PRICES = [("Herring, pickled", ".95"), ("Rye bread", "1.50"), ("Brown cheese, sliced", "12.05"), ("Plum jam", "3.40")]


def _price_list(page: Drawing) -> None:
    """Draw a price list whose prices, right-aligned, follow leaders of dots."""
    page.text(60, 780, "Prices of the market hall", 14, "Times-Bold")
    for i, (name, price) in enumerate(_PRICES):
        end = 60 + page.canvas.stringWidth(name, "Times-Roman", 11)
        begin = 320 - page.canvas.stringWidth(price, "Times-Roman", 11)
        dots = ". " * int((begin - end - 8) / page.canvas.stringWidth(". ", "Times-Roman", 11))
        page.text(60, 740 - 18 * i, name, 11, "Times-Roman")
        page.text(end + 4, 740 - 18 * i, dots.strip(), 11, "Times-Roman")
        page.text(320, 740 - 18 * i, price, 11, "Times-Roman", at="right")


def _merged_bills(page: Drawing) -> None:
    """Draw three bills in one file, whose numbers and dates stand at the top of each page."""
    for number, day, total in (
        (7012, "4 maart 2026", "19,95"),
        (7038, "9 april 2026", "118,40"),
        (7051, "2 mei 2026", "7,10"),
    ):
        page.text(400, 815, f"Factuur {number}", 9)
        page.text(400, 803, day, 9)
        page.text(60, 740, "Geachte klant,")
        page.text(60, 715, "Voor de levering van brandhout brengen wij u in rekening:")
        page.text(60, 690, f"Te betalen: EUR {total}", 10, "Helvetica-Bold")
        page.page()


def _tills(page: Drawing) -> None:
    """Draw two receipts whose sum, in large type, is below its name."""
    for total in ("62.80", "9.05"):
        page.text(113, 780, "CORNER SHOP", 11, at="middle")
        page.row(750, (20, -206), ("bread", "2.80"))
        page.text(113, 700, "TO PAY", 18, "Helvetica-Bold", at="middle")
        page.text(113, 678, total, 20, "Helvetica-Bold", at="middle")
        page.text(20, 640, "Thank you")
        page.page()


_EXPENSES = [("Ann", "12.50"), ("Bo", "12.50"), ("Cy", "40.00")]


def _expenses(page: Drawing) -> None:
    """Draw three bills, two of them with the same total at the foot."""
    for who, total in _EXPENSES:
        page.text(60, 790, f"Expenses of {who}", 14, "Times-Bold")
        page.row(750, (60, -535), ("Train", total))
        page.row(45, (60, -535), ("Total EUR", total), font="Helvetica-Bold")
        page.page()


_PAYSLIP = (
    """<style>body{font:10pt sans-serif} dl{display:grid;grid-template-columns:11em 9em 11em 9em;row-gap:4pt}
dd{margin:0;text-align:right;padding-right:2em}</style><h1>Bulletin de paie</h1>
<dl><dt>Salarié<dd>Jean Prunier<dt>Période<dd>mai 2026<dt>Emploi<dd>menuisier<dt>Matricule<dd>40713</dl>
<table style="width:100%;border-collapse:collapse;margin-top:2em">
<tr><th style="text-align:left">Rubrique<th>Base<th>Taux<th>Gain<th>Retenue</tr>"""
    + "".join(
        "<tr><td style='text-align:left'>"
        + "".join(f"{cell}<td style='text-align:right'>" for cell in row[:-1])
        + row[-1]
        for row in (
            ("Salaire de base", "151,67", "14,20", "2 153,71", ""),
            ("Prime de panier", "21", "6,80", "142,80", ""),
            ("Assurance vieillesse", "2 153,71", "6,90", "", "148,61"),
            ("Mutuelle", "", "", "", "31,40"),
            ("Net à payer", "", "", "2 116,50", ""),
        )
    )
    + "</table>"
)

_RECEIPT = """<style>@page{size:80mm 150mm;margin:6mm} body{font:9pt monospace} p{display:flex;margin:2pt 0}
p b,p span{margin-left:auto} .sum{font-size:15pt;margin-top:8pt}</style>
<center>BAKKERIJ DE MOLEN<br>Kade 12, Hoorn</center>
<p>Volkoren brood<span>2,85</span></p><p>Appelflap<span>1,95</span></p><p>Koffie<span>2,40</span></p>
<p class="sum">TOTAAL<b>7,20</b></p><p>Contant<span>10,00</span></p><p>Wisselgeld<span>2,80</span></p>"""

_CARD = """<style>body{font:11pt serif;width:14cm} li{list-style:none;margin:6pt 0} .a{display:flex}
.a span{margin-left:auto} small{display:block;width:9cm}</style><h1>Carta</h1><ul>
<li><div class="a"><b>Pulpo a la brasa</b><span>18,50 €</span></div><small>con patata violeta, pimentón de la Vera y
un chorro de aceite del valle</small><li><div class="a"><b>Arroz de monte</b><span>16,00 €</span></div><small>con setas,
conejo y romero recogido en la sierra esta misma mañana</small><li><div class="a"><b>Tarta de queso</b>
<span>6,50 €</span></div>
<small>al horno de leña</small></ul>"""

_BALANCES = [
    ("Valuta", "Omschrijving", "Af", "Bij", "Saldo"),
    ("03-08", "Huur augustus", "740,00", "", "1.260,00"),
    ("07-08", "Verkoop fiets", "", "95,00", "1.355,00"),
    ("12-08", "Water", "23,18", "", "1.331,82"),
    ("25-08", "Loon", "", "2.050,00", "3.381,82"),
]
_VERTICAL = (
    "<style>table{border-collapse:collapse;font:10pt sans-serif} td,th{border-left:1px solid;padding:2pt 8pt}"
    "td:nth-child(n+3){text-align:right}</style><h1>Rekeningafschrift</h1><table>"
    + "".join("<tr>" + "".join(f"<t{'hd'[i > 0]}>{cell}" for cell in row) for i, row in enumerate(_BALANCES))
    + "</table>"
)

LAYOUTS = [
    Layout(
        "bill",
        _bill,
        rows=[*_ITEMS, *_SUMS],
        pairs=[("Rechnungsnummer", "2026-0417"), ("Datum", "17.04.2026")],
        texts=["331,65", "Rechnungsbetrag", "2026-0417"],
    ),
    Layout("statement in a fixed pitch", _statement, table=_ENTRIES, texts=["Balance", "1,204.11"]),
    Layout(
        "time sheets with totals at the foot",
        _time_sheets,
        order=["Ida Blom", "Hours in all: 31.75", "Per Aas", "Hours in all: 35.10", "Liv Moe", "Hours in all: 42.95"],
        rows=[("Tuesday in the yard", "8.94")],
    ),
    Layout("price list with leaders", _price_list, rows=_PRICES),
    Layout(
        "merged bills",
        _merged_bills,
        order=["7012", "4 maart", "19,95", "7038", "9 april", "118,40", "7051", "2 mei", "7,10"],
        rows=[("Factuur 7038",), ("2 mei 2026",), ("Te betalen: EUR 118,40",)],
    ),
    Layout("sums below their names", _tills, texts=["TO PAY", "62.80"], order=["TO PAY", "62.80", "TO PAY", "9.05"]),
    Layout(
        "the same total at the foot of two pages",
        _expenses,
        order=[part for who, total in _EXPENSES for part in (f"Expenses of {who}", "Train", f"Total EUR {total}")],
    ),
    Layout(
        "payslip",
        _PAYSLIP,
        pairs=[("Salarié", "Jean Prunier"), ("Période", "mai 2026"), ("Matricule", "40713")],
        rows=[("Mutuelle", "31,40")],
        table=[
            ("Rubrique", "Base", "Taux", "Gain", "Retenue"),
            ("Prime de panier", "21", "6,80", "142,80", ""),
            ("Assurance vieillesse", "2 153,71", "6,90", "", "148,61"),
            ("Net à payer", "", "", "2 116,50", ""),
        ],
        headings=["Bulletin de paie"],
        texts=["Net à payer", "Rubrique"],
    ),
    Layout(
        "receipt",
        _RECEIPT,
        rows=[("Appelflap", "1,95"), ("TOTAAL", "7,20"), ("Wisselgeld", "2,80")],
        texts=["TOTAAL", "7,20"],
    ),
    Layout(
        "menu",
        _CARD,
        pairs=[("Pulpo a la brasa", "18,50 €"), ("Arroz de monte", "16,00 €"), ("Tarta de queso", "6,50 €")],
        whole=["con setas, conejo y romero recogido en la sierra esta misma mañana"],
        order=["Pulpo", "18,50", "del valle", "Arroz", "16,00", "mañana", "Tarta", "6,50", "leña"],
        texts=["18,50", "16,00"],
    ),
    Layout("statement with vertical rules", _VERTICAL, table=_BALANCES, headings=["Rekeningafschrift"]),
]
