"""Find numbers in words, as nineteen eighty-five, in English, German, Dutch, French, Spanish, Italian and Portuguese.

Words are compared without case and accents. Spanish "once" is left out, since it is an English word, too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import pairwise, product

_GERMAN = (
    "null ein zwei drei vier funf sechs sieben acht neun zehn elf zwolf dreizehn vierzehn funfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
)
_DUTCH = (
    "nul een twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien vijftien zestien zeventien "
    "achttien negentien"
)
_SPANISH = (
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez - doce trece catorce quince dieciseis diecisiete "
    "dieciocho diecinueve"
)
_ITALIAN = (
    "zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici "
    "diciassette diciotto diciannove"
)

#: Words from zero on.
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth",
    _GERMAN,
    _DUTCH,
    "zero un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
    _SPANISH,
    _ITALIAN,
    "zero um dois tres quatro cinco seis sete oito nove dez onze doze treze catorze quinze dezesseis dezessete dezoito "
    "dezenove",
    "- eine duas",
    "- eins",
    "- une",
    "- una",
    "- uma",
)

#: Words of tens, from twenty on.
_ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_GERMAN_TENS = "zwanzig dreissig vierzig funfzig sechzig siebzig achtzig neunzig"
_DUTCH_TENS = "twintig dertig veertig vijftig zestig zeventig tachtig negentig"
_ITALIAN_TENS = "venti trenta quaranta cinquanta sessanta settanta ottanta novanta"
_TENS = (
    _ENGLISH_TENS,
    _ENGLISH_TENS.replace("ty", "tieth"),
    _GERMAN_TENS,
    _DUTCH_TENS,
    "vingt trente quarante cinquante soixante septante huitante nonante",
    "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
    _ITALIAN_TENS,
    "vinte trinta quarenta cinquenta sessenta setenta oitenta noventa",
)

#: Words of hundreds, from two hundred on.
_HUNDREDS = (
    "doscientos trescientos cuatrocientos quinientos seiscientos setecientos ochocientos novecientos",
    "duzentos trezentos quatrocentos quinhentos seiscentos setecentos oitocentos novecentos",
)

#: Words that multiply those before. German Billion is a trillion; in English billion is more usual by far.
SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SCALES |= {f"{word}th": value for word, value in SCALES.items()}
for _words, _value in {
    "dutzend dozijn douzaine docena dozzina duzia": 12,
    "hundert honderd cent cento cien ciento cem": 100,
    "tausend duizend mille mila mil": 10**3,
    "lakh": 10**5,
    "millionen miljoen millon millones milione milioni milhao milhoes": 10**6,
    "crore": 10**7,
    "milliarde milliarden miljard milliard miliardo miliardi bilhao bilhoes": 10**9,
    "billionen biljoen billones": 10**12,
}.items():
    SCALES |= dict.fromkeys(_words.split(), _value)

#: Words inside of a number; a half, which is added or multiplied; words; and the blanks between them.
_BETWEEN, _HALF = {"and", "a", "et", "y", "e"}, "half"
_WORD, _GAP = re.compile(r"[^\W\d_]+"), re.compile(r"[\s-]+")

#: Thousands inside of a word.
_THOUSANDS = re.compile(r"(\w*?)(?:tausend|duizend|mila|mille)(?:und)?(\w*)")


def without_accents(text: str) -> str:
    """Return a text in small letters without accents."""
    if not text.isascii():
        text = "".join(each for each in unicodedata.normalize("NFD", text) if not unicodedata.combining(each))
    return text.casefold()


def numbers_in_words(text: str) -> set[str]:
    """Return the numbers in words of a text, in digits without separators."""
    return {
        str(value) if value.denominator == 1 else str(float(value))
        for run in _runs(without_accents(text).replace("per cent", "percent"))
        for value in _values(run)
    }


def _runs(text: str) -> Iterator[list[str]]:
    """Yield the words of each number: those that follow one another."""
    run, end, may_continue = list[str](), 0, False
    for match in _WORD.finditer(text):
        word = match[0]
        follows = bool(run) and (may_continue or _GAP.fullmatch(text, end, match.start()) is not None)
        is_number = word == _HALF or word in SCALES or _value_of(word) is not None
        if is_number:
            if run and not follows:
                yield run
                run = []
            run.append(word)
        elif run and not (follows and word in _BETWEEN):
            yield run
            run = []
        end = match.end()
    if run:
        yield run


def _values(words: list[str]) -> Iterator[Fraction]:
    """Yield the values of words that follow one another: of each word, of the numbers, and of two as a year."""
    if words == [_HALF]:
        return
    numbers: list[Fraction] = []
    total = current = Fraction(0)
    last = 0  # the value of the word before, from which follows whether the number continues
    for before, word in pairwise(["", *words]):
        value, scale = _value_of(word) or 0, SCALES.get(word)
        if word == _HALF:
            current += Fraction(1, 2)
        elif scale is not None:
            current = (current or Fraction(1)) * scale
            if scale > 100:
                total, current = total + current, Fraction(0)
        elif word.startswith("vingt") and last == 4:  # quatre-vingt
            current, value = current - 4 + 80, 80
        elif last == 0 or last >= 100 or (last >= 20 and 0 < value < 10) or _continues(before, last, value):
            yield Fraction(value)
            current += value
        else:
            numbers.append(total + current)
            total, current = Fraction(0), Fraction(value)
            yield current
        last = scale or value
    numbers.append(total + current)
    yield from numbers
    for century, year in pairwise(numbers):
        if 10 <= century < 100 and 10 <= year < 100:
            yield 100 * century + year


def _continues(before: str, last: int, value: int) -> bool:
    """Return whether a number continues as French ones do: soixante-douze, quatre-vingt-dix-sept."""
    return (before.startswith(("soixante", "vingt")) and last in (60, 80) and value < 17) or (
        before == "dix" and 7 <= value < 10
    )


def _value_of(word: str) -> int | None:
    """Return the value of a word, which may be a compound; None of another word, and of one that multiplies."""
    if word in SCALES:
        return None
    values = _compounds()
    value = values.get(word, values.get(word.removesuffix("s")))
    if value is None and (found := _THOUSANDS.fullmatch(word)) is not None:
        thousands, rest = (values.get(part) for part in found.groups())
        if (thousands or not found[1]) and (rest or not found[2]):
            return 1000 * (thousands or 1) + (rest or 0)
    return value


@cache
def _compounds() -> dict[str, int]:
    """Return the values of words, with those that German, Dutch, Spanish and Italian write as one."""
    values = {word: number for words in _ONES for number, word in enumerate(words.split()) if word != "-"}
    values |= {word: 10 * number for words in _TENS for number, word in enumerate(words.split(), 2)}
    values |= {word: 100 * number for words in _HUNDREDS for number, word in enumerate(words.split(), 2)}
    values |= {f"veinti{word}": 20 + number for number, word in enumerate(_SPANISH.split()[1:10], 1)}
    values |= {"vingts": 20, "veintiun": 21, "dezasseis": 16, "dezassete": 17, "dezanove": 19, "quatorze": 14}
    for words, words_of_tens, between, hundred in (
        (_GERMAN, _GERMAN_TENS, "und", "hundert"),
        (_DUTCH, _DUTCH_TENS, "en", "honderd"),
        (_ITALIAN, _ITALIAN_TENS, "", "cento"),
    ):
        ones, tens = words.split(), words_of_tens.split()
        small = dict(zip(ones, range(20), strict=True)) | dict(zip(tens, range(20, 100, 10), strict=True))
        for (number, one), (ten_number, ten) in product(list(enumerate(ones))[1:10], enumerate(tens, 2)):
            compound = f"{one}{between}{ten}" if between else f"{ten[:-1] if one[0] in 'uo' else ten}{one}"
            small[compound] = 10 * ten_number + number
        hundreds = {f"{one}{hundred}": 100 * number for number, one in enumerate(ones) if number}
        if between:
            hundreds[f"{hundred}und"] = 100
        else:
            hundreds = {word: value for word, value in hundreds.items() if 200 <= value < 1000}
        values |= small | hundreds
        values |= {
            word + rest: value + number
            for word, value in ({hundred: 100} | hundreds).items()
            for rest, number in small.items()
            if number
        }
    return values
