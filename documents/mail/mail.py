"""Extract mail (EML) and saved pages (MHTML): headers, the body, and the names of attachments."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from email.policy import compat32
from typing import Any

from ...errors import OctavoError
from ..document import Document
from ..encodings import decode, decode_as, is_utf_8, named_encoding
from ..html.html import markdown_of_html
from ..kinds import ENVELOPE, of_apple_mail
from ..left_out import LeftOut
from ..markdown import document_of
from ..office.rtf import html_of_rtf
from ..text.calendars import calendar_text
from .mail_headers import file_name, header, header_text, write_in_unicode

#: Headers that a reader sees, in this order.
SHOWN = ("From", "To", "Cc", "Date")

#: Most messages within each other.
MOST_NESTED = 9

#: Kinds of parts that say how a page looks or what it does, signatures, and messages that are mail.
_UNSEEN = re.compile(r"text/(css|javascript|(x-)?(amp|watch)-html)|application/(x-)?javascript")
_SIGNATURE = re.compile(r"application/(x-)?(pgp|pkcs7)-signature")
_MAILS = ("rfc822", "global", "news", "partial", "rfc822-headers")

#: A line that mailboxes mark, as it would begin a mail.
_QUOTED = re.compile(rb"^>From ", re.MULTILINE)

#: A word, which is a letter where no blanks part words: from Thai to Khmer, and in Japanese and Chinese.
_UNPARTED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_UNPARTED}]|[^\W{_UNPARTED}]+")

#: Least share of the words of a page that a plain text has that says the same.
_LEAST_SHARED = 0.8


@dataclass
class _Read:
    """What a part of a mail holds: texts that a reader sees, invitations, names of attachments, and mail."""

    texts: list[str] = field(default_factory=list)
    invitations: list[str] = field(default_factory=list)
    attachments: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)
    is_page: bool = False

    def add(self, other: _Read, with_texts: bool = True) -> None:
        if with_texts:
            self.texts += other.texts
            self.left_out.update(other.left_out)
            self.is_page |= other.is_page
        for own, more in zip(self._others(), other._others(), strict=True):
            own += [each for each in more if each not in own]

    def _others(self) -> tuple[list[str], ...]:
        return self.invitations, self.attachments, self.messages, self.notices


def extract_mail(content: bytes, name: str) -> Document:
    """Extract a mail, a mailbox, or a page that a browser saved as MHTML."""
    texts, whole = [], _Read()
    content = of_apple_mail(content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").lstrip())
    for mail in filter(None, map(bytes.strip, ENVELOPE.split(content))):
        text, read = _message(message_from_bytes(_QUOTED.sub(b"From ", mail) + b"\n"), name, 1)
        texts.append(text)
        whole.add(read)
    return document_of("\n".join(texts), notices=(*whole.notices, *whole.left_out.notices(name)))


def mail_text(subject: str, headers: dict[str, str], attachments: list[str], body: str) -> str:
    """Return a mail as text: its subject as a heading, its headers, and its body."""
    lines = [f"{header}: {' '.join(text.split())}" for header, text in headers.items() if text.strip()]
    lines += [f"Attachments: {', '.join(attachments)}"] if attachments else []
    title = f"# {' '.join(subject.split())}\n\n" if subject.strip() else ""
    return title + "\n\n".join(filter(None, ("\n".join(lines), body.strip()))) + "\n"


def _message(message: Any, name: str, depth: int) -> tuple[str, _Read]:
    """Return the text of a message, and its parts."""
    write_in_unicode(message)
    read = _read(message, name, depth)
    if not read.texts and not read.invitations and message.get_content_maintype() == "text":
        read.texts, read.attachments = [_text(message, name, read)], []  # it has a name, but is all there is
    body = "\n\n".join(filter(str.strip, (*read.texts, *read.invitations)))
    text = mail_text(
        header(message, "Subject"), {each: header(message, each) for each in SHOWN}, read.attachments, body
    )
    return text + "".join(read.messages), read


def _read(part: Any, name: str, depth: int, is_of_page: bool = False) -> _Read:
    """Read a part of a mail, and the parts in it."""
    kind = part.get_content_type()
    if kind.startswith("message/") or kind == "text/rfc822-headers":
        return _read_message(part, name, depth)
    if part.is_multipart():
        return _read_parts(part, name, depth)
    read, filename, disposition = _Read(), file_name(part), part.get_content_disposition()
    if kind in ("text/calendar", "application/ics"):
        invitation = calendar_text(_text(part, name, read), read.left_out)
        read.invitations = [re.sub("^# ", "## ", invitation, flags=re.MULTILINE)]  # below the mail's subject
        read.attachments = [filename] if filename else []
    elif kind.startswith("text/") and not filename and disposition != "attachment" and not _UNSEEN.match(kind):
        read.texts, read.is_page = [_text(part, name, read)], kind == "text/html"
    elif filename or not (is_of_page or _UNSEEN.match(kind)):
        read.attachments = [] if _SIGNATURE.match(kind) else [filename or kind]
    return read


def _read_parts(part: Any, name: str, depth: int) -> _Read:
    """Read the parts of a part: all of them, but of alternatives one, and the attachments of the others."""
    is_of_page = part.get_content_subtype() == "related"  # its pictures and styles
    parts = [_read(each, name, depth, is_of_page) for each in part.get_payload()]
    chosen = _fuller(parts) if part.get_content_subtype() == "alternative" else None
    read = _Read()
    for each in parts:
        read.add(each, with_texts=chosen is None or each is chosen)
    return read


def _fuller(parts: list[_Read]) -> _Read | None:
    """Return the part with a plain text, or the one with a page if the plain text lacks much of it."""
    plain = next((part for part in parts if part.texts and not part.is_page and "".join(part.texts).strip()), None)
    page = next((part for part in reversed(parts) if part.texts and part.is_page), None)
    if plain is None or page is None:
        return plain or page
    said, shown = (set(_WORD.findall(" ".join(part.texts).casefold())) for part in (plain, page))
    return page if len(said & shown) < _LEAST_SHARED * len(shown) and len(said) < len(shown) else plain


def _read_message(part: Any, name: str, depth: int) -> _Read:
    """Read a mail within a mail, or a report about one, whose fields have the form of headers."""
    kind, read = part.get_content_subtype(), _Read()
    inner = part.get_payload() if part.is_multipart() else [message_from_bytes(part.get_payload(decode=True) or b"")]
    if str(part.get("Content-Transfer-Encoding", "")).strip().lower() in ("base64", "quoted-printable"):
        inner = _decoded(part, inner)  # against the rules
    if kind in _MAILS and depth < MOST_NESTED:
        for each in inner:
            text, own = _message(each, name, depth + 1)
            read.add(_Read(messages=["\n" + text], notices=own.notices, left_out=own.left_out))
    elif kind in _MAILS or kind == "external-body":
        read.attachments = [file_name(part) or part.get_content_type()]
    else:
        for each in inner:  # of a report in Unicode only the first block is taken for headers
            fields = (f"{key}: {header_text(value)}" for key, value in each.raw_items())
            rest = each.get_payload(decode=True)
            read.texts += ["\n".join(fields), rest.decode(errors="replace").strip() if isinstance(rest, bytes) else ""]
        read.texts = ["\n\n".join(filter(None, read.texts))]
    return read


def _decoded(part: Any, inner: list[Any]) -> list[Any]:
    """Return the messages in a part that is encoded as a whole."""
    whole = Message()
    whole["Content-Transfer-Encoding"] = part["Content-Transfer-Encoding"]
    with suppress(UnicodeError, ValueError):
        whole.set_payload("\n\n".join(each.as_string(policy=compat32.clone(max_line_length=0)) for each in inner))
        content = (whole.get_payload(decode=True) or b"").replace(b"\r\n", b"\n")  # type: ignore[union-attr]
        blocks = [content] if part.get_content_subtype() in _MAILS else re.split(rb"\n\n+", content.strip())
        return [message_from_bytes(block) for block in blocks]
    return inner


def _text(part: Any, name: str, read: _Read) -> str:
    """Return the text of a part; note its losses."""
    content = part.get_payload(decode=True) or b""
    encoding = named_encoding(str(part.get_content_charset() or "us-ascii"))
    if part.get_content_charset() in (None, "us-ascii") or (encoding == "cp1252" and is_utf_8(content)):
        encoding = None  # the sender did not mean it
    try:
        if encoding is None:
            text, own = decode(content, name, last="cp1252")
        else:
            text, own = decode_as(encoding, content, name)
    except (UnicodeError, OctavoError):  # bytes that are not text
        text, own = decode_as("cp1252", content, name)
    read.notices += own
    text = text.replace("\r\n", "\n")
    if part.get_content_type() == "text/rtf":
        text = html_of_rtf(content, read.left_out)
    return markdown_of_html(text, name, read.left_out) if part.get_content_subtype() in ("html", "rtf") else text
