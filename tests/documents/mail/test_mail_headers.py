"""Test that headers of mail are read as mail programs show them."""

import base64
from email import message_from_bytes

import pytest

from octavo.documents.mail.mail import extract_mail
from octavo.documents.mail.mail_headers import file_name, header_text, write_in_unicode


def encoded(text, charset, codec=None):
    return f"=?{charset}?B?{base64.b64encode(text.encode(codec or charset)).decode()}?="


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("=?utf-8?Q?R=C3=A5d_om_tau?=", "Råd om tau"),
        (f"{encoded('Råd', 'utf-8')}\n {encoded(' om tau', 'utf-8')}", "Råd om tau"),
        ("=?utf-8?Q?R=C3?= =?utf-8?Q?=A5d?=", "Råd"),  # a letter begins in one word and ends in the next
        (f"Re: {encoded('通知：朱镕', 'gb2312', 'gb18030')}", "Re: 通知：朱镕"),  # noqa: RUF001
        (encoded("“Fog”", "iso-8859-1", "cp1252"), "“Fog”"),
        (encoded("Råd", "x-unknown", "utf-8"), "Råd"),
        ("=?utf-8*nb?Q?R=C3=A5d?= 4", "Råd 4"),
        ("=?iso-8859-1?q?a?=b =?c", "ab =?c"),
        ("=?utf-8?B?UsOl?= <r@example.org>,\r\n\tb@example.org", "Rå <r@example.org>, b@example.org"),
    ],
)
def test_words_in_other_encodings(written, text):
    assert header_text(written) == text


@pytest.mark.parametrize(
    ("charset", "codec"),
    [("iso-8859-1", "latin-1"), ("utf-8", "utf-8"), ("iso-8859-1", "utf-8"), ("us-ascii", "cp1252")],
)
def test_letters_that_are_not_encoded_are_read(charset, codec):
    mail = (
        f"From: Åse Ødegård <a@example.org>\nSubject: Råd om tau\nContent-Type: text/plain; charset={charset}\n\nOk.\n"
    )
    assert (
        extract_mail(mail.encode(codec), "a.eml").text == "# Råd om tau\n\nFrom: Åse Ødegård <a@example.org>\n\nOk.\n"
    )


RUSSIAN = "From: Ева <e@example.org>{}\n\nЖду.\n"  # noqa: RUF001


def test_letters_of_another_alphabet_are_in_the_encoding_of_the_body():
    mail = RUSSIAN.format("\nContent-Type: text/plain; charset=koi8-r").encode("koi8-r")
    assert extract_mail(mail, "a.eml").text == RUSSIAN.format("")


@pytest.mark.parametrize(
    "written",
    [
        b'attachment; filename="R\xe5d.pdf"',
        b'attachment; filename="=?iso-8859-1?Q?R=E5d.pdf?="',
        b"attachment; filename*=iso-8859-1''R%E5d.pdf",
        b"attachment; filename*0*=utf-8''R%C3%A5;\n filename*1=d.pdf",
    ],
)
def test_names_of_attachments(written):
    message = message_from_bytes(b"Content-Disposition: " + written + b"\n\nx")
    write_in_unicode(message)
    assert file_name(message) == "Råd.pdf"
