"""Test what becomes of texts, in Markdown or without marks, in any encoding."""

import codecs

import pytest

from octavo.documents.left_out import LeftOut
from octavo.documents.markdown import document_of
from octavo.documents.text.plain_text import extract_text
from octavo.errors import OctavoError

RUSSIAN = "Смотритель маяка записывал каждый корабль, что проходил мимо. " * 20
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy, když mlha ležela nad mořem a zvon vyzváněl. " * 20
GERMAN = "Der Wärter schrieb jedes Schiff auf, das über die Straße fuhr, und läutete schön im Nebel. " * 20
SPANISH = "El farero anotó cada barco que pasó por allí: ¿quién tañía la campana aquella mañana? " * 20
QUOTED = "“The keeper’s log,” he said — and slept. " * 20  # noqa: RUF001
FRENCH = "Le gardien du phare notait chaque navire qui passait près de l'île, même l'été, où tout était calmé. " * 20
CHINESE = "灯塔看守人记下了每一艘经过的船只，以及它的港口和货物。冬天的夜里，他在雾中敲钟。" * 20  # noqa: RUF001
JAPANESE = "灯台守は島のそばを通るすべての船を書き留めた。その一隻はペトレル号と呼ばれていた。" * 20


@pytest.mark.parametrize("text", ["A ship.\r\nAnd\fmore \t\n", "\u2028é\n\n\n", "a few\0b"])
def test_utf_8_stays_as_it_is(text):
    for mark in (b"", codecs.BOM_UTF8):
        document = extract_text(mark + text.encode(), "log.txt")
        assert (document.text, document.notices) == (text, ())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be"])
def test_other_forms_of_unicode(encoding):
    text = "The keeper of the island wrote down each ship. " * 10
    assert extract_text(text.encode(encoding), "log.txt").text == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (FRENCH, "cp1252"),
        (GERMAN, "cp1252"),
        (GERMAN, "mac-roman"),
        (SPANISH, "cp1252"),
        (QUOTED, "cp1252"),
        (CZECH, "cp1250"),
        (CZECH, "iso8859-2"),
        (CHINESE, "gb18030"),
        (JAPANESE, "cp932"),
        (JAPANESE, "euc-jp"),
    ],
)
def test_encodings_that_can_be_told_are_told(text, encoding):
    document = extract_text(text.encode(encoding), "log.txt")
    assert document.text == text
    [notice] = document.notices
    assert notice.startswith("log.txt is read as ")


def test_what_cannot_be_told_is_refused():
    message = (
        r"^log\.txt is not UTF-8 text: byte 0x.. in line 2\. Nor can another encoding be told: give its `encoding`, "
        r"or save it as UTF-8\.$"
    )
    for text in (
        b"a\ncaff\xe8, \xe0 la",  # French in one encoding, Slovak in another
        b"a\n" + bytes(range(255, 127, -1)) * 20,
    ):
        with pytest.raises(OctavoError, match=message):
            extract_text(text, "log.txt")
    with pytest.raises(OctavoError, match=r"^log\.txt begins as utf-16 text but is damaged: save it as UTF-8\.$"):
        extract_text(codecs.BOM_UTF16_LE + b"\x00\xd8\x00", "log.txt")


SOME_LOST = "log.txt has bytes that are not UTF-8, the first in line {}: they are read as �."


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"a\n" + FRENCH.encode() + b"\xff" + FRENCH.encode(), f"a\n{FRENCH}�{FRENCH}"),
        (("a\n" + RUSSIAN[:-2]).encode()[:-1], f"a\n{RUSSIAN[:-3]}�"),  # ends within a letter
        (codecs.BOM_UTF8 + b"a\n" + FRENCH.encode() + b"\xff", f"a\n{FRENCH}�"),
        (b"a\n" + b"berth 4 ok\n" * 50 + b"\x81\x8d\n", "a\n" + "berth 4 ok\n" * 50 + "��\n"),
    ],
)
def test_a_few_bad_bytes_are_marked(content, text):
    document, line = extract_text(content, "log.txt"), text.count("\n", 0, text.index("�")) + 1
    assert (document.text, document.notices) == (text, (SOME_LOST.format(line),))


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("名前,年齢,住所\n佐藤太郎,30,東京\n三木英子,25,大阪\n", "cp932"),
        ("船名,積荷,隻数\n桟橋,30,小麦\n", "cp932"),
        ("姓名,年龄,地址\n王小明,30,北京\n李华,25,上海\n", "gb18030"),
        ("이름,나이,주소\n김철수,30,서울\n이영희,25,부산\n", "cp949"),
        ("姓名,年齡,地址\n王小明,30,臺北\n陳大文,25,高雄\n", "big5"),
    ],
)
def test_short_tables_of_east_asia_are_told_by_their_common_characters(text, encoding):
    document = extract_text(text.encode(encoding), "log.csv")
    assert document.text == text
    assert document.notices[0].startswith("log.csv is read as ")


MARKDOWN = """Before.

# Ships #

## *One*: [Petrel](https://example.org)

```python
# no heading
```

Of Leith
========

- a list
---

    # code

####### seven
## C#
#
## `two`
"""


def test_headings_of_markdown_are_places():
    document = document_of(MARKDOWN)
    found = [(place.heading, document.text[place.offset :].split("\n")[0]) for place in document.places]
    assert found == [
        ("Ships", "# Ships #"),
        ("Ships > *One*: Petrel", "## *One*: [Petrel](https://example.org)"),
        ("Of Leith", "Of Leith"),
        ("Of Leith > C#", "## C#"),
        ("Of Leith > two", "## `two`"),
    ]
    assert document.place(3) is None


@pytest.mark.parametrize("line", ["# a" + " " * 50_000 + "b", "# " + "#" * 50_000 + "b", "# " + "[" * 50_000])
def test_no_line_takes_long(line):
    """A search that goes back and forth would hang here."""
    document_of(line)


def test_pages_and_headings_go_together():
    document = document_of("one\n# A\ntwo\n## B\n", [(0, "i"), (4, "ii"), (10, "iii")])
    assert document.places == ((0, "i", None), (4, "ii", "A"), (10, "iii", "A"), (12, "iii", "A > B"))


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r'{"a": "\u0416\u0434\u0438"}', '{"a": "Жди"}'),
        (r'["caf\u00e9 \ud83d\ude00 \u0022 \\u0041 \n\u000a"]', '["café 😀 \\u0022 \\\\u0041 \\n\\u000a"]'),
        (
            r'{"a": "Le caf\u00c3\u00a9 est ferm\u00c3\u00a9 \u00e2\u0080\u0093 oui"}',
            '{"a": "Le café est fermé – oui"}',  # noqa: RUF001
        ),
        ('{"a": "Le cafÃ© est fermÃ© â€” oui"}', '{"a": "Le café est fermé — oui"}'),
        (r'{"a": "\u00ab\u00a0CAF\u00c9\u00bb"}', '{"a": "«\u00a0CAFÉ»"}'),
        (r'{"a": "Zo\u00eb \u00c3\u00a9"}', '{"a": "Zoë Ã©"}'),
        ('{"a": "caf\\u00e9"}\n{"a": "\\u0301"}\n', '{"a": "café"}\n{"a": "\u0301"}\n'),
    ],
)
def test_letters_of_json_are_words(written, text):
    assert extract_text(written.encode(), "log.jsonl").text == text


@pytest.mark.parametrize("written", [r'{"a": "caf\u00e9"', r"see \u00e9", r'x = "\u00e9"'])
def test_escapes_of_other_texts_stay(written):
    assert extract_text(written.encode(), "log.txt").text == written


DATA = "data:image/png;base64," + "iVBORw0KGgo" * 40


@pytest.mark.parametrize(
    ("written", "text", "n_pictures"),
    [
        (f"a ![Chart of *tides*]({DATA}) b", "a ![Chart of *tides*] b", 0),
        (f'a ![]({DATA} "Title") b', "a  b", 1),
        (f"![Chart][1]\n\n[1]: {DATA}\nEnd.\n", "![Chart][1]\n\n[1]:\nEnd.\n", 1),
        (f"![a](<{DATA}>)", "![a]", 0),
        (f"<p><img class=x src=\"{DATA}\" alt='A &amp; B'>b", "<p>![A & B]b", 0),
        (f"<IMG alt='' src='{DATA}'/>", "", 1),
        ("![a](data:image/svg+xml;utf8,%3Csvg%20x%3E)", "![a]", 0),
        (f'{{"logo": "{DATA}"}}', '{"logo": "data:image/png;base64,..."}', 1),
        ("data: a ![b](c.png) data:image/png", "data: a ![b](c.png) data:image/png", 0),
    ],
)
def test_pictures_in_a_text_are_their_descriptions(written, text, n_pictures):
    document = extract_text(written.encode(), "log.md")
    assert document.text == text
    assert document.notices == LeftOut(picture=n_pictures).notices("log.md")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("---\ntitle: Log\ntags: [a, b]\n---\n\nText.\n\n## Tides\n", ["Tides"]),
        ("+++\ntitle = 'Log'\n+++\n# Tides\n", ["Tides"]),
        ("---\r\n# a comment\r\ntitle: Log\r\n...\r\n# Tides\r\n", ["Tides"]),
        ("---\n\nA line\n---\n\n# Tides\n", ["A line", "Tides"]),
        ("title: Log\n---\n# Tides\n", ["title: Log", "Tides"]),
    ],
)
def test_properties_of_a_page_are_no_heading(text, found):
    document = extract_text(text.encode(), "log.md")
    assert document.text == text
    assert [(place.heading or "").rpartition(" > ")[2] for place in document.places] == found
