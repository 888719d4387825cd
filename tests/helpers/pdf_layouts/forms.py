"""Forms, questionnaires, certificates and letters: labels and values, ticks, options, stamps, signatures."""

from __future__ import annotations

from .layout import Drawing, Layout

_QUESTIONS = [
    ("In welcher Gemeinde wohnen Sie?", "Husum"),
    ("Wie viele Boote besitzen Sie?", "drei"),
    ("Wer vertritt Sie bei Krankheit?", "Frau Petersen"),
    ("Seit wann sind Sie Mitglied?", "April 2019"),
]


def _fields(page: Drawing) -> None:
    """Draw questions, each with a field that is filled beside it."""
    page.text(60, 790, "Antrag auf einen Liegeplatz", 15, "Helvetica-Bold")
    for i, (question, value) in enumerate(_QUESTIONS):
        page.text(60, 740 - 34 * i, question)
        page.canvas.acroForm.textfield(name=f"field{i}", value=value, x=300, y=733 - 34 * i, width=180, height=22)
        page.texts.append(value)


def _tall_fields(page: Drawing) -> None:
    """Draw labels, each level with the middle of a tall field at its right."""
    for i, (label, value) in enumerate(_NAMES):
        page.text(60, 750 - 60 * i, label, 9)
        page.canvas.acroForm.textfield(name=f"field{i}", value=value, x=160, y=735 - 60 * i, width=200, height=40)
        page.texts.append(value)


def _labels_above(page: Drawing) -> None:
    """Draw two fields on each line, with their labels above them."""
    for i, (label, value) in enumerate(_BOAT):
        x, y = (60, 300)[i % 2], 760 - 60 * (i // 2)
        page.text(x, y, label)
        page.canvas.acroForm.textfield(name=f"field{i}", value=value, x=x, y=y - 31, width=200, height=26)
        page.texts.append(value)


_BOAT = [("1. Nome da barca", "Gaivota"), ("2. Dono", "Rui Melo"), ("3. Comprimento", "9 m"), ("4. Porto", "Sines")]
_NAMES = [("Sukunimi", "Virtanen"), ("Etunimi", "Aino"), ("Paikkakunta", "Oulu")]


def _ticks(page: Drawing) -> None:
    """Draw answers with boxes of ZapfDingbats, one of which is ticked (3) and the other empty (o)."""
    page.text(60, 790, "Safety round", 15, "Helvetica-Bold")
    questions = ("Is the ladder tied to the wall?", "Are the stairs free?", "Does the siren sound?")
    for i, (question, answer) in enumerate(zip(questions, "YNY", strict=True)):
        page.text(60, 750 - 20 * i, question)
        for x, name in ((300, "Yes"), (360, "No")):
            page.canvas.setFont("ZapfDingbats", 11)
            page.canvas.drawString(x, 750 - 20 * i, "\u2714" if name[0] == answer else "\u274f")
            page.text(x + 16, 750 - 20 * i, name)


_EXAM = [
    ("1. Which bird nests on the cliff?", ("a puffin", "a wren", "an owl", "a heron")),
    ("2. What drives the old mill?", ("the tide", "a horse", "steam", "the wind")),
    ("3. Who rings the evening bell?", ("the warden", "a pupil", "the baker", "nobody")),
]


def _options(page: Drawing) -> None:
    """Draw questions whose four options stand two on a line."""
    page.text(60, 790, "Paper two", 14, "Times-Bold")
    for i, (question, options) in enumerate(_EXAM):
        y = 750 - 70 * i
        page.text(60, y, question, 11, "Times-Roman")
        for n, option in enumerate(options):
            page.text(80 + 220 * (n % 2), y - 20 - 18 * (n // 2), f"{'ABCD'[n]}) {option}", 11, "Times-Roman")


def _options_down(page: Drawing) -> None:
    """Draw questions whose options are in two columns, the first two at the left."""
    for i, (question, options) in enumerate(_EXAM):
        page.text(60, 750 - 52 * i, question)
        for n, option in enumerate(options):
            page.text(80 + 220 * (n // 2), 734 - 52 * i - 14 * (n % 2), f"{'abcd'[n]}. {option}")


def _stamped(page: Drawing) -> None:
    """Draw a letter with a slanted stamp on it."""
    page.lines(60, 780, ["Utlevering av nøkler til båthuset", "Nøklene skal leveres tilbake senest fredag."])
    page.text(330, 640, "BETALT 9. juni 2026", 26, "Helvetica-Bold", angle=24)


def _drafts(page: Drawing) -> None:
    """Draw three pages with the same large word across them."""
    for number, text in enumerate(("The pier is closed in May.", "Repairs cost 4,100.", "The mayor signs in July."), 1):
        page.text(140, 300, "DRAFT", 110, "Helvetica-Bold", angle=52)
        page.text(60, 760, f"Article {number}", 13, "Helvetica-Bold")
        page.text(60, 735, text)
        page.page()


def _letters(page: Drawing) -> None:
    """Draw short letters of a series, alike but for name and points."""
    for name, points in (("Ole Lund", 50), ("Mia Krog", 275), ("Jon Vik", 1)):
        page.text(60, 790, f"Letter to {name}", 10)
        page.lines(60, 760, ["Dear member,", f"your number of points is {points}.", "Kind regards"], 16)
        page.page()


def _certificates(page: Drawing) -> None:
    """Draw certificates on landscape pages, centred, that share most of their words."""
    page.canvas.setPageSize((842, 595))
    for name, course, day in (("Ana Sousa", "Rope work", "3 May"), ("Rui Melo", "First aid", "4 May")):
        page.text(421, 480, "Certificate", 34, "Times-Bold", at="middle")
        page.text(421, 400, name, 22, "Times-Roman", at="middle")
        page.text(421, 350, f"has passed the course {course}", 13, "Times-Roman", at="middle")
        page.text(421, 310, f"on {day} 2026", 13, "Times-Roman", at="middle")
        page.page()


_PROPERTIES = [
    ("Maximale Länge bei eingezogenem Mast", "etwas über vier Meter"),
    ("Gewicht ohne Räder und ohne Batterie", "zwölf bis vierzehn Kilogramm"),
    ("Farbe der Griffe bei Auslieferung", "dunkelgrün, matt"),
    ("Kürzester Abstand zweier Prüfungen", "neun Monate oder 210 Tage"),
    ("Zulässige Lagertemperatur", "minus zehn bis plus 49 Grad"),
    ("Werkstoff der Füße und Kappen", "Gummi mit Stahlkern"),
]
_SHEET = (
    "<style>body{font:10pt sans-serif} div{display:grid;grid-template-columns:1fr 1fr;row-gap:3pt} p{margin:0}</style>"
    "<h1>Datenblatt</h1><div>" + "".join(f"<p>{label}</p><p>{value}</p>" for label, value in _PROPERTIES) + "</div>"
)

_SURVEY = (
    "<style>body{font:10pt sans-serif} td{padding:3pt 9pt}</style><h1>Ankieta</h1><table>"
    + "".join(
        f"<tr><td>{question}<td>{'☒' if yes else '☐'} tak<td>{'☐' if yes else '☒'} nie"
        for question, yes in (("Czy most jest otwarty?", True), ("Czy pada śnieg?", False), ("Czy prom płynie?", True))
    )
    + "</table>"
)

_OPEN = (
    "<style>body{font:11pt serif} p{display:flex;gap:4pt} u{flex:1}</style><h1>Déclaration</h1>"
    "<p>Nom et prénom : <u>Claire Fabre</u></p><p>Né(e) le : <u>12/03/1981</u> à : <u>Arles</u></p>"
    "<p>Profession : <u>luthière</u></p><p>Fait à : <u>Nîmes</u> le : <u>6 juin 2026</u></p>"
)

LAYOUTS = [
    Layout("labels above fields", _labels_above, rows=_BOAT, order=[value for _, value in _BOAT]),
    Layout("form with tall fields", _tall_fields, rows=_NAMES),
    Layout("options down two columns", _options_down, order=[part for one, all_of in _EXAM for part in (one, *all_of)]),
    Layout(
        "form with fields",
        _fields,
        pairs=_QUESTIONS,
        headings=["Antrag auf einen Liegeplatz"],
        texts=[value for _, value in _QUESTIONS],
    ),
    Layout(
        "ticks of ZapfDingbats",
        _ticks,
        pairs=[("tied to the wall?", "✔ Yes", "❏ No"), ("stairs free?", "❏ Yes", "✔ No"), ("sound?", "✔ Yes", "❏ No")],
    ),
    Layout(
        "options in two columns",
        _options,
        order=[part for question, options in _EXAM for part in (question, *options)],
        pairs=[("A)", "a puffin"), ("D)", "the wind")],
    ),
    Layout(
        "stamp",
        _stamped,
        order=["Nøklene skal leveres"],
        pairs=[("BETALT 9. juni 2026",)],
        texts=["BETALT"],
    ),
    Layout(
        "drafts",
        _drafts,
        order=["Article 1", "closed in May", "Article 2", "4,100", "Article 3", "in July"],
        whole=["The mayor signs in July."],
        left_out="DRAFT DRAFT",
    ),
    Layout(
        "letters of a series",
        _letters,
        order=["Ole Lund", "points is 50.", "Mia Krog", "points is 275.", "Jon Vik", "points is 1."],
    ),
    Layout(
        "certificates",
        _certificates,
        order=["Ana Sousa", "Rope work", "3 May", "Rui Melo", "First aid", "4 May"],
    ),
    Layout("data sheet", _SHEET, rows=_PROPERTIES, headings=["Datenblatt"]),
    Layout(
        "survey",
        _SURVEY,
        pairs=[("otwarty?", "☒ tak", "☐ nie"), ("śnieg?", "☐ tak", "☒ nie"), ("płynie?", "☒ tak", "☐ nie")],
    ),
    Layout(
        "declaration",
        _OPEN,
        pairs=[("Nom et prénom", "Claire Fabre"), ("le", "12/03/1981"), ("à", "Arles"), ("le", "6 juin 2026")],
        texts=["Claire Fabre", "luthière"],
    ),
]
