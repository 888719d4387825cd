"""Sheets on which gaps, rules and boxes tell the order: invoices, contracts in two languages, exams, slides."""

from __future__ import annotations

import textwrap

from .layout import Drawing, Layout

#: Ends of the columns of an invoice, negative where they are right ends; and its rows.
_PLACES = (60, 105, -300, 306, -445, -535)
_ITEMS = [
    ("Pos.", "Concepto", "Cant.", "Ud.", "Precio", "Importe"),
    ("2", "Montaje en casa", "3,5", "h", "58,00 €", "203,00 €"),
    ("3", "Viaje", "1", "vez", "35,00 €", "35,00 €"),
]
_SUMS = [("Base", "1 718,00 €"), ("IVA 21 %", "360,78 €"), ("A pagar", "2 078,78 €")]


def _invoice(page: Drawing) -> None:
    """Draw addresses at both sides of an invoice above its items, of which one has two lines that the others centre."""
    page.lines(400, 800, ["Carpintería Vega", "Calle del Puerto 3", "33201 Gijón"])
    page.lines(60, 740, ["Señora", "Ana Ruiz", "Calle del Molino 17", "33203 Gijón"])
    for i, (label, value) in enumerate((("Factura", "2026/417"), ("Cliente", "10233"), ("Fecha", "2.04.2026"))):
        page.row(690 - 17 * i, (400, -535), (label, value))
    page.text(60, 610, "Factura", 15)
    page.row(580, _PLACES, _ITEMS[0], font="Helvetica-Bold")
    page.lines(105, 562, ["Mesa de roble,", "tablero 40 mm"], step=11)
    page.row(556.5, _PLACES, ("1", "", "1", "pza.", "1 480,00 €", "1 480,00 €"))
    for i, row in enumerate(_ITEMS[1:]):
        page.row(533 - 17 * i, _PLACES, row)
    for i, sums in enumerate(_SUMS):
        page.row(499 - 17 * i, (-445, -535), sums)
    page.text(60, 440, "Plazo: 14 días.")


_VALUES = [
    ("Parámetro", "Condición", "Min", "Typ", "Max", ""),
    ("de salida", "U = 5 V", "-2", "0", "2", "%"),
    ("Caída", "I = 150 mA", "", "120", "200", "mV"),
    ("Corte", "", "", "160", "", "°C"),
]


def _data_sheet(page: Drawing) -> None:
    """Draw a table with rules between its rows alone, and cells of two lines beside centred ones."""
    page.text(60, 800, "Datos eléctricos", 14, "Helvetica-Bold")
    for i, row in enumerate(_VALUES):
        y = 760 - 30 * i
        for j, (x, cell) in enumerate(zip((60, 180, 330, 380, 430, 480), row, strict=True)):
            over = cell if i != 1 or j > 1 else ("Tensión", "con T = 25 C")[j]
            page.text(x, y + 5 * (i == 1 and j < 2), over, 9) if over else None
            page.text(x, y - 6, cell, 9) if i == 1 and j < 2 else None
        page.rule(60, y - 15, 510, y - 15)


_BLOOD = [
    ("Leucocitos", "11,2", "+", "/nl", "3,9 - 10,2"),
    ("Eritrocitos", "4,51", "", "/pl", "4,30 - 5,75"),
    ("Sodio", "140", "", "mmol/l", "136 - 145"),
    ("Potasio", "4,1", "", "mmol/l", "3,5 - 5,1"),
]


def _laboratory(page: Drawing) -> None:
    """Draw a report of values with names of groups between the rows: each half has words and numbers."""
    places = (60, -300, 304, 380, 470)
    page.row(780, (60, -300, 380, 470), ("Prueba", "Valor", "Unidad", "Normal"), font="Helvetica-Bold")
    for i, (y, row) in enumerate(zip((748, 734, 700, 686), _BLOOD, strict=True)):
        if i % 2 == 0:
            page.text(60, y + 16, ("Sangre", "Suero")[i // 2], font="Helvetica-Bold")
        page.row(y, places, row)


_CLAUSES = [
    ("§ 1 Objeto", "Section 1 Subject"),
    (
        "(1) El arrendador cede al arrendatario el uso del piso bajo de la casa del molino, que tiene tres cuartos y "
        "una cocina con salida al patio.",
        "(1) The landlord lets to the tenant the ground floor of the mill house, which has three rooms.",
    ),
    ("(2) Las llaves se entregan el primer día.", "(2) The keys are handed over on the first day of the lease."),
    ("§ 2 Renta", "Section 2 Rent"),
    (
        "(1) La renta es de 740 euros y se paga el tercer día de cada mes. El agua se cobra aparte.",
        "(1) The rent is 740 euros and is due on the third day of each month. Water is billed apart from it.",
    ),
]


def _contract(page: Drawing) -> None:
    """Draw a contract in two languages side by side, whose clauses begin at the same heights."""
    y = 780.0
    for sides in _CLAUSES:
        y = (
            min(page.lines(x, y, textwrap.wrap(side, 40), size=11) for x, side in zip((60, 310), sides, strict=True))
            - 9
        )


def _exam(page: Drawing) -> None:
    """Draw tasks with points at the right edge, and centred formulas with fractions between them."""
    page.text(60, 790, "Examen", 16, "Helvetica-Bold")
    for y, left, right in (
        (765, "Nombre:", "Fecha:          "),
        (740, "Tarea 1", "(4 p.)"),
        (640, "Tarea 2", "(6 p.)"),
    ):
        page.row(y, (60, -535), (left, right), font="Helvetica-Bold")
    page.text(60, 726, "Calcula:")
    for y, parts in ((700, ("3", "4", "5 + x", "6")), (660, ("a", "b", "2", "3"))):
        for x, over, under in ((275, *parts[:2]), (315, *parts[2:])):
            page.rule(x - 14, y + 3, x + 14, y + 3)
            page.text(x, y + 6, over, at="middle")
            page.text(x, y - 7, under, at="middle")
        page.text(292, y, "+")
        page.text(334, y, "=")
    page.text(60, 680, "y también:")
    page.text(60, 626, "Un tren va a 120 km por hora. ¿Hasta dónde llega?")


def _letter(page: Drawing) -> None:
    """Draw a letter whose addressee and date are at the right, above its subject and its greeting at the left."""
    page.lines(60, 790, ["Ayuntamiento de Lastres", "Oficina técnica", "Calle Mayor 4"])
    for i, line in enumerate(("Señora", "Ana Ruiz", "Calle del Molino 9", "33202 Gijón")):
        page.text(535, 790 - 13 * i, line, at="right")
    page.text(535, 700, "Lastres, 4 de mayo de 2026", at="right")
    page.lines(60, 675, ["Asunto: solicitud 4471", "Estimada señora:"], step=26)
    page.lines(60, 622, ["Su solicitud se ha admitido. Las obras empiezan el 18 de mayo y duran un mes."])


def _fields_in_boxes(page: Drawing) -> None:
    """Draw rows of boxes, each with a small label above its value."""
    for y, fields in ((750, ("Nombre", "Ana", "Apellido", "Ruiz")), (700, ("Calle", "Molino 17", "CP", "33203"))):
        for x, label, value in ((60, *fields[:2]), (260, *fields[2:])):
            page.canvas.rect(x, y - 8, 200, 34)
            page.text(x + 3, y + 18, label, 6)
            page.text(x + 5, y, value, 11)


def _box_close_to_text(page: Drawing) -> None:
    """Draw a framed note of three lines hardly a letter from the lines at its left, which are not level with it."""
    page.text(60, 800, "Factura de la luz", 18, "Helvetica-Bold")
    text = ["Del 1 de junio de 2025 al 31 de mayo hemos", "medido lo que usted ha gastado. El mes es de 31.", "días."]
    width = page.canvas.stringWidth(text[1], "Helvetica", 10)
    page.lines(60, 770, text)
    page.canvas.rect(60 + width + 2, 736, 120, 42)
    page.lines(60 + width + 7, 766, ["A pagar", "412,87 €", "hasta el 30.06.2026"], step=12)
    page.lines(
        60,
        700,
        ["Si tiene preguntas, llame a la oficina, que está abierta todo el año de ocho a cinco."],
    )


def _spread_words(page: Drawing) -> None:
    """Draw two justified lines whose blanks are wider than the gaps between cells."""
    for y, words in (
        (780, ["Las", "llaves", "se", "entregan", "al"]),
        (767, ["entrar", "por", "todo", "el", "tiempo"]),
    ):
        widths = [page.canvas.stringWidth(word, "Helvetica", 10) for word in words]
        blank, x = (165 - sum(widths)) / (len(words) - 1), 60.0
        for word, width in zip(words, widths, strict=True):
            page.text(x, y, word)
            x += width + blank
    page.lines(60, 754, ["que dure el contrato, y al", "fin se devuelven."])


_STANZAS = [
    ["La barca se fue al alba fría", "con un farol y con pan,", "y nadie en el muelle sabía", "quiénes en ella van."],
    ["El río llevó su hielo al mar", "y atrás los juncos dejó,", "y lo que hubiera de pasar", "solo el viento lo vio."],
]


def _verse(page: Drawing) -> None:
    """Draw a poem of two stanzas, whose lines begin with small letters."""
    page.text(120, 790, "La barca", 14, "Times-Bold")
    for y, stanza in zip((760, 690), _STANZAS, strict=True):
        page.lines(120, y, stanza, step=14, size=11, font="Times-Roman")


_TEAMS = {
    "Equipo A": [("N.º", "Nombre", "Goles"), ("1", "Aas", "0"), ("4", "Berg", "2"), ("7", "Dahl", "1")],
    "Equipo B": [("N.º", "Nombre", "Goles"), ("2", "Eide", "3"), ("5", "Foss", "0"), ("9", "Gran", "0")],
}


def _two_tables(page: Drawing) -> None:
    """Draw two tables side by side, whose rows are level and whose heads are the same."""
    for x, (team, rows) in zip((60, 320), _TEAMS.items(), strict=True):
        page.text(x, 770, team, 11, "Helvetica-Bold")
        for i, row in enumerate(rows):
            page.row(750 - 15 * i, (x, x + 40, -(x + 180)), row)


_FARES = [
    ("Núm.", "Puerto", "Km", "Precio"),
    ("AX", "Marienhamn", "112", "18,00"),
    ("BO", "Borgholm, norte", "88", "9,50"),
    ("KA", "Kalmar", "91", "12,00"),
    ("OS", "Oskarshamn", "120", "12,00"),
]


def _close_fares(page: Drawing) -> None:
    """Draw a table whose cells are hardly a blank apart, and whose first head touches the second."""
    for i, row in enumerate(_FARES):
        page.row(780 - 12 * i, (60, 78, 149, -191), row, font="Times-Roman")


_ACCOUNT = [
    ("Producto", "Uds.", "Precio", "Total"),
    ("Silla de pino", "4", "35,00", "140,00"),
    ("Mesa baja", "1", "90,00", "90,00"),
    ("", "", "IVA 21 %", "48,30"),
]


def _high_head(page: Drawing) -> None:
    """Draw a head of a table further above its rows than these are from one another."""
    for y, row in zip((780, 744, 728, 712), _ACCOUNT, strict=True):
        page.row(y, (60, -320, -400, -480), row)


def _totals_at_right(page: Drawing) -> None:
    """Draw claims on five pages, with their totals in bold type at the foot, and an address that two lines part."""
    for number, total in enumerate(("412.50", "97.00", "1,203.90", "66.10", "18.00"), start=1):
        page.lines(
            60, 790, [f"Claim {number}", "The lamp of quay three was dark. See www.example.org/", f"claims-{number}."]
        )
        page.row(60, (-480, -540), ("Amount claimed", total), font="Helvetica-Bold")
        page.text(297, 30, f"- {number} -", 13, at="middle")
        page.page()


_PRICES = (
    "<style>@page{size:A5} p{display:flex;justify-content:space-between;margin:1mm}</style>"
    "<h1>La carte</h1><h2>Entrées</h2><p><span>Soupe</span><span>7,50</span><p><span>Œuf</span><span>5,00</span>"
    "<h2>Plats</h2><p><span>Bar grillé</span><span>19,00</span><p><span>Bavette</span><span>16,50</span>"
    "<h2>Desserts</h2><p><span>Île flottante</span><span>6,00</span>"
)
_PAY = [("Basic", "2,400.00"), ("Overtime", "180.00"), ("Gross", "2,580.00")]
_TAKEN = [("Tax", "410.00"), ("Pension", "132.00"), ("Deductions", "542.00")]


def _pay(page: Drawing) -> None:
    """Draw two tables side by side, addresses above them, and a total below both."""
    page.text(60, 790, "Payslip", 16, "Helvetica-Bold")
    for x, address in ((60, ["Harbour of Visby", "Quay 3", "62157 Visby"]), (320, ["Ida Holm", "Mill 9", "Kalmar"])):
        page.lines(x, 760, address)
    for x, rows in ((60, _PAY), (320, _TAKEN)):
        for i, row in enumerate(rows):
            page.row(690 - 14 * i, (x, -(x + 200)), row)
    page.text(60, 638, "Net pay 2,038.00", font="Helvetica-Bold")


_CREW = [("", "Boreal", "Babor", "Bodega"), ("Seal", "x", "", "x"), ("Meg", "", "x", ""), ("Thrift", "x", "x", "")]


def _slanted(page: Drawing) -> None:
    """Draw slanted heads over a table whose first row has empty cells."""
    for x, head in zip((160, 200, 240), _CREW[0][1:], strict=True):
        page.text(x, 760, head, angle=55)
    for i, row in enumerate(_CREW[1:]):
        page.row(745 - 14 * i, (60, 160, 200, 240), row)


_LIFE = "Led a crew of twelve at the harbour and wrote the plans of the week for all three yards at the river."


def _bar_level_with_text(page: Drawing) -> None:
    """Draw a side bar whose lines are level with lines of the text, though not with its paragraphs."""
    y = 790.0
    for job in ("Pilot, Visby", "Keeper, lock 4", "Deckhand, Kiel"):
        page.text(60, y, job, 10, "Helvetica-Bold")
        y = page.lines(60, y - 13, textwrap.wrap(_LIFE, 62))
    for i, line in enumerate(
        ("Quay 3", "Visby", "LANGUAGES", "Swedish", "German", "Finnish", "TOOLS", "Radar", "Radio")
    ):
        page.text(430, 790 - 13 * i, line)


_SLIDE = (
    "<style>@page{size:254mm 143mm;margin:12mm} body{font:20pt sans-serif} div{display:flex} ul{flex:1}</style>"
    "<h1>¿Por qué?</h1><div><ul><li>Los barcos son largos<li>Los pilotes se pudren</ul>"
    "<ul><li>Coste: 4,1 M<li>Dos inviernos</ul></div>"
)

LAYOUTS = [
    Layout(
        "invoice with addresses at both sides",
        _invoice,
        rows=[*_ITEMS[1:], *_SUMS],
        pairs=[("1", "Mesa de roble, tablero 40 mm", "1", "pza.", "1 480,00 €"), ("Cliente", "10233")],
        order=["Ana Ruiz", "Factura", "Pos.", "Plazo"],
    ),
    Layout(
        "rules between rows alone",
        _data_sheet,
        table=[_VALUES[0], ("Tensión de salida", "con T = 25 C U = 5 V", "-2", "0", "2", "%"), *_VALUES[2:]],
    ),
    Layout("laboratory", _laboratory, rows=_BLOOD),
    Layout(
        "contract in two languages",
        _contract,
        order=[side for sides in _CLAUSES for side in sides],
    ),
    Layout(
        "exam",
        _exam,
        pairs=[("Nombre:", "Fecha:"), ("Tarea 1", "(4 p.)"), ("Tarea 2", "(6 p.)")],
        order=["Calcula:", "3/4 + (5 + x)/6 =", "y también:", "a/b + 2/3 =", "Tarea 2", "Un tren"],
    ),
    Layout("letter", _letter, order=["Oficina", "Ana Ruiz", "Lastres, 4 de", "Asunto", "Estimada", "Su solicitud"]),
    Layout(
        "boxes with labels",
        _fields_in_boxes,
        rows=[("Nombre", "Ana"), ("Apellido", "Ruiz"), ("Calle", "Molino 17"), ("CP", "33203")],
        texts=["Ana", "Ruiz"],
    ),
    Layout(
        "a box close to a text",
        _box_close_to_text,
        whole=["de mayo hemos medido lo que usted ha gastado. El mes es de 31. días."],
        order=["Factura de", "A pagar", "412,87 €", "hasta el 30.06.2026", "Del 1 de junio"],
        texts=["412,87"],
    ),
    Layout(
        "words far apart",
        _spread_words,
        whole=["Las llaves se entregan al entrar por todo el tiempo que dure el contrato"],
    ),
    Layout("verse", _verse, rows=[(line,) for stanza in _STANZAS for line in stanza], headings=["La barca"]),
    Layout(
        "two tables side by side",
        _two_tables,
        rows=[row for rows in _TEAMS.values() for row in rows],
        order=["Equipo A", "Dahl", "Equipo B", "Gran"],
    ),
    Layout("cells a blank apart", _close_fares, table=_FARES),
    Layout("a head far above its rows", _high_head, table=_ACCOUNT),
    Layout(
        "totals at the right",
        _totals_at_right,
        pairs=[("Amount claimed", "1,203.90"), ("See www.example.org/claims-4.",)],
        texts=["Amount", "- "],
        left_out="1 2 3 4 5",
    ),
    Layout("headings between prices", _PRICES, headings=["La carte", "Entrées", "Plats", "Desserts"]),
    Layout(
        "totals under two tables",
        _pay,
        rows=[*_PAY, *_TAKEN],
        order=["62157 Visby", "Ida Holm", "Kalmar", "Gross", "Deductions", "Net pay 2,038.00"],
    ),
    Layout("slanted heads over empty cells", _slanted, table=_CREW),
    Layout(
        "a side bar level with the text", _bar_level_with_text, whole=[_LIFE], order=["Deckhand", "Quay 3", "Radio"]
    ),
    Layout(
        "lists side by side on a slide",
        _SLIDE,
        headings=["¿Por qué?"],
        order=["Los barcos", "Los pilotes se pudren", "Coste", "Dos inviernos"],
        rows=[("Los pilotes se pudren",), ("Coste: 4,1 M",)],
    ),
]
