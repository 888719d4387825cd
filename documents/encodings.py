"""Decode texts. UTF-8 stays as it is; another encoding is used only if no likely one gives a different text.

A few bytes that are not of the encoding become � each, with a notice.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from contextlib import suppress

from ..errors import OctavoError
from .document import READS

#: Byte order marks and their encodings; UTF-16's mark is the beginning of UTF-32's.
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

#: Encodings that browsers use in place of those that are named.
_WIDER = {"iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874"}
_WIDER |= {"gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "big5": "big5hkscs", "shift_jis": "cp932"}

#: Encodings of parts of programs and of names in networks, which no document has.
_OF_PYTHON = ("idna", "punycode", "undefined", "raw-unicode-escape", "unicode-escape")

#: Characters, and bytes, that texts lack but other files have. Logs have escapes.
_CONTROLS = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_CONTROL_BYTES = bytes({*range(32)} - {*b"\t\n\v\f\r\x1b"})

#: Largest share of control bytes in a damaged text, and of characters foreign to its language.
_MOST_CONTROLS, _MOST_STRAY = 0.005, 0.01

#: Largest share of unlikely neighbouring characters, as charset-normalizer counts them.
_MOST_CHAOS = 0.1

#: Least share of kana in Japanese, and of intact sequences beyond ASCII in a damaged UTF-8 text.
_LEAST_KANA, _LEAST_WHOLE = 0.2, 0.9

#: Most characters that cannot be decoded in a text, as a share.
_MOST_LOST = 1 / 200

#: Encodings of Chinese, Japanese and Korean: the one that has the bytes of each common character, and which those are.
_COMMON = {
    "cp932": ("shift_jis", b"\x88\x9f", b"\x98\x72"),
    "euc-jp": ("euc_jp", b"\xb0\xa1", b"\xcf\xd3"),
    "gb18030": ("gb2312", b"\xb0\xa1", b"\xd7\xf9"),
    "big5": ("big5", b"\xa4\x40", b"\xc6\x7e"),
    "cp949": ("euc_kr", b"\xb0\xa1", b"\xc8\xfe"),
}

#: Least share of common characters among those beyond ASCII in a text that has one of these encodings, and so many that
#: Korean is not taken for Chinese: all Korean syllables have the bytes of common Chinese characters.
_LEAST_COMMON, _MANY_KOREAN = 0.9, 12

#: Most bytes of a text to guess its encoding from, and fewest if no language is recognised in it.
_SAMPLE, _LEAST = 1 << 20, 64

#: Letters beyond ASCII in the languages of each encoding. Encodings agree on many of them. The last one, of old Macs,
#: is so rare that all others take precedence.
_LATIN_LETTERS = {
    "cp1252": (
        *("äöüß", "àâæçéèêëîïôœùûüÿ", "áéíñóúü", "àáâãçéêíóôõúü", "àèéìòù"),
        *("åäöé", "æøåéöäü", "áéëíïóúèöü", "àçéèíïóòúü", "áðéíóúýþæö"),
    ),
    "iso8859-15": ("àâæçéèêëîïôœùûüÿ", "äöåšž"),
    "cp1250": ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž", "ëç"),
    "iso8859-2": ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž"),
    "cp1254": ("çğıöşüâîûi\u0307",),  # noqa: RUF001
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"),
    "mac-roman": ("äöüß", "àâæçéèêëîïôœùûüÿ", "áéíñóúü", "àáâãçéêíóôõúü", "àèéìòù", "åäöé", "æøåéöäü"),
}

#: Signs that all these languages use.
_SIGNS = "\u00a0\u00ad‘’‚“”„«»‹›–—…•·¡¿§©®™°ªº²³½¼¾×±µ€£´"  # noqa: RUF001


def decode(content: bytes, name: str, last: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Decode the text of a file.

    Parameters
    ----------
    name : str
        The file's name in errors.
    last : str, optional
        The encoding to take if none can be determined.

    Returns
    -------
    text : str
        The text, without a byte order mark.
    notices : tuple of str
        The encoding, if it was guessed, and whether bytes are lost.

    Raises
    ------
    OctavoError
        The file is not text, or its encoding cannot be determined.
    """
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            try:
                return content.decode(encoding), ()
            except UnicodeDecodeError as problem:
                raise OctavoError(f"{name} begins as {encoding} text but is damaged: save it as UTF-8.") from problem
    content = content.removeprefix(codecs.BOM_UTF8)
    if is_wide(content):
        encoding = "utf-16-le" if content[1::2].count(0) > content[::2].count(0) else "utf-16-be"
        with suppress(UnicodeDecodeError):
            if not _CONTROLS.search(text := content.decode(encoding)):
                return text, ()
        raise _no_text(name)
    try:
        return content.decode(), ()
    except UnicodeDecodeError as problem:
        if len(content) - len(content.translate(None, _CONTROL_BYTES)) > _MOST_CONTROLS * len(content):
            raise _no_text(name) from problem
        line = content.count(b"\n", 0, problem.start) + 1
        where = f"{name} is not UTF-8 text: byte 0x{content[problem.start]:02x} in line {line}."
    if is_damaged_utf_8(content):
        return decode_as("utf-8", content, name)
    guessed = _guess(content) or last
    if guessed is None:
        if loses_little(content, "utf-8"):
            return decode_as("utf-8", content, name)
        raise OctavoError(f"{where} Nor can another encoding be told: give its `encoding`, or save it as UTF-8.")
    text, notices = decode_as(guessed, content, name)
    notice = f"{name} is read as {guessed}: give its `encoding`, or save it as UTF-8, if that is wrong."
    return text, (notice, *notices)


def decode_as(encoding: str, content: bytes, name: str) -> tuple[str, tuple[str, ...]]:
    """Decode a text in an encoding; what is not in that encoding becomes �, with a notice."""
    with suppress(UnicodeDecodeError):
        return content.decode(encoding), ()
    text = content.decode(encoding, errors="replace")
    line = text.count("\n", 0, max(text.find("\ufffd"), 0)) + 1
    known = "UTF-8" if encoding == "utf-8" else encoding
    return text, (f"{name} has bytes that are not {known}, the first in line {line}: they are read as �.",)


def named_encoding(name: str) -> str | None:
    """Return the encoding that browsers take for a name, which may have more characters; None for an unknown name."""
    name = name.strip(" \t\r\n\"'").lower()
    for known in (name, re.sub(r"^x-|-[ie]$", "", name), re.sub(r"^(?:windows|dos|ibm)-?", "cp", name)):
        with suppress(LookupError, UnicodeError, ValueError):
            encoding = codecs.lookup(known).name
            if encoding not in _OF_PYTHON:
                "".encode(encoding)  # raises LookupError for a codec that is not of texts
                return _WIDER.get(encoding, encoding)
    return None


def in_utf_8(content: bytes, encoding: str, name: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a text of a known encoding in UTF-8, marked as such, and notices."""
    text, notices = decode_as(encoding, content, name)
    return codecs.BOM_UTF8 + text.removeprefix("\ufeff").encode(errors="replace"), notices


def loses_little(content: bytes, encoding: str) -> bool:
    """Return whether a text is in an encoding, except for a few bytes."""
    text = content.decode(encoding, errors="replace")
    return text.count("\ufffd") <= _MOST_LOST * len(text)


def is_wide(content: bytes) -> bool:
    """Return whether a text is in UTF-16 or UTF-32, in which Latin letters have many null bytes."""
    return content.startswith(tuple(_BYTE_ORDER_MARKS)) or content.count(0) > len(content) // 4


def looks_like_text(beginning: bytes) -> bool:
    """Return whether a file's beginning is text, perhaps in an encoding yet unknown."""
    if beginning.startswith(tuple(_BYTE_ORDER_MARKS)):
        return True
    if is_wide(beginning):
        encoding = "utf-16-le" if beginning[1::2].count(0) > beginning[::2].count(0) else "utf-16-be"
        return not _CONTROLS.search(beginning.decode(encoding, errors="ignore"))
    return len(beginning) - len(beginning.translate(None, _CONTROL_BYTES)) <= _MOST_CONTROLS * len(beginning)


def _no_text(name: str) -> OctavoError:
    """Return the error that lists the kinds of files octavo reads."""
    return OctavoError(f"{name} is not text: {READS}")


def is_damaged_utf_8(content: bytes) -> bool:
    """Return whether a text is UTF-8 except for some bytes: another encoding would get all its letters wrong."""
    text = content.decode(errors="replace")
    n_whole = len(re.findall("[^\0-\x7f\ufffd]", text))
    return n_whole > _LEAST_WHOLE * (n_whole + text.count("\ufffd"))


def is_utf_8(content: bytes) -> bool:
    """Return whether a text has letters beyond ASCII, all in UTF-8."""
    with suppress(UnicodeDecodeError):
        return not content.isascii() and bool(content.decode())
    return False


def _guess(content: bytes) -> str | None:
    """Guess the encoding of a text; None if none or several are possible."""
    sample = content[:_SAMPLE]
    if len(sample) < len(content):  # do not end within a character
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    return _japanese(sample) or _by_language(sample) or _by_common_characters(sample)


def _by_language(sample: bytes) -> str | None:
    """Return the encoding in which a text is of a language, or the only one that it can have; else None."""
    from charset_normalizer import from_bytes

    found = list(from_bytes(sample))
    best = found[0] if found else None
    if best is None or best.chaos > _MOST_CHAOS or _CONTROLS.search(str(best)) or _is_latin(str(best)):
        return _latin(sample)
    if not best.coherence:  # no language is recognised in it: other encodings may be as good
        is_known = len(sample) >= _LEAST and all(str(other) == str(best) for other in found)
        return best.encoding.replace("_", "-") if is_known else None
    return best.encoding.replace("_", "-")


def _by_common_characters(sample: bytes) -> str | None:
    """Return the only encoding in which a text has common characters of Chinese, Japanese or Korean; else None."""
    fitting = []
    for encoding, (plain, first, last) in _COMMON.items():
        with suppress(UnicodeDecodeError):
            wide = re.findall(r"[^\W\d_\0-\x7f]", sample.decode(encoding))
            n_common = sum(first <= character.encode(plain, errors="ignore") <= last for character in wide)
            if wide and n_common >= _LEAST_COMMON * len(wide):
                fitting.append(encoding)
                if encoding == "cp949" and len(set(wide)) >= _MANY_KOREAN:
                    return encoding
    return fitting[0] if len(fitting) == 1 else None


def _japanese(sample: bytes) -> str | None:
    """Return the encoding of a text with kana: Japanese, which is easily taken for Chinese."""
    for encoding in ("cp932", "euc-jp"):
        with suppress(UnicodeDecodeError):
            wide = re.findall(r"[^\0-\x7f]", sample.decode(encoding))
            n_kana = sum("\u3041" <= character <= "\u30ff" for character in wide)
            if n_kana >= _LEAST_KANA * len(wide):
                return encoding
    return None


def _is_latin(text: str) -> bool:
    """Return whether most letters of a text beyond ASCII are Latin, or there are none."""
    letters = "".join(re.findall(r"[^\W\d_]", text))
    n_latin = len(re.findall("[\x80-\u024f\u1e00-\u1eff]", letters))
    return n_latin >= len(re.findall("[^\0-\x7f]", letters)) - n_latin


def _is_odd(pair: str) -> bool:
    """Return whether a capital follows a small letter: one encoding's signs are another's capitals."""
    return pair[0].islower() and pair[1].isupper()


def _latin(sample: bytes) -> str | None:
    """Return the only encoding in which a text has the letters of one language; None if there are several."""
    texts: dict[str, str] = {}
    for encoding, languages in _LATIN_LETTERS.items():
        if texts and encoding == "mac-roman":
            break
        with suppress(UnicodeDecodeError):
            text = sample.decode(encoding)
            others = Counter(re.findall(r"[^\0-\x7f]", text.lower()))
            most = _MOST_STRAY * others.total() - sum(map(_is_odd, re.findall(r"[^\W\d_][^\0-\x7f]", text)))
            if any(sum(others[char] for char in others if char not in own + _SIGNS) <= most for own in languages):
                texts.setdefault(text, encoding)
    return next(iter(texts.values())) if len(texts) == 1 else None
