"""Write PDF files: text at coordinates, in the fonts that every reader has, with outlines, labels and encryption."""

import hashlib
import math
import re
import unicodedata
import zlib
from collections import Counter
from dataclasses import replace

import pypdfium2

from octavo.documents.ocr.recognition import Recognition
from octavo.documents.pdf.pdf import extract_pdf
from octavo.settings import Extraction

#: Lines of a column of 240 points, and of a page of 480, in 10-point letters.
NARROW = [
    "The keeper of the lighthouse wrote down each ship",
    "that passed, with her port and what she carried,",
    "and when the fog lay on the sound he rang the bell",
    "each quarter of an hour until it lifted, though no",
    "one but the seals could hear it in the winter gale.",
    "So the years went by, and the book grew heavy with",
]
WIDE = [f"{first} {second}" for first, second in zip(NARROW, NARROW[1:] + NARROW[:1], strict=True)]

#: Words of numbers of pages, such as "page 1 of 9".
PAGE_WORDS = {"page", "seite", "of", "von"}

FONTS = {
    "text": "Helvetica",
    "bold": "Helvetica-Bold",
    "code": "Courier",
    "hebrew": "Helvetica",
    "arabic": "Helvetica",
    "symbols": "Symbol",
    "boxes": "Wingdings-Regular",
    "icons": "FontAwesome5Free-Solid",
    "computer-modern": "SFBX1000",
    "nimbus": "NimbusRomNo9L-Medi",
    "italic": "Helvetica-Oblique",
    "serif": "Times-Roman",
    "groff": "Times-Roman",
    "groff-bold": "Times-Bold",
}

#: Width of stems that fonts state: groff states one of bold fonts for all of Times.
STEMS = {"groff": 129, "groff-bold": 138}

#: Encodings of fonts that say which Unicode their codes are; "private" is U+F000 and on, as for symbols.
CODE_PAGES = {"hebrew": "cp1255", "arabic": "cp1256", "symbols": "private", "boxes": "private", "icons": "private"}
#: A font that is not in the file.
CHINESE_FONT = (
    b"<< /Type /Font /Subtype /Type0 /BaseFont /SimSun-GBK-EUC-H /Encoding /GBK-EUC-H /DescendantFonts [%d 0 R] >>",
    b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /SimSun /CIDSystemInfo << /Registry (Adobe) /Ordering (GB1) "
    b"/Supplement 2 >> /DW 1000 /FontDescriptor << /Type /FontDescriptor /FontName /SimSun /Flags 4 "
    b"/FontBBox [0 -200 1000 800] /ItalicAngle 0 /Ascent 800 /Descent -200 /StemV 80 /CapHeight 700 >> >>",
)

#: What helps with pages without text, whether tesseract is installed or not.
HELPS = r"(install tesseract .*, then )?--ocr recognises their text\."
_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


def read(writer, password=None):
    """What octavo reads of a file; what it leaves out it must tell."""
    content = writer.content()
    document = extract_pdf(content, "report.pdf", Recognition(b"", "", Extraction(password)))
    assert untold(content, document, password) == lost(content, document, password) == {}
    return document


def lost(content, document, password=None):
    """Return the words of each page that are drawn, but neither in the text nor in what `octavo read --all` adds."""
    whole = "\n".join([document.text, *document.left_out])
    return untold(content, replace(document, text=whole, notices=()), password)


def untold(content, document, password=None):
    """Return the words of each page that are drawn but are not in the text, if no notice names the page.

    Each distinct line must be there, but for the page's own number: in one piece, or else word by word, numbers as
    often as they are drawn. PDFium's words may be parts of words, such as those beside a hyphen at the end of a line,
    so only the order of letters counts.
    """
    left = Counter(_words(document.text))
    stream = "".join(_words(document.text))
    with pypdfium2.PdfDocument(content, password=password) as pdf:
        pages = [
            [_words(line) for line in page.get_textpage().get_text_range().splitlines() if _words(line)] for page in pdf
        ]
        labels = [pdf.get_page_label(number) for number in range(len(pdf))]
    counted = set.intersection(*(_ends(lines, number) for number, lines in enumerate(pages))) if pages[2:] else set()
    lost, seen = {}, set()
    for number, (lines, label) in enumerate(zip(pages, labels, strict=True)):
        own = {str(number + 1), label, *(str(number + first) for first in counted)}
        missing = []
        for line in lines:
            key = tuple(word for word in line if word not in own)
            if key not in seen and "".join(key) not in stream and not _is_page_number(line, own):
                missing += [word for word in key if not (left[word] > 0 if word.isdecimal() else word in stream)]
                left.subtract(key)
            seen.add(key)
        if missing and not any(_names(notice, own, len(pages)) for notice in document.notices):
            lost[number + 1] = missing
    return lost


def _words(text):
    return re.findall(r"\d+|[^\W\d]+", unicodedata.normalize("NFKC", text))


def _ends(lines, number):
    """Return which number the first page has, if one that begins or ends a line counts pages."""
    return {int(word) - number for line in lines for word in (line[0], line[-1]) if word.isdecimal()}


def _is_page_number(words, own):
    """Tell whether a line is only the page's own number and what names it."""
    return bool(own & set(words)) and all(word.isdigit() or word.lower() in PAGE_WORDS | own for word in words)


def _names(notice, own, n_pages):
    """Tell whether a notice names a page, or all pages."""
    everywhere = "on its page" if n_pages == 1 else f"on its {n_pages} pages"
    return everywhere in notice or bool(own & set(re.findall(r"\w+", notice)))


def lines(texts, x=60, y=700, step=13, **style):
    """Texts below one another, as PdfWriter takes them."""
    return [(x, y - i * step, text, *style.values()) for i, text in enumerate(texts)]


def seen(text):
    """Hebrew or Arabic as it is drawn, from left to right."""
    return text[::-1]


class PdfWriter:
    """A file with pages of 595 x 842 points.

    `password`: encrypts it, by RC4 of 40 bits; `catalog` and `resources` are further entries of these; `others` are
    further objects, by their numbers from 500 on: dictionaries, or (entries, data) of streams
    """

    def __init__(self, password=None):
        self.pages, self.outline, self.labels, self.password = [], [], None, password
        self.catalog, self.resources, self.others = "", "", {}

    def page(self, *texts, image=False, rotate=0, box="0 0 595 842", under="", drawn="", notes=""):
        """under, drawn : other operators, before and after the texts; notes : annotations, fields of forms among them

        texts : (x, y, text) or (x, y, text, size, font) or (x, y, text, size, font, degrees or four of a matrix)"""
        self.pages.append((texts, image, rotate, box, under, drawn, notes))
        return self

    def content(self):
        """The file's bytes."""
        n_pages = len(self.pages)
        fonts = 3  # numbers of objects: catalog, pages, fonts, then pages and their contents
        first = fonts + len(FONTS) + 1 + len(CODE_PAGES) + 4
        kids = " ".join(f"{first + 2 * i} 0 R" for i in range(n_pages))
        catalog = f"/Type /Catalog /Pages 2 0 R {self.catalog or '/AcroForm << /Fields [] >>'}"
        objects = {2: f"<< /Type /Pages /Count {n_pages} /Kids [{kids}] >>".encode()}
        picture = fonts + len(FONTS)
        maps = {name: picture + 1 + i for i, name in enumerate(CODE_PAGES)}
        for i, (name, base) in enumerate(FONTS.items()):
            unicode = f"/ToUnicode {maps[name]} 0 R" if name in maps else ""
            stem = f"/FontDescriptor << /FontName /{base} /Flags 4 /StemV {STEMS[name]} >>" if name in STEMS else ""
            objects[fonts + i] = (
                f"<< /Type /Font /Subtype /Type1 /BaseFont /{base} /Encoding /WinAnsiEncoding {unicode} {stem} >>"
            ).encode()
        for name, number in maps.items():
            objects[number] = self._stream(number, _unicode_map(CODE_PAGES[name]))
        objects[picture] = self._stream(
            picture,
            b"\x80" * 64,
            "/Type /XObject /Subtype /Image /Width 8 /Height 8 /ColorSpace /DeviceGray /BitsPerComponent 8",
        )
        glyph = picture + len(CODE_PAGES) + 1
        objects[glyph] = self._stream(glyph, b"600 0 0 0 500 700 d1 0 0 500 700 re f")
        objects[glyph + 1] = _unclear_font(glyph)
        objects[glyph + 2], objects[glyph + 3] = CHINESE_FONT[0] % (glyph + 3), CHINESE_FONT[1]
        used = f"/unclear {glyph + 1} 0 R /chinese {glyph + 2} 0 R " + " ".join(
            f"/{name} {fonts + i} 0 R" for i, name in enumerate(FONTS)
        )
        for i, (texts, image, rotate, box, under, drawn, notes) in enumerate(self.pages):
            number = first + 2 * i
            objects[number] = (
                f"<< /Type /Page /Parent 2 0 R /MediaBox [{box}] /Rotate {rotate} /Contents {number + 1} 0 R "
                f"/Annots [{notes}] "
                f"/Resources << /Font << {used} >> /XObject << /Im {picture} 0 R >> {self.resources} >> >>"
            ).encode()
            objects[number + 1] = self._stream(
                number + 1, f"{under}\n".encode() + _drawn(texts, image) + drawn.encode()
            )
        last = first + 2 * n_pages
        if self.outline:
            catalog += f" /Outlines {last} 0 R"
            items = range(last + 1, last + 1 + len(self.outline))
            objects[last] = f"<< /Type /Outlines /First {items[0]} 0 R /Last {items[-1]} 0 R >>".encode()
            for number, (title, page) in zip(items, self.outline, strict=True):
                around = (f" /Prev {number - 1} 0 R" if number > items[0] else "") + (
                    f" /Next {number + 1} 0 R" if number < items[-1] else ""
                )
                target = f"/Dest [{first + 2 * page} 0 R /Fit]"
                objects[number] = f"<< /Title ({title}) /Parent {last} 0 R {target}{around} >>".encode()
        if self.labels:
            catalog += f" /PageLabels << /Nums [{self.labels}] >>"
        objects[1] = f"<< {catalog} >>".encode()
        for number, each in self.others.items():
            objects[number] = each.encode() if isinstance(each, str) else self._stream(number, each[1], each[0])
        return self._file(objects)

    def _stream(self, number, data, entries=""):
        data = self._encrypted(number, zlib.compress(data))
        return f"<< {entries} /Filter /FlateDecode /Length {len(data)} >>\nstream\n".encode() + data + b"\nendstream"

    def _file(self, objects):
        out, places = b"%PDF-1.4\n", {}
        for number in sorted(objects):
            places[number] = len(out)
            out += f"{number} 0 obj\n".encode() + objects[number] + b"\nendobj\n"
        size, start = max(objects) + 1, len(out)
        out += f"xref\n0 {size}\n0000000000 65535 f \n".encode()
        for number in range(1, size):
            out += f"{places.get(number, 0):010d} 00000 {'n' if number in places else 'f'} \n".encode()
        security = ""
        if self.password is not None:
            owner, user = self._owner().hex(), _rc4(self._key(), _PADDING).hex()
            security = f" /Encrypt << /Filter /Standard /V 1 /R 2 /O <{owner}> /U <{user}> /P -4 >> /ID [<00> <00>]"
        return out + f"trailer\n<< /Size {size} /Root 1 0 R{security} >>\nstartxref\n{start}\n%%EOF\n".encode()

    def _padded(self):
        return (self.password.encode() + _PADDING)[:32]

    def _owner(self):
        return _rc4(hashlib.md5(self._padded()).digest()[:5], self._padded())

    def _key(self):
        permissions = (-4 & 0xFFFFFFFF).to_bytes(4, "little")
        return hashlib.md5(self._padded() + self._owner() + permissions + b"\0").digest()[:5]

    def _encrypted(self, number, data):
        if self.password is None:
            return data
        key = hashlib.md5(self._key() + number.to_bytes(3, "little") + b"\0\0").digest()[:10]
        return _rc4(key, data)


def _drawn(texts, image):
    """The operators that draw a page."""
    parts = [b"q 300 0 0 300 100 300 cm /Im Do Q"] if image else []
    for x, y, text, *style in texts:
        size, font, degrees = (*style, *(10, "text", 0)[len(style) :])
        matrix = degrees if isinstance(degrees, tuple) else _turned(degrees)
        escaped = (
            text.replace("\\", "\\\\")
            .replace("(", "\\(")
            .replace(")", "\\)")
            .encode(CODE_PAGES.get(font, "cp1252").replace("private", "latin-1"))
        )
        placed = " ".join(str(number) for number in (*matrix, x, y))
        parts.append(f"BT /{font} {size} Tf {placed} Tm (".encode() + escaped + b") Tj ET")
    return b"\n".join([*parts, b""])


def _unclear_font(glyph):
    """A font that draws all letters but does not name them."""
    names, numbers = " ".join(f"/g{code}" for code in range(33, 127)), "600 " * 94
    procedures = " ".join(f"/g{code} {glyph} 0 R" for code in range(33, 127))
    return (
        f"<< /Type /Font /Subtype /Type3 /FontBBox [0 0 600 800] /FontMatrix [0.001 0 0 0.001 0 0] /FirstChar 33 "
        f"/LastChar 126 /Widths [{numbers}] /CharProcs << {procedures} >> "
        f"/Encoding << /Type /Encoding /Differences [33 {names}] >> >>"
    ).encode()


def _turned(degrees):
    cos, sin = round(math.cos(math.radians(degrees)), 4), round(math.sin(math.radians(degrees)), 4)
    return cos, sin, -sin, cos


def _unicode_map(code_page):
    """A CMap from bytes to Unicode."""
    is_private = code_page == "private"
    letters = {
        byte: chr(0xF000 + byte) if is_private else bytes([byte]).decode(code_page, "ignore") for byte in range(32, 256)
    }
    lines = "\n".join(f"<{byte:02x}> <{ord(letter):04x}>" for byte, letter in letters.items() if letter)
    return (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /M def /CMapType 2 def "
        f"1 begincodespacerange <00> <ff> endcodespacerange {lines.count(chr(10)) + 1} beginbfchar\n{lines}\nendbfchar "
        "endcmap end end"
    ).encode()


def _rc4(key, data):
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)
