r"""Test what becomes of RTF as Word, LibreOffice, pandoc and simple programs write it."""

import pytest

from octavo.documents.office.rtf import extract_rtf

HEAD = rb"{\rtf1\ansi\deff0{\fonttbl{\f0 Arial;}{\f1\fmodern Courier New;}}{\stylesheet{\s1 heading 1;}{\s7 Title;}}"


def read(rtf):
    return extract_rtf(HEAD + rtf + b"}", "a.rtf")


def row(*cells, edges=b"\\cellx2000\\cellx4000", left=b""):
    return rb"\trowd" + left + edges + rb"\pard\intbl " + b"".join(cell + rb"\cell " for cell in cells) + rb"\row "


@pytest.mark.parametrize(
    "note",
    [
        rb"{\super\chftn}{\*\footnote\chftn\~\plain\pard {\pard \ql Paid by the town.\par}}",  # pandoc
        rb"{\super \chftn{\*\footnote\chftn\pard\plain \s20{ }{\loch Paid by the town.}}}",  # LibreOffice
        rb"{\cs16\super \chftn {\footnote \pard\plain \s15{\cs16\super \chftn } Paid by the town.}}",  # Word
        rb"{\super\chftn}{\footnote\ftnalt{\super\chftn} Paid\par by the town.\par}",
        rb"{\footnote \pard\intbl Paid by the {\b town}.}",
    ],
)
def test_notes_stand_where_they_are_referred_to(note):
    assert read(rb"\pard The lamp burns." + note + rb"\par Next.\par").text == (
        "The lamp burns. (Paid by the town.)\n\nNext.\n"
    )


@pytest.mark.parametrize(
    ("rtf", "text"),
    [
        (rb"10{\super 5} l, 10{\super\u8722 ?4} g", "10^5 l, 10^\u22124 g"),
        (rb"2{\super n}{\super +1}, x{\sub i,j}, H{\sub 2}O", "2^{n+1}, x_{i,j}, H2O"),
        (
            rb"10\super 6\nosupersub  ships, 10{\up6 7}, 10{\up0 7}, 10\super 8\plain  boats",
            "10^6 ships, 10^7, 107, 10^8 boats",
        ),
        (rb"the 19{\super th} of {\dn6 a}b", "the 19th of ab"),
        (rb"log{\sub 2}8", "log_28"),
    ],
)
def test_powers(rtf, text):
    assert read(rb"\pard " + rtf + rb"\par").text == text + "\n"


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (rb"{\mmath {\*\moMath {\mr\mscr0\msty2 F=}{\mf{\mfPr{\mctrlPr }}{\mnum {\mr m}}{\mden {\mr t}}}}}"
         rb"{\mmathPict x}",
         r"$F=\frac{m}{t}$"),
        (rb"{\*\moMath{\msSup{\me{\mr x}}{\msup{\mr 2}}}}", "$x^{2}$"),
        (rb"{\*\moMathPara{\*\moMathParaPr{\mjc center}}{\*\moMath{\mrad{\mdeg}{\me{\mr a}}}}}", r"$\sqrt{a}$"),
        (rb"{\*\moMath{\mnary{\mnaryPr{\mchr \u8721 ?}}{\msub{\mr i}}{\msup{\mr n}}{\me{\mr i}}}}",
         "$\u2211_{i}^{n} i$"),
        (rb"{\*\moMath{\md{\mdPr{\mbegChr [}{\mendChr ]}}{\me{\mr\mnor a < b}}}}", "$[a < b]$"),
    ],
)  # fmt: skip
def test_formulas_are_written_in_a_line(formula, text):
    assert read(rb"\pard The load is " + formula + rb" at noon.\par").text == f"The load is {text} at noon.\n"


@pytest.mark.parametrize(
    "rtf",
    [
        rb"The rent is {\deleted\revdttmdel-2015295488 \loch 900}{\revised\revdttm-2015295488 1,250} kroner.",
        rb"The rent is {\v 900}1,250 kroner.",
        rb"The rent is \v 900\v0 1,250 kroner.",
        rb"The rent is \deleted 90\revauthdel2 0\deleted0 1,250 kroner.",
        rb"The rent is {\deleted 9\u48 ?0}1,250 kroner.",
        rb"The rent is {\mvf\mvauth1\mvdate12 900 }1,250 kroner.",
    ],
)
def test_hidden_and_deleted_text_is_left_out_and_counted(rtf):
    document = read(rb"\pard " + rtf + rb"\par")
    assert document.text == "The rent is 1,250 kroner.\n"
    kind = "deleted" if b"deleted" in rtf or b"mvf" in rtf else "hidden"
    assert document.notices == (f"a.rtf has 1 {kind} passage: octavo leaves it out.",)


def test_pictures_are_counted_once():
    word = rb"{\*\shppict{\pict\pngblip 00}}{\nonshppict{\pict\wmetafile8 00}}{\pict 00}"
    assert read(rb"\pard a" + word + rb"\par").notices == ("a.rtf has 2 pictures: octavo leaves them out.",)


@pytest.mark.parametrize(
    "heading",
    [
        rb"\pard\plain \s1\ilvl0\outlinelevel0{\listtext\pard\plain \tab}\ls1 {\loch Harbour}\par",
        rb"\pard\s1 Harbour\par",
        rb"{\pard \ql \outlinelevel0 \b Harbour\par}",
        rb"\pard\plain\s7\qc Harbour\par",
        rb"\pard\s1{\*\bkmkstart harbour}Harbour{\*\bkmkend harbour}{\footnote\pard\plain }\par",
    ],
)
def test_headings_of_several_programs(heading):
    document = read(heading + rb"\pard\plain The lamp burns.\par")
    assert document.text == "# Harbour\n\nThe lamp burns.\n"
    assert document.place(20).heading == "Harbour"


def test_a_style_that_is_based_on_a_heading_is_one():
    styles = rb"{\stylesheet{\s0 Normal;}{\s1\sbasedon0 heading 2;}{\s20\sbasedon1 Board;}{\s21\sbasedon0 Plain;}}"
    document = read(styles + rb"\pard\s20 Harbour\par\pard\s21 Open.\par")
    assert document.text == "## Harbour\n\nOpen.\n"


def test_a_column_ends_a_paragraph():
    assert read(rb"\pard Left.\column Right.\par").text == "Left.\n\nRight.\n"


WIDE = rb"\cellx4000\cellx6000"
NARROW = rb"\cellx2000\cellx4010\cellx6000"


@pytest.mark.parametrize(
    ("rows", "table"),
    [
        ([row(b"T", b"B", edges=WIDE), row(b"1", b"2", b"3", edges=NARROW)], ["T | T | B", "1 | 2 | 3"]),
        ([row(b"1", b"2", b"3", edges=NARROW), row(b"4", b"5", edges=WIDE)], ["1 | 2 | 3", "4 | 4 | 5"]),
        ([row(b"a", b"b"), row(b"c", left=rb"\trleft2000", edges=rb"\cellx4000")], ["a | b", " | c"]),
        ([row(b"a", b"b", edges=rb"\clvmgf\cellx2000\cellx4000"),
          row(b"", b"c", edges=rb"\clvmrg\cellx2000\cellx4000")],
         ["a | b", "a | c"]),
        ([row(b"Shed", rb"{\listtext\pard\plain \'b7\tab}oars\par\pard\intbl{\listtext\pard\'b7\tab}nets"),
          row(b"Tower", b"Oil")],
         ["Shed | - oars - nets", "Tower | Oil"]),
        ([rb"{\trowd\cellx2000\cellx4000\pard\intbl a\cell b\cell\trowd\cellx2000\cellx4000\row}", row(b"c", b"d")],
         ["a | b", "c | d"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("after", [rb"", rb"\pard "])
def test_cells_stand_in_their_columns_and_text_after_a_table_stays(rows, table, after):
    head, *others = (f"| {line} |" for line in table)
    rule = "|" + " --- |" * (head.count(" | ") + 1)
    text = read(b"".join(rows) + after + rb"Closed.\par The key.\par").text
    assert text == "\n".join([head, rule, *others, "", "Closed.", "", "The key.", ""])


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (rb"{\*\formfield{\fftype2\ffres1{\*\ffname q}{\*\ffl North}{\*\ffl South}}}", "South"),
        (rb"{\*\formfield{\fftype2\ffdefres0\ffres25{\*\ffl North}{\*\ffl South}}}", "North"),
        (rb"{\*\formfield{\fftype1\ffres1}}", "[x]"),
        (rb"{\*\formfield{\fftype1\ffres25\ffdefres0}}", "[ ]"),
        (rb"{\*\formfield{\fftype0{\*\ffname t}}}", "Ane"),
    ],
)
def test_forms_show_what_was_chosen(field, text):
    result = rb"}{\fldrslt Ane}}" if b"fftype0" in field else rb"}{\fldrslt }}"
    assert read(rb"\pard Quay: {\field{\*\fldinst FORM" + field + result + rb".\par").text == f"Quay: {text}.\n"


def test_letterheads_are_read_once_without_numbers_of_pages():
    page = rb"{\field{\*\fldinst  PAGE }{\fldrslt 1}}"
    head = rb"{\header\pard Harbour Board\tab Page " + page + rb"\par}{\headerf\pard Never shown\par}"
    foot = rb"{\footer\pard\qc - \chpgn  -\par Quay Street 4\par}{\footerl\pard Quay Street 4\par}"
    assert read(head + foot + rb"\pard The rent.\par").text == "Harbour Board\n\nThe rent.\n\nQuay Street 4\n"
    assert read(rb"{\headerf\pard First\par}\titlepg\pard Text.\par").text == "First\n\nText.\n"


def test_code_keeps_its_blanks():
    code = rb"{\pard \f1 def pump():\line     # open\line     start()\par}"
    assert read(rb"\pard Before {\f1 x}.\par " + code + rb"\pard After the code there is more text.\par").text == (
        "Before x.\n\n```\ndef pump():\n    # open\n    start()\n```\n\nAfter the code there is more text.\n"
    )
    assert read(code).text.startswith("def pump():\n")  # a file that is typewritten


@pytest.mark.parametrize(
    ("rtf", "text"),
    [
        (rb"{\i0\b0\*\cs7\cf0 The lamp burns.}\par", "The lamp burns.\n"),  # StarWriter
        (rb"{The lamp \*\cs7 burns.}\par", "The lamp burns.\n"),
        (rb"\*\cs7 The lamp burns.\par", "The lamp burns.\n"),
        (rb"The lamp{\*\unknown  smokes and} burns.\par", "The lamp burns.\n"),
        (b"The lamp{\r\n\\*\\unknown  smokes and} burns.\\par", "The lamp burns.\n"),
    ],
)
def test_only_a_group_is_optional_which_says_so_at_its_beginning(rtf, text):
    assert read(rtf).text == text


def test_hidden_and_deleted_text_beside_each_other_are_told_apart():
    document = read(rb"\pard The {\deleted old {\v lamp}}{\v hidden}{\v  too} lamp{\*\annotation Check.} burns.\par")
    assert (document.text, document.notices) == (
        "The lamp burns.\n",
        ("a.rtf has 1 deleted passage, 1 hidden passage and 1 remark: octavo leaves them out.",),
    )


def test_objects_in_a_text_are_told():
    shown = rb"{\object\objemb{\*\objclass Package}{\*\objdata 0105}{\result {\pict\pngblip 89}}}"
    assert read(rb"The lamp burns." + shown + rb"\par").notices == (
        "a.rtf has 1 embedded object and 1 picture: octavo leaves them out.",
    )


def test_numbered_lists_within_lists_keep_their_numbers():
    items = [(0, "1."), (1, "a)"), (1, "b)"), (0, "2.")]
    rtf = b"".join(rb"{\listtext %s\tab}\ls1\ilvl%d Item\par " % (label.encode(), level) for level, label in items)
    assert read(rb"\pard" + rtf + rb"\pard End.\par").text == ("1. Item\n\na) Item\n\nb) Item\n\n2. Item\n\nEnd.\n")


def test_a_hidden_shape_is_left_out_and_counted():
    shape = rb"{\shp{\*\shpinst{\sp{\sn fHidden}{\sv %b}}{\shptxt \pard %b\par}}}"
    bare = rb"{\shp{\*\shpinst{\sp{\sn fLine}{\sv 1}}}}"
    document = read(rb"\pard Log\par " + bare + shape % (b"1", b"gone") + shape % (b"0", b"shown"))
    assert document.text == "Log\n\nshown\n"
    assert document.notices == ("a.rtf has 1 hidden shape: octavo leaves it out.",)
