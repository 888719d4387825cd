"""Tell which characters of a PDF's page a reader of it sees, and which have no meaning without a picture of them."""

from __future__ import annotations

import ctypes
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .pdf_characters import Character, Style, address, place

#: Letters of this share of a page's height are too small to be seen.
_TINY = 1 / 800

#: Fewest letters by which a font is judged; fewest different ones, as bullets are few; and least shares of letters and
#: digits in text, and of letters in one script.
_FEWEST, _FEWEST_KINDS, _LEAST_WORDS, _LEAST_SCRIPT = 5, 4, 0.65, 0.9

#: Least share of vowels in Latin letters if most are small, and if most are capitals, as those of shifted codes are.
_LEAST_VOWELS, _LEAST_VOWELS_OF_CAPITALS = 0.15, 0.25

#: Least width of letters that are as wide as they are high, in font sizes.
_NEARLY_SQUARE = 0.95

#: Most drawings that are within one another.
_DEEPEST = 15

#: Scripts that are written together.
_EASTERN = {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}


def unclear_fonts(lines: Sequence[Sequence[Character]]) -> set[bytes]:
    """Return the fonts whose letters PDFium can only guess, and whose text makes no sense as guessed."""
    guesses: dict[bytes, list[str]] = defaultdict(list)
    for line in lines:
        for character in line:
            if character.is_guess:
                guesses[character.style.font].append(character.text)
    return {font for font, texts in guesses.items() if not is_legible("".join(texts))}


def is_legible(text: str) -> bool:
    """Return whether characters, without the blanks between them, could be a text: words of one script, or numbers."""
    letters = [letter for letter in text if letter.isalpha()]
    n_words = len(letters) + sum(sign.isdigit() for sign in text)
    if len(text) < _FEWEST or len(set(text)) < _FEWEST_KINDS:
        return True
    if n_words < _LEAST_WORDS * len(text):
        return False
    names = (unicodedata.name(letter, "UNKNOWN").split()[0] for letter in letters)
    scripts = Counter("CJK" if name in _EASTERN else name for name in names)
    if letters and scripts.most_common(1)[0][1] < _LEAST_SCRIPT * len(letters):
        return False
    latin = [letter for letter in letters if ord(letter) < 0x250]
    n_vowels = sum(unicodedata.normalize("NFD", letter.lower())[0] in "aeiouy" for letter in latin)
    are_small = 2 * sum(letter.islower() for letter in latin) > len(latin)
    least = _LEAST_VOWELS if are_small else _LEAST_VOWELS_OF_CAPITALS
    return len(latin) < _FEWEST or n_vowels >= least * len(latin)


def without_hidden(page: Any, lines: Sequence[list[Character]]) -> list[list[Character]]:
    """Leave out lines beside the page, and characters that are too small to see, or as white as the page.

    Invisible letters on a picture are its text, as text recognition writes it; white letters may be on a dark ground.
    A page that has only such characters keeps them.
    """
    box = page.get_bbox()
    grounds: list[Sequence[float]] | None = None
    kept = []
    for line in lines:
        if any(character.style.is_faint for character in line) and grounds is None:
            grounds = _grounds(page)
        seen = [
            character
            for character in line
            if character.style.size >= _TINY * (box[3] - box[1])
            and not (character.style.is_faint and not any(_is_on(character, ground) for ground in grounds or ()))
        ]
        kept.append(seen if any(_is_on(character, box) for character in seen) else [])
    return kept if any(kept) else list(lines)


def _is_on(character: Character, box: Sequence[float]) -> bool:
    """Return whether the middle of a character, a little above its line, is in a box on the page."""
    x, y = place(character)
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _grounds(page: Any) -> list[Sequence[float]]:
    """Return the boxes of possible grounds of letters: pictures, areas and groups of them."""
    import pypdfium2.raw as pdfium

    kinds = pdfium.FPDF_PAGEOBJ_IMAGE, pdfium.FPDF_PAGEOBJ_PATH, pdfium.FPDF_PAGEOBJ_SHADING, pdfium.FPDF_PAGEOBJ_FORM
    return [each.get_bounds() for each in page.get_objects(filter=kinds, max_depth=1)]


def fonts_of_objects(page: Any, styles: dict[int | None, Style]) -> tuple[set[str], set[str]]:
    """Return the names of the fonts that a page has letters of, and of those without which it lacks letters.

    Blanks have no letters either, but PDFium has a font like theirs; it has none for Chinese, Japanese and Korean.
    """
    import pypdfium2.raw as pdfium

    found = {style.font.decode("utf-8", "replace") for style in styles.values()}
    missing = set()
    name = ctypes.create_string_buffer(64)
    for each in _texts(page.raw, pdfium.FPDFPage_CountObjects, pdfium.FPDFPage_GetObject):
        if address(each) not in styles:
            font = pdfium.FPDFTextObj_GetFont(each)
            if not pdfium.FPDFFont_GetIsEmbedded(font) and _is_makeshift(font):
                pdfium.FPDFFont_GetBaseFontName(font, name, len(name))
                missing.add(name.value.decode("utf-8", "replace"))
    return found, missing


def _texts(parent: Any, count: Callable[[Any], int], get: Callable[[Any, int], Any], depth: int = 0) -> Iterator[Any]:
    """Yield the texts of a page, and of the drawings in it."""
    import pypdfium2.raw as pdfium

    for number in range(count(parent)):
        each = get(parent, number)
        kind = pdfium.FPDFPageObj_GetType(each)
        if kind == pdfium.FPDF_PAGEOBJ_TEXT:
            yield each
        elif kind == pdfium.FPDF_PAGEOBJ_FORM and depth < _DEEPEST:
            yield from _texts(each, pdfium.FPDFFormObj_CountObjects, pdfium.FPDFFormObj_GetObject, depth + 1)


def _is_makeshift(font: Any) -> bool:
    """Return whether PDFium has no font like one whose letters are as wide as they are high."""
    import pypdfium2.raw as pdfium

    family, width = ctypes.create_string_buffer(64), ctypes.c_float()
    pdfium.FPDFFont_GetFamilyName(font, family, len(family))
    pdfium.FPDFFont_GetGlyphWidth(font, ord("\u6c34"), 1.0, width)
    return family.value.startswith(b"Chrom") and width.value > _NEARLY_SQUARE
