"""Résumés, invitations and programmes: side bars, dates at the right edge."""

from __future__ import annotations

from .layout import Drawing, Layout

_POSTS = [
    ("Master of the north yard", "2011 to 2013"),
    ("Clerk of the rope store", "2013 to 2014"),
    ("Pilot on the upper river", "2014 to 2018"),
    ("Keeper of the town clock", "2018 to 2025"),
]
_DONE = (
    "She wrote the plans of the week and taught the apprentices to read the drawings, and so on for the whole season."
)


def _dates(page: Drawing) -> None:
    """Draw posts in bold, each with its years at the right edge, and two lines on each."""
    page.text(60, 800, "Runa Dahl", 18, "Helvetica-Bold")
    for i, (post, years) in enumerate(_POSTS):
        page.text(60, 760 - 60 * i, post, 11, "Helvetica-Bold")
        page.text(535, 760 - 60 * i, years, 10, at="right")
        page.lines(60, 745 - 60 * i, [_DONE[:58].strip(), _DONE[58:].strip()], 13, size=9)


_HISTORY = [
    "Elle a dirigé une équipe de douze personnes au port et a tracé les plans de chacun des trois chantiers du fleuve.",
    "Elle a tenu les livres du magasin de bois et a répondu aux lettres des charpentiers de toute la vallée.",
]
_BAR = (
    "<style>body{font:10pt serif;margin:0} main{display:flex} nav{width:4.4cm;padding:0 .5cm;background:#eee}"
    "article{flex:1;padding:0 .8cm} h2{font-size:12pt}</style><main><nav><h2>Contact</h2><p>6, quai du Nord<br>Sète<br>"
    "04 00 00 00 12<h2>Langues</h2><p>français<br>italien<br>catalan<h2>Loisirs</h2><p>voile, échecs</nav><article>"
    f"<h1>Inès Roca</h1><h2>Parcours</h2><p><b>Cheffe de chantier</b><br>{_HISTORY[0]}<p>"
    f"<b>Commise</b><br>{_HISTORY[1]}"
    "<h2>Formation</h2><p>Lycée technique de Sète</article></main>"
)
_PROGRAMME = (
    "<style>body{font:11pt sans-serif} li{list-style:none;display:flex} time{width:5em} i{margin-left:auto}</style>"
    "<h1>Programma</h1><ul><li><time>09:00</time>Apertura<i>Sala A</i><li><time>09:30</time>I fari del nord, con molte "
    "figure<i>Sala B</i><li><time>11:15</time>Pausa<i>Cortile</i><li><time>11:45</time>Reti e nodi<i>Sala A</i></ul>"
)
LAYOUTS = [
    Layout(
        "dates at the right edge",
        _dates,
        pairs=_POSTS,
        order=[part for post in _POSTS for part in (*post, "drawings")],
        headings=["Runa Dahl"],
    ),
    Layout(
        "side bar",
        _BAR,
        whole=[*_HISTORY, "6, quai du Nord", "français"],
        headings=["Inès Roca", "Contact", "Langues", "Parcours", "Formation"],
        order=["Langues", "italien", "Loisirs", "voile"],
    ),
    Layout(
        "programme",
        _PROGRAMME,
        rows=[("09:00", "Apertura", "Sala A"), ("11:15", "Pausa", "Cortile"), ("11:45", "Reti e nodi", "Sala A")],
    ),
]
