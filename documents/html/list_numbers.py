"""Write the numbers of items of lists in the forms that Word names: decimal, lowerRoman, chineseCounting."""

from __future__ import annotations

import re

#: Largest number of an item that letters write, as in Word: 30 of them.
_MOST_LETTERED = 780

#: Forms that count with the signs of an alphabet, one after another.
_ALPHABETS = {
    "ideographTraditional": "甲乙丙丁戊己庚辛壬癸",
    "ideographZodiac": "子丑寅卯辰巳午未申酉戌亥",
    "decimalEnclosedCircle": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳",
    "decimalEnclosedCircleChinese": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳",
    "aiueoFullWidth": "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワヲン",
    "irohaFullWidth": "イロハニホヘトチリヌルヲワカヨタレソツネナラムウヰノオクヤマケフコエテアサキユメミシヱヒモセス",
    "aiueo": "ｱｲｳｴｵｶｷｸｹｺｻｼｽｾｿﾀﾁﾂﾃﾄﾅﾆﾇﾈﾉﾊﾋﾌﾍﾎﾏﾐﾑﾒﾓﾔﾕﾖﾗﾘﾙﾚﾛﾜｦﾝ",
    "iroha": "ｲﾛﾊﾆﾎﾍﾄﾁﾘﾇﾙｦﾜｶﾖﾀﾚｿﾂﾈﾅﾗﾑｳヰﾉｵｸﾔﾏｹﾌｺｴﾃｱｻｷﾕﾒﾐｼヱﾋﾓｾｽ",
    "lowerGreek": "αβγδεζηθικλμνξοπρστυφχψω",
    "decimalEnclosedParen": "⑴⑵⑶⑷⑸⑹⑺⑻⑼⑽⑾⑿⒀⒁⒂⒃⒄⒅⒆⒇",
    "decimalEnclosedFullstop": "⒈⒉⒊⒋⒌⒍⒎⒏⒐⒑⒒⒓⒔⒕⒖⒗⒘⒙⒚⒛",
    "ideographEnclosedCircle": "㊀㊁㊂㊃㊄㊅㊆㊇㊈㊉",
    "ganada": "가나다라마바사아자차카타파하",
    "chosung": "ㄱㄴㄷㄹㅁㅂㅅㅇㅈㅊㅋㅌㅍㅎ",
    "russianLower": "абвгдежзиклмнопрстуфхцчшщыэюя",
    "russianUpper": "АБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЫЭЮЯ",
    "hebrew2": "אבגדהוזחטיכלמנסעפצקרשת",
    "arabicAlpha": "أبتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "thaiLetters": "กขคงจฉชซฌญฎฏฐฑฒณดตถทธนบปผฝพฟภมยรลวศษสหฬอฮ",
    "hindiVowels": "कखगघङचछजझञटठडढणतथदधनपफबभमयरलवशषसह",
}

#: Forms that write each digit with another sign.
_DIGITS = {
    "decimalFullWidth": "".join(map(chr, range(0xFF10, 0xFF1A))),
    "ideographDigital": "〇一二三四五六七八九",
    "japaneseDigitalTenThousand": "〇一二三四五六七八九",
    "taiwaneseDigital": "〇一二三四五六七八九",
    "koreanDigital": "영일이삼사오육칠팔구",
    "hindiNumbers": "०१२३४५६७८९",
    "thaiNumbers": "๐๑๒๓๔๕๖๗๘๙",
    "arabicIndic": "٠١٢٣٤٥٦٧٨٩",
    "persian": "۰۱۲۳۴۵۶۷۸۹",
    "bengali": "০১২৩৪৫৬৭৮৯",
}

#: Forms that count in tens, hundreds and thousands: the digits, these three, and the sign of an empty place.
_CHINESE = ("一二三四五六七八九", "十百千", "零")
_COUNTED = dict.fromkeys(
    ("chineseCounting", "chineseCountingThousand", "taiwaneseCounting", "taiwaneseCountingThousand"), _CHINESE
)
_COUNTED |= {
    "japaneseCounting": ("一二三四五六七八九", "十百千", ""),
    "koreanCounting": ("일이삼사오육칠팔구", "십백천", ""),
    "japaneseLegal": ("壱弐参四五六七八九", "拾百千", ""),
    "chineseLegalSimplified": ("壹贰叁肆伍陆柒捌玖", "拾佰仟", "零"),
    "ideographLegalTraditional": ("壹貳參肆伍陸柒捌玖", "拾佰仟", "零"),
}

#: Forms that add up signs: their values and the signs, from the largest on.
_ROMAN = "1000m 900cm 500d 400cd 100c 90xc 50l 40xl 10x 9ix 5v 4iv 1i"
_HEBREW = "400ת 300ש 200ר 100ק 90צ 80פ 70ע 60ס 50נ 40מ 30ל 20כ 19יט 18יח 17יז 16טז 15טו 10י"  # noqa: RUF001
_HEBREW += " 9ט 8ח 7ז 6ו 5ה 4ד 3ג 2ב 1א"  # noqa: RUF001
_ABJAD = "1000غ 900ظ 800ض 700ذ 600خ 500ث 400ت 300ش 200ر 100ق 90ص 80ف 70ع 60س 50ن 40م 30ل 20ك 10ي"
_ABJAD += " 9ط 8ح 7ز 6و 5ه 4د 3ج 2ب 1أ"  # noqa: RUF001
_SUMS = {
    form: [(int(value), sign) for value, sign in re.findall(r"(\d+)(\D+?)(?: |$)", signs)]
    for form, signs in (
        ("lowerRoman", _ROMAN),
        ("upperRoman", _ROMAN.upper()),
        ("hebrew1", _HEBREW),
        ("arabicAbjad", _ABJAD),
    )
}

#: Forms with signs around the number, or an ending.
_AROUND = {"decimalZero": "{:02}", "numberInDash": "- {} -", "hex": "{:X}"}

#: Numbers in words, as Word writes them in English, and as places in a row.
_WORDS = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
)
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_PLACES = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth"}
_PLACES |= {"twelve": "twelfth"}
_ENDS = {1: "st", 2: "nd", 3: "rd"}


def in_form(number: int, form: str) -> str:
    """Write the number of an item of a list in a form of Word's, such as lowerRoman.

    A form that octavo does not know is decimal.
    """
    if form in _ALPHABETS and 0 < number <= len(_ALPHABETS[form]):
        return _ALPHABETS[form][number - 1]
    if form in _COUNTED and 0 < number < 10_000:
        return _counted(number, *_COUNTED[form])
    if form in _DIGITS and number >= 0:
        return "".join(_DIGITS[form][int(digit)] for digit in str(number))
    if form in ("lowerLetter", "upperLetter") and 0 < number <= _MOST_LETTERED:
        letters = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
        return letters if form == "lowerLetter" else letters.upper()
    if form in _SUMS and 0 < number < 4 * _SUMS[form][0][0]:
        return _added(number, _SUMS[form])
    if form in ("cardinalText", "ordinalText") and 0 < number < 100:
        return _in_words(number, form == "ordinalText").capitalize()
    if form == "ordinal" and number > 0:
        return f"{number}{'th' if number % 100 in (11, 12, 13) else _ENDS.get(number % 10, 'th')}"
    return "" if form == "none" else _AROUND.get(form, "{}").format(number)


def form_of(sample: str) -> str:
    """Return the form of numbers whose first ones are a sample, such as "一, 二, 三, ..."; decimal without one."""
    first = [each.strip() for each in sample.split(",")][:3]
    forms = (*_COUNTED, *_ALPHABETS, *_DIGITS, *_SUMS, *_AROUND)
    return next((form for form in forms if [in_form(number, form) for number in (1, 2, 3)] == first), "decimal")


def _counted(number: int, digits: str, places: str, zero: str) -> str:
    """Write a number below 10,000 as Chinese does: 12 is ten two, 105 is one hundred, a zero, five.

    Without a sign for zero, as in Japanese, 105 is hundred five.
    """
    text, written = "", str(number)
    for place, digit in zip(range(len(written) - 1, -1, -1), map(int, written), strict=True):
        if digit:
            is_bare = digit == 1 and place > 0 and (not zero or (not text and place == 1 and digits[0] == "一"))
            text += ("" if is_bare else digits[digit - 1]) + ("" if place == 0 else places[place - 1])
        elif text and zero and not text.endswith(zero):
            text += zero
    return text.removesuffix(zero)


def _added(number: int, signs: list[tuple[int, str]]) -> str:
    text = ""
    for value, sign in signs:
        text += sign * (number // value)
        number %= value
    return text


def _in_words(number: int, is_place: bool) -> str:
    tens, units = (_TENS[number // 10 - 2], number % 10) if number >= 20 else ("", number)
    last = _WORDS[units] if units else tens
    if is_place:
        last = _PLACES.get(last) or f"{last.removesuffix('y')}{'ie' if last.endswith('y') else ''}th"
    return f"{tens}-{last}" if tens and units else last
