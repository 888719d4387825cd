"""Test which hyphens of PDFs belong to words."""

import pytest
from helpers.pdf_files import PdfWriter, lines, read

from octavo.documents.pdf.pdf_hyphens import count_words, joined


@pytest.mark.parametrize(
    ("parted", "rest", "expected"),
    [
        ("exam- ple", "", "example"),
        ("over- turned", "They turned over.", "overturned"),
        ("co- operate", "We cooperate.", "cooperate"),
        ("co- operate", "We co-operate.", "co-operate"),
        ("well- known", "", "well-known"),
        ("long- term", "", "long-term"),
        ("har- bour", "", "harbour"),
        ("price- determining", "", "price-determining"),
        ("story- telling", "A story.", "story-telling"),
        ("sto- rytelling", "A story.", "storytelling"),
        ("cloud- free", "A cloud is sugar-free.", "cloud-free"),
        ("agree- ment", "We agree.", "agreement"),
        ("bas\u2010 ket", "", "basket"),
        ("treaty\u2010 maker", "The treaty\u2010maker", "treaty\u2010maker"),
        ("bas\u00ad ket", "", "basket"),
        ("qwe-rtyu-iop", "", "qwe-rtyu-iop"),
        ("www.red-pine-hut.example", "", "www.red-pine-hut.example"),
        ("ka-le-ba", "", "ka-le-ba"),
        ("state-of-the-art", "the state of art", "state-of-the-art"),
        ("Aux-Loss-Free", "", "Aux-Loss-Free"),
        ("self-", "", "self-"),
        ("mail.blue- hill.example", "", "mail.blue-hill.example"),
        ("an alt- müller-hof.example", "", "an alt-müller-hof.example"),
        ("karl- heinz@hof.example", "", "karl-heinz@hof.example"),
        ("hof.example/nord- süd", "", "hof.example/nord-süd"),
        ("part KX- 47-B", "", "part KX-47-B"),
        ("pages 12- 14", "", "pages 12-14"),
        ("Anne- Marie", "", "Anne-Marie"),
        ("It ended. Har- bour", "", "It ended. Harbour"),
        ("ended.So har- bours", "", "ended.So harbours"),
    ],
)
def test_hyphens(parted, rest, expected):
    text = parted.replace(" ", "\n")
    assert joined(text.split("\n"), count_words([text, rest])) == expected


def test_the_words_of_all_pages_tell():
    writer = PdfWriter().page(*lines(["A treaty- ", "maker signs."])).page(*lines(["The Treaty-maker and the maker."]))
    assert read(writer).text.startswith("A treaty-maker signs.")
