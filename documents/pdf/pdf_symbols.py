"""Find the signs for the codes of symbol fonts, which some files number in Unicode's private area."""

# ruff: noqa: RUF001 - signs look like others
from __future__ import annotations

import re

#: For a sign whose meaning is unknown.
UNKNOWN = "\ufffd"

#: Unicode's private area; Windows puts the codes of symbol fonts at 0xf020 to 0xf0ff.
_PRIVATE = range(0xE000, 0xF900)

#: The signs of Adobe's Symbol, from these codes on.
_OF_SYMBOL = {
    0x20: " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼",
    0xA0: "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪",
    0xF1: "〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭",
}

#: The signs of Wingdings, from these codes on. Other symbol fonts often have the same.
_OF_WINGDINGS = {
    0x21: "✏✂✁👓🔔📖🕯☎✆✉🖂📪📫📬📭📁📂📄🗏🗐🗄⌛🖮🖰🖲🖳🖴🖫🖬✇✍",
    0x40: "🖎✌👌👍👎☜☞☝☟🖐☺😐☹💣☠🏳🏱✈☼💧❄🕆✞🕈✠✡☪☯ॐ☸♈♉",
    0x60: "♊♋♌♍♎♏♐♑♒♓🙰🙵●❍■□🞐❑❒⬧⧫◆❖⬥⌧⮹⌘🏵🏶🙶🙷",
    0x80: "⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿🙢🙠🙡🙣🙞🙜🙝🙟·•",
    0xA0: "▪○🞆🞈◉◎🔿▪◻🟂✦★✶✴✹✵⯐⌖⟡⌑⯑✪✰",
    0xB7: "🕐🕑🕒🕓🕔🕕🕖🕗🕘🕙🕚🕛⮰⮱⮲⮳⮴⮵⮶⮷🙪🙫🙕🙔🙗",
    0xD0: "🙖🙐🙑🙒🙓⌫⌦⮘⮚⮙⮛⮈⮊⮉⮋🡨",
    0xE0: "🡪🡩🡫🡬🡭🡯🡮🡸🡺🡹🡻🡼🡽🡿🡾⇦⇨⇧⇩⬄⇳⬀⬁⬃⬂🢬🢭✗✓☒☑",
}

#: The marks of boxes and ticks in Wingdings 2 and Webdings.
_OF_WINGDINGS_2 = {0x4F: "✗✓☒☑☒☒", 0xA3: "☐"}
_OF_WEBDINGS = {0x61: "✓", 0x63: "☐", 0x72: "✗"}

#: Fonts of icons, which have codes of their own.
_ICONS = re.compile(rb"awesome|icon|material|glyph|fontello|wingdings-?3", re.IGNORECASE)

#: Codes of bullets in lists, which are the same in fonts of either kind or mark nothing else.
_BULLETS = dict.fromkeys([0xF0B7, 0xF0A7, 0xF0D8, 0xF076, 0xF06E], "•")

#: Signs that mean more in these forms.
_SAME = dict(zip("◻□⌧🡪🡺🡨🡸🡩🡹🡫🡻", "☐☐☒→→←←↑↑↓↓", strict=True))

#: Adobe's codes for parts of brackets and the like.
_PARTS = dict(zip(range(0xF8E5, 0xF8FF), "‾⏐⎯®©™⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪⎮⎞⎟⎠⎤⎥⎦⎫⎬⎭", strict=True))


def _by_code(runs: dict[int, str]) -> dict[int, str]:
    signs = {0xF000 + first + i: sign for first, run in runs.items() for i, sign in enumerate(run)}
    return {code: _SAME.get(sign, sign) for code, sign in signs.items()} | _PARTS | _BULLETS


#: The signs of fonts by their names; the first that is found counts.
_FONTS = [
    (re.compile(rb"^symbol(mt|std|ps|neu)?([,-].*)?$", re.IGNORECASE), _by_code(_OF_SYMBOL)),
    (re.compile(rb"wingdings-?2", re.IGNORECASE), _by_code(_OF_WINGDINGS_2)),
    (re.compile(rb"webdings", re.IGNORECASE), _by_code(_OF_WEBDINGS)),
    (_ICONS, _PARTS),
    (re.compile(b""), _by_code(_OF_WINGDINGS)),
]


def is_private(code: int) -> bool:
    """Return whether a code means something in one font only."""
    return code in _PRIVATE


def sign(code: int, font: bytes) -> str:
    """Return the sign of a code in the private area; `UNKNOWN` if nothing says it.

    Parameters
    ----------
    font : bytes
        The name of the font, which may have a prefix. Fonts without a known name mostly have the codes of Wingdings.
    """
    name = font.rpartition(b"+")[2]
    return next(signs for pattern, signs in _FONTS if pattern.search(name)).get(code, UNKNOWN)
