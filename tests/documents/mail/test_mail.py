"""Test that the text of a mail is what a mail program shows, however its parts are put together."""

import base64
import quopri

import pytest

from octavo.documents.extract import extract_document
from octavo.documents.kinds import text_kind
from octavo.documents.mail.mail import extract_mail

HEAD = b"From: Ane <ane@example.org>\nMIME-Version: 1.0\n"
PDF = 'Content-Type: application/pdf; name="plan.pdf"\nContent-Disposition: {}; filename="plan.pdf"\n\nAAEC\n'
REPORT = "Content-Type: message/delivery-status\n{}\nReporting-MTA: dns; mx.example.org\n\n{}"
FIELDS = "Final-Recipient: rfc822; per@example.org\nDiagnostic-Code: smtp; 552 the mailbox is full\n"


def part(text, kind="text/plain"):
    return f"Content-Type: {kind}; charset=utf-8\n\n{text}\n"


def parts(kind, *each):
    mark = kind.rpartition("/")[2][:3]
    inner = "".join(f"--{mark}\n{one}\n" for one in each)
    return f"Content-Type: {kind}; boundary={mark}\n\n{inner}--{mark}--\n"


def read(body):
    return extract_mail(HEAD + (body.encode() if isinstance(body, str) else body), "a.eml").text


@pytest.mark.parametrize(
    ("mail", "attachments", "texts"),
    [
        (
            parts("multipart/mixed", part("One."), PDF.format("inline"), part("<p>Two.</p>", "text/html")),
            True,
            "One. Two.",
        ),
        (
            parts(
                "multipart/mixed", parts("multipart/alternative", part("A."), part("<p>A.", "text/html")), part("B.")
            ),
            False,
            "A. B.",
        ),
        (
            parts(
                "multipart/signed",
                parts("multipart/mixed", part("A."), PDF.format("attachment"), part("B.")),
                'Content-Type: application/pgp-signature; name="s.asc"\n\nAAEC\n',
            ),
            True,
            "A. B.",
        ),
        (
            parts(
                "multipart/alternative",
                part("The plan."),
                parts("multipart/mixed", part("<p>The plan.", "text/html"), PDF.format("inline")),
            ),
            True,
            "The plan.",
        ),
        (part("Two ropes.", "text/markdown"), False, "Two ropes."),
        (part("Two ropes.", "text/x-unknown"), False, "Two ropes."),
        ('Content-Type: text/plain; name="body.txt"\n\nTwo ropes.\n', False, "Two ropes."),
        (parts("multipart/parallel", part("A."), part("B.")), False, "A. B."),
    ],
)
def test_each_text_that_a_reader_sees_is_read_once_and_each_attachment_named(mail, attachments, texts):
    head, _, body = read(mail).partition("\n\n")
    assert head == "From: Ane <ane@example.org>" + "\nAttachments: plan.pdf" * attachments
    assert body.split() == texts.split()


BILL = "<h1>Bill 204</h1><p>The sum of 1,250 kroner is due on 9 June.</p>"


@pytest.mark.parametrize(
    ("plain", "page", "is_page"),
    [
        ("This message needs a reader of HTML.", BILL, True),
        ("", BILL, True),
        ("Bill 204\n\nThe sum of 1,250", BILL, True),
        ("Bill 204\n\nThe sum of 1,250 kroner is due on 9 June. https://example.org/unsubscribe", BILL, False),
        ("The sum of 1,250 kroner is due on 9 June, and not before.", "<p>See the text.</p>", False),
        ("This message needs a reader of HTML.", "<h2>Bill 204</h2><p>料金は1,250円です。支払いは六月九日まで。", True),
    ],
)
def test_of_alternatives_the_fuller_is_read(plain, page, is_page):
    text = read(parts("multipart/alternative", part(plain), part(page, "text/html")))
    assert ("## Bill 204" in text) == is_page
    assert "1,250" in text


FORWARDED = "From: Mia <mia@example.org>\nSubject: Old anchor\n\nThe anchor costs 900 kroner, = all.\n"


@pytest.mark.parametrize(
    ("encoding", "inner"),
    [
        ("7bit", FORWARDED),
        ("base64", base64.encodebytes(FORWARDED.encode()).decode()),
        ("quoted-printable", quopri.encodestring(FORWARDED.encode()).decode()),
    ],
)
def test_a_mail_within_a_mail_is_read_in_any_encoding(encoding, inner):
    wrapped = f'Content-Type: message/rfc822; name="a.eml"\nContent-Transfer-Encoding: {encoding}\n\n{inner}'
    text = read(parts("multipart/mixed", part("See below."), wrapped))
    assert text.endswith(
        "See below.\n\n# Old anchor\n\nFrom: Mia <mia@example.org>\n\nThe anchor costs 900 kroner, = all.\n"
    )


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        ("Content-Type: text/rfc822-headers\n\nSubject: Dredging\nFrom: Ane\n", "# Dredging\n\nFrom: Ane\n"),
        ("Content-Type: message/rfc822\n\nSubject: Dredging\n\nOn Tuesday.\n", "# Dredging\n\nOn Tuesday.\n"),
    ],
)
@pytest.mark.parametrize("is_encoded", [False, True])
def test_a_mail_that_comes_back_says_why(returned, shown, is_encoded):
    whole = REPORT.format("", FIELDS).partition("\n\n")[2]
    encoded = base64.encodebytes(whole.encode()).decode()
    report = REPORT.format("Content-Transfer-Encoding: base64\n", "").partition("\n\n")[0] + f"\n\n{encoded}"
    plain = REPORT.format("", FIELDS)
    text = read(parts("multipart/report", part("It failed."), report if is_encoded else plain, returned))
    assert text.endswith(f"It failed.\n\n\nReporting-MTA: dns; mx.example.org\n\n{FIELDS}\n{shown}")


EVENT = (
    "BEGIN:VCALENDAR\nMETHOD:REQUEST\nBEGIN:VEVENT\nDTSTART:20260304T090000Z\nSUMMARY:Dredging\n"
    "LOCATION:Town Hall\\, room 4\nEND:VEVENT\nEND:VCALENDAR\n"
)
INVITED = "## Dredging\n\nStart: 2026-03-04 09:00 UTC\nLocation: Town Hall, room 4\n"


@pytest.mark.parametrize(
    ("mail", "head"),
    [
        (parts("multipart/alternative", part("Come."), part(EVENT, "text/calendar; method=REQUEST")), ""),
        (
            parts(
                "multipart/mixed",
                parts("multipart/alternative", part("Come."), part(EVENT, "text/calendar")),
                'Content-Type: application/ics; name="invite.ics"\n\n' + EVENT,
            ),
            "\nAttachments: invite.ics",
        ),
        (part(EVENT, "text/calendar"), ""),
    ],
)
def test_an_invitation_says_what_when_and_where_once(mail, head):
    text = read(mail)
    assert text.startswith(f"From: Ane <ane@example.org>{head}\n\n")
    assert text.endswith(INVITED)
    assert text.count("Dredging") == 1


@pytest.mark.parametrize(
    ("charset", "codec", "text"),
    [
        ("gb2312", "gb18030", "联系朱镕先生"),
        ("iso-8859-1", "cp1252", "“Fog” – 20 €"),  # noqa: RUF001
        ("shift_jis", "cp932", "①号の船、髙橋"),
        ("ks_c_5601-1987", "cp949", "뷁 배"),
        ("windows-949", "cp949", "뷁 배"),
        ("x-sjis", "cp932", "船"),
        ("iso-8859-8-i", "iso8859-8", "נמל"),
        ("x-unknown", "utf-8", "Åse går"),
        ("unknown-8bit", "cp1252", "Åse går"),
        ("iso-8859-1", "utf-8", "Åse går"),
        ("us-ascii", "utf-8", "Åse går"),
    ],
)
def test_encodings_mean_what_browsers_take_them_for(charset, codec, text):
    assert read(f"Content-Type: text/plain; charset={charset}\n\n".encode() + text.encode(codec)).endswith(
        f"\n\n{text}\n"
    )


LETTERS = (
    b"From a@example.org Mon Mar  2 10:00:00 2026\nFrom: a@example.org\nMIME-Version: 1.0\n\nOne.\n%s"
    b"From - Mon Mar 02 11:00:00 2026\nFrom: b@example.org\n\nTwo.\nFrom here on the road is dry.\n"
)


@pytest.mark.parametrize("between", [b"", b"\n", b"\n\n"])
def test_letters_of_a_mailbox_need_no_blank_line_between_them(between):
    text = extract_mail(LETTERS % between, "a.mbox").text
    assert text.split("\n\n") == [
        "From: a@example.org",
        ["One.", "From: b@example.org"][0],
        *text.split("\n\n")[2:],
    ]
    assert text.endswith("\n\nFrom: b@example.org\n\nTwo.\nFrom here on the road is dry.\n")


def test_mail_of_apple_is_read_without_what_the_program_noted(tmp_path):
    mail = HEAD + b"Subject: Nets\n\nIn the shed.\n"
    path = tmp_path / "1.emlx"
    path.write_bytes(b"%d        \n%s<?xml version='1.0'?>\n<plist><dict/></plist>\n" % (len(mail), mail))
    assert extract_document(path).text == "# Nets\n\nFrom: Ane <ane@example.org>\n\nIn the shed.\n"


@pytest.mark.parametrize(
    "text",
    [
        "From: North store\nReceived: 9 June, by Ane\nBoxes: 40\n\nGrey shed.\n",
        "From: Ane\nMessage-ID: see the list\nTo: Per\n\nGrey shed.\n",
        "From: Ane\nMIME-Version: unknown\n\nGrey shed.\n",
        "Received: from Ane; 9 June\nFrom: Kari\n\nx\n",
        "Received: from the north store\nFrom: Ane\nBoxes: 4\n\nx\n",
    ],
)
def test_a_text_that_only_looks_like_mail_is_text(text):
    assert text_kind(text.encode(), "a.txt") == "plain text"


@pytest.mark.parametrize(
    "header",
    [
        "Received: from mx.example.org by mail.example.org\n\twith SMTP; Mon, 2 Mar 2026 10:00:00 +0000",
        "Message-Id: <1@example.org>",
        "Mime-Version: 1.0 (a comment)",
    ],
)
def test_what_a_mail_server_wrote_is_mail(header):
    assert text_kind(f"From: Ane <a@example.org>\n{header}\n\nText.\n".encode(), "a.txt") == "mail"


def test_the_line_before_the_sender_is_no_heading():
    assert extract_mail(HEAD + b"\nSee you.\nAne\n-- \nHarbour Board\n", "a.eml").places == ()


def test_a_line_that_a_mailbox_marks_is_as_it_was_written():
    mail = b"From a@b Mon Jun  8 10:00:00 2026\nFrom: a@b\n\n>From the quay.\n>> From here.\n"
    assert extract_mail(mail, "a.mbox").text == "From: a@b\n\nFrom the quay.\n>> From here.\n"


def test_a_report_in_unicode_says_whom_the_mail_did_not_reach():
    report = "Reporting-MTA: dns; mx\n\nFinal-Recipient: utf-8; håvn@example.org\nDiagnostic-Code: smtp; 552 full\n"
    text = read(parts("multipart/report", part("Sorry."), part(report, "message/global-delivery-status")))
    assert "Reporting-MTA: dns; mx\n\nFinal-Recipient: utf-8; håvn@example.org\nDiagnostic-Code: smtp; 552 full" in text


def test_a_body_in_rtf_is_read_as_rtf():
    assert "Nine oars." in read(parts("multipart/mixed", part("{\\rtf1\\ansi Nine {\\b oars}.\\par}", "text/rtf")))
