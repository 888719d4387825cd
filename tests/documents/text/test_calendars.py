"""Test that calendars and contacts say what is in them, and nothing of pictures and of what programs need."""

import pytest

from octavo.documents.extract import extract_document
from octavo.documents.left_out import LeftOut
from octavo.documents.text.calendars import calendar_text


def event(*lines):
    return "\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", "BEGIN:VEVENT", *lines, "END:VEVENT", "END:VCALENDAR", ""])


def card(*lines, version="3.0"):
    return "\n".join(["BEGIN:VCARD", f"VERSION:{version}", *lines, "END:VCARD", ""])


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (
            event("SUMMARY:The dred", " ging of the east\\, too", "UID:4", "DTSTAMP:20260101T000000Z"),
            "# The dredging of the east, too\n",
        ),
        (
            event("SUMMARY:Fog", "DESCRIPTION:Bring plans\\, please.\\nRoom: 4\\; first"),
            "# Fog\n\nDescription: Bring plans, please.\nRoom: 4; first\n",
        ),
        (
            event("DTSTART;TZID=Europe/Oslo:20260304T090000", "DTEND;VALUE=DATE:20260305"),
            "Start: 2026-03-04 09:00 (Europe/Oslo)\nEnd: 2026-03-05\n",
        ),
        (
            event('ATTENDEE;CN="Moe, Per";ROLE=CHAIR:mailto:per@example.org', "ORGANIZER:MAILTO:ane@example.org"),
            "Attendee: Moe, Per <per@example.org>\nOrganizer: ane@example.org\n",
        ),
        (
            event("RRULE:FREQ=WEEKLY;COUNT=4", "X-MICROSOFT-CDO-BUSYSTATUS:BUSY", "STATUS:CANCELLED"),
            "Repeats: FREQ=WEEKLY;COUNT=4\nStatus: CANCELLED\n",
        ),
        (
            event("SUMMARY:A", "BEGIN:VALARM", "DESCRIPTION:Reminder", "END:VALARM", "LOCATION:B"),
            "# A\n\nLocation: B\n",
        ),
        (
            card("N:Lund;Kari;;;", "FN:Kari Lund", "item1.TEL;TYPE=CELL:+47 555 0101"),
            "# Kari Lund\n\nPhone (cell): +47 555 0101\n",
        ),
        (
            card("N:Lund;Kari;;;", "ADR;TYPE=home:;;Quay 4;Grimstad;;4876;Norway"),
            "Name: Lund, Kari\nAddress (home): Quay 4, Grimstad, 4876, Norway\n",
        ),
        (
            card(
                "FN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:=C3=85se =", "=C3=98rn", "TEL;HOME;VOICE:12", version="2.1"
            ),
            "# Åse Ørn\n\nPhone (home): 12\n",
        ),
        (
            card("FN:A") + card("FN:B", "BDAY:19800512", "X-SKYPE:b.4"),
            "# A\n\n# B\n\nBirthday: 1980-05-12\nSkype: b.4\n",
        ),
    ],
)
def test_what_a_calendar_and_a_contact_say(written, text):
    assert calendar_text(written, LeftOut()) == text


@pytest.mark.parametrize(
    "photo",
    ["PHOTO;ENCODING=b;TYPE=JPEG:AAEC\n AAEC", "PHOTO:data:image/png;base64,AAEC", "LOGO;ENCODING=BASE64;PNG:AAEC\n"],
)
def test_pictures_of_contacts_are_left_out_and_counted(tmp_path, photo):
    path = tmp_path / "a.vcf"
    path.write_text(card("FN:Kari", photo, "NOTE:Keeper"), encoding="utf-8")
    document = extract_document(path)
    assert document.text == "# Kari\n\nNote: Keeper\n"
    assert document.notices == ("a.vcf has 1 picture: octavo leaves it out.",)
    assert document.places[0].heading == "Kari"


def test_a_fold_within_a_letter_is_none(tmp_path):
    written = event("SUMMARY:Þoka").encode()
    within = written.index("Þ".encode()) + 1
    (tmp_path / "a.ics").write_bytes(written[:within] + b"\r\n " + written[within:])
    assert extract_document(tmp_path / "a.ics").text == "# Þoka\n"


def test_a_broken_line_of_an_old_contact_keeps_its_blank():
    name = "FN;ENCODING=QUOTED-PRINTABLE:K=C3=A5re, keeper of the=\n east light"
    assert calendar_text(card(name, version="2.1"), LeftOut()) == "# Kåre, keeper of the east light\n"
