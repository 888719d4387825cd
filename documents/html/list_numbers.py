"""Write the numbers of items of lists in the forms that Word names: decimal, lowerRoman, chineseCounting."""

from __future__ import annotations

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
    "ganada": "가나다라마바사아자차카타파하",
    "chosung": "ㄱㄴㄷㄹㅁㅂㅅㅇㅈㅊㅋㅌㅍㅎ",
    "russianLower": "абвгдежзиклмнопрстуфхцчшщыэюя",
    "russianUpper": "АБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЫЭЮЯ",
    "hebrew2": "אבגדהוזחטיכלמנסעפצקרשת",
    "arabicAlpha": "أبتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "thaiLetters": "กขคงจฉชซฌญฎฏฐฑฒณดตถทธนบปผฝพฟภมยรลวศษสหฬอฮ",
    "hindiVowels": "कखगघङचछजझञटठडढणतथदधनपफबभमयरलवशषसह",
}

#: Forms that count in Chinese, as Japanese does, and those that write each digit with another sign.
_CHINESE = {"chineseCounting", "chineseCountingThousand", "japaneseCounting", "taiwaneseCounting"}
_CHINESE |= {"taiwaneseCountingThousand"}
_DIGITS = {
    "decimalFullWidth": "".join(map(chr, range(0xFF10, 0xFF1A))),
    "ideographDigital": "〇一二三四五六七八九",
    "japaneseDigitalTenThousand": "〇一二三四五六七八九",
    "taiwaneseDigital": "〇一二三四五六七八九",
    "hindiNumbers": "०१२३४५६७८९",
    "thaiNumbers": "๐๑๒๓๔๕๖๗๘๙",
}


def in_form(number: int, form: str) -> str:
    """Write the number of an item of a list in a form of Word's, such as lowerRoman.

    A form that octavo does not know is decimal.
    """
    if form in _ALPHABETS and 0 < number <= len(_ALPHABETS[form]):
        return _ALPHABETS[form][number - 1]
    if form in _CHINESE and 0 < number < 10_000:
        return _chinese(number)
    if form in _DIGITS:
        return "".join(_DIGITS[form][int(digit)] for digit in str(number))
    if form in ("lowerLetter", "upperLetter") and 0 < number <= _MOST_LETTERED:
        letters = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
        return letters if form == "lowerLetter" else letters.upper()
    if form in ("lowerRoman", "upperRoman") and 0 < number < 4000:
        letters = ""
        for value, sign in zip(
            (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
            ("m", "cm", "d", "cd", "c", "xc", "l", "xl", "x", "ix", "v", "iv", "i"),
            strict=True,
        ):
            letters += sign * (number // value)
            number %= value
        return letters if form == "lowerRoman" else letters.upper()
    return "" if form == "none" else f"{number:02}" if form == "decimalZero" else str(number)


def _chinese(number: int) -> str:
    """Write a number below 10,000 in Chinese: 12 is ten two, 105 is one hundred, a zero, five."""
    text, digits = "", str(number)
    for place, digit in zip(range(len(digits) - 1, -1, -1), digits, strict=True):
        if digit != "0":
            text += "〇一二三四五六七八九"[int(digit)] + ("", "十", "百", "千")[place]
        elif text and not text.endswith("零"):
            text += "零"
    text = text.rstrip("零")
    return text[1:] if text.startswith("一十") else text
