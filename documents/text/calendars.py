"""Extract calendars (ICS) and contacts (VCF): their properties, one a line, without pictures and what programs need."""

from __future__ import annotations

import quopri
import re
from collections.abc import Iterator
from typing import NamedTuple

from ..document import Document
from ..encodings import decode, named_encoding
from ..left_out import LeftOut
from ..markdown import as_text, document_of

#: What properties are called. Others are called by their own names.
_LABELS = {"DTSTART": "Start", "DTEND": "End", "TEL": "Phone", "ADR": "Address", "ORG": "Organization"}
_LABELS |= {"BDAY": "Birthday", "RRULE": "Repeats", "EXDATE": "Except", "RDATE": "Also", "N": "Name", "URL": "URL"}

#: Properties that are titles, those that programs need, and those that hold pictures, sounds and keys.
_TITLES = ("SUMMARY", "FN", "X-WR-CALNAME")
_OF_PROGRAMS = re.compile(
    "UID|DTSTAMP|CREATED|LAST-MODIFIED|SEQUENCE|REV|PRODID|VERSION|METHOD|CALSCALE|TRANSP|CLASS|PRIORITY|KIND|MAILER|"
    "X-(MICROSOFT|APPLE|AB|MOZ|GOOGLE|LIC|WR|ALT-DESC|PRODID).*"
)
_PICTURES = ("PHOTO", "LOGO", "SOUND", "KEY")

#: Components that say nothing to a person.
_SILENT = ("VTIMEZONE", "STANDARD", "DAYLIGHT", "VALARM")

#: A property: its name after a group's, its parameters, and its value. A time.
_PROPERTY = re.compile(r"""(?:[\w-]+\.)?([\w-]+)((?:;(?:[^":;]|"[^"]*")*)*):(.*)""", re.DOTALL)
_PARAMETER = re.compile(r""";([\w-]+)(?:=((?:[^";]|"[^"]*")*))?""")
_TIMES, _TIME = (
    ("DTSTART", "DTEND", "DUE", "EXDATE", "RDATE", "BDAY", "COMPLETED"),
    re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(?:\d\d)?(Z?))?"),
)

#: Kinds of numbers and addresses that say nothing.
_PLAIN_KINDS = ("pref", "voice", "internet", "x400")

#: A fold within a letter of UTF-8: programs count bytes.
_WITHIN_LETTER = re.compile(rb"(?<=[\xc2-\xff\x80-\xbf])\r?\n[ \t](?=[\x80-\xbf])")


class _Property(NamedTuple):
    name: str
    parameters: dict[str, str]
    value: str


def extract_calendar(content: bytes, name: str) -> Document:
    """Extract a calendar or contacts: a heading for each event, task and person, and its properties."""
    written, notices = decode(_WITHIN_LETTER.sub(b"", content), name)
    left_out = LeftOut()
    return document_of(calendar_text(written, left_out), notices=(*notices, *left_out.notices(name)))


def calendar_text(written: str, left_out: LeftOut) -> str:
    """Return a calendar or contacts as text, and count the pictures in it."""
    texts = (_component(properties, left_out) for kind, properties in _components(written) if kind not in _SILENT)
    return "\n\n".join(filter(None, texts)) + "\n"


def _component(properties: list[_Property], left_out: LeftOut) -> str:
    title, lines = "", list[str]()
    has_title = any(each.name == "FN" and each.value.strip() for each in properties)
    for each in properties:
        if each.name in _PICTURES or each.parameters.get("VALUE", "").upper() == "BINARY":
            left_out["picture" if each.name in ("PHOTO", "LOGO") else "attachment"] += 1
        elif each.name in _TITLES and not title:
            title = " ".join(_plain(each.value).split())
        elif not _OF_PROGRAMS.fullmatch(each.name) and not (each.name == "N" and has_title):
            lines += _lines(each)
    return "\n\n".join(filter(None, (f"# {title}" if title else "", "\n".join(map(as_text, lines)))))


def _lines(property_: _Property) -> list[str]:
    """Return a property in lines, the first with its label; none of an empty property."""
    name, parameters, value = property_
    if name in _TIMES:
        value = ", ".join(map(_time, value.split(",")))
        value += f" ({parameters['TZID']})" if "TZID" in parameters else ""
    elif name in ("N", "ADR", "ORG"):
        value = ", ".join(filter(None, map(str.strip, map(_plain, re.split(r"(?<!\\);", value)))))
    else:
        value = re.sub(r"^(mailto|tel):", "", _plain(value), flags=re.IGNORECASE)
    if who := parameters.get("CN", ""):
        value = f"{who} <{value}>" if value.casefold() != who.casefold() else who
    kinds = [kind for kind in parameters.get("TYPE", "").lower().split(",") if kind and kind not in _PLAIN_KINDS]
    label = _LABELS.get(name) or name.removeprefix("X-").capitalize().replace("-", " ")
    label += f" ({', '.join(kinds)})" if kinds and name in ("TEL", "EMAIL", "ADR", "URL", "IMPP") else ""
    return f"{label}: {value.strip()}".split("\n") if value.strip(" ,") else []


def _components(written: str) -> list[tuple[str, list[_Property]]]:
    """Return the components of a text in the order in which they begin: the kind of each and its own properties."""
    found: list[tuple[str, list[_Property]]] = []
    opened: list[list[_Property]] = []
    for each in _properties(written):
        if each.name == "BEGIN":
            opened.append([])
            found.append((each.value.strip().upper(), opened[-1]))
        elif each.name == "END":
            del opened[-1:]
        elif opened:
            opened[-1].append(each)
    return found


def _properties(written: str) -> Iterator[_Property]:
    """Yield the properties of a text. A line that begins with a blank continues the one before."""
    unfolded: list[str] = []
    for line in written.splitlines():
        if unfolded and line[:1] in (" ", "\t"):
            is_quoted = unfolded[-1].endswith("=") and "QUOTED-PRINTABLE" in unfolded[-1].upper()
            unfolded[-1] = unfolded[-1][:-1] + line if is_quoted else unfolded[-1] + line[1:]
        else:
            unfolded.append(line)
    lines = iter(unfolded)
    for line in lines:
        if (found := _PROPERTY.match(line)) is None:
            continue
        parameters: dict[str, str] = {}
        for key, value in _PARAMETER.findall(found[2]):  # the oldest contacts have kinds without a name
            name, value = (key.upper(), value.replace('"', "")) if value else ("TYPE", key)
            name = "ENCODING" if value.upper() == "QUOTED-PRINTABLE" else name
            parameters[name] = f"{parameters[name]},{value}" if name in parameters else value
        text = found[3]
        if parameters.get("ENCODING", "").upper() == "QUOTED-PRINTABLE":
            while text.endswith("="):
                text = text[:-1] + next(lines, "")
            encoding = named_encoding(parameters.get("CHARSET", "")) or "utf-8"
            text = quopri.decodestring(text.encode()).decode(encoding, errors="replace").replace("\r\n", "\n")
        yield _Property(found[1].upper(), parameters, text)


def _plain(value: str) -> str:
    """Return a value without the marks that keep its commas, semicolons and breaks."""
    return re.sub(r"\\(.)", lambda mark: "\n" if mark[1] in "nN" else mark[1], value)


def _time(written: str) -> str:
    time = _TIME.match(written.strip())
    if time is None:
        return written
    year, month, day, hour, minute, is_utc = time.groups()
    return f"{year}-{month}-{day}" + (f" {hour}:{minute}" if hour else "") + (" UTC" if is_utc else "")
