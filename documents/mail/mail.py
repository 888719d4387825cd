"""Extract mail (EML) and saved pages (MHTML): headers, the body, and the names of attachments."""

from __future__ import annotations

from email import message_from_bytes
from email.policy import EmailPolicy
from typing import Any

from ...errors import OctavoError
from ..document import Document
from ..encodings import decode, decode_as
from ..html.html import markdown_of_html
from ..kinds import ENVELOPE
from ..markdown import document_of

#: Headers that a reader sees, in this order.
SHOWN = ("From", "To", "Cc", "Date")

#: Most messages within each other.
_MOST_NESTED = 9


class _Forgiving(EmailPolicy):
    """Read a header as it is written if no codec decodes it."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        """Return a header."""
        try:
            return super().header_fetch_parse(name, value)
        except Exception:  # of any codec that a mail may name
            return super().header_fetch_parse(name, value.partition(";")[0].replace("=?", "= ?"))


_POLICY: Any = _Forgiving()


def extract_mail(content: bytes, name: str) -> Document:
    """Extract a mail, a mailbox, or a page that a browser saved as MHTML."""
    texts, notices = [], list[str]()
    for mail in filter(None, map(bytes.strip, ENVELOPE.split(content.replace(b"\r\n", b"\n").lstrip()))):
        message: Any = message_from_bytes(mail + b"\n", policy=_POLICY)
        text, own = _extract(message, name, 1)
        texts.append(text)
        notices += own
    return document_of("\n".join(texts), notices=list(dict.fromkeys(notices)))


def mail_text(subject: str, headers: dict[str, str], attachments: list[str], body: str) -> str:
    """Return a mail as text: its subject as a heading, its headers, and its body."""
    lines = [f"{header}: {' '.join(text.split())}" for header, text in headers.items() if text.strip()]
    lines += [f"Attachments: {', '.join(attachments)}"] if attachments else []
    title = f"# {' '.join(subject.split())}\n\n" if subject.strip() else ""
    return title + "\n\n".join(filter(None, ("\n".join(lines), body.strip()))) + "\n"


def _extract(message: Any, name: str, depth: int) -> tuple[str, list[str]]:
    """Return the text of a message, and notices."""
    attachments: list[str] = []
    messages: list[str] = []
    notices: list[str] = []
    part = message.get_body(("related", "plain", "html"))
    body = "" if part is None else _body(part, name, notices)
    if not body.strip() and (part := message.get_body(("html",))) is not None:  # the plain part may be empty
        body = _body(part, name, notices)
    others = list(message.iter_attachments()) if message.is_multipart() else [message] if part is None else []
    for other in others:
        kind, filename = other.get_content_type(), other.get_filename()
        if kind == "message/rfc822" and other.is_multipart() and depth < _MOST_NESTED:
            text, own = _extract(other.get_payload(0), name, depth + 1)
            messages.append("\n" + text)
            notices += own
        elif kind in ("text/plain", "text/html") and not filename and not other.is_attachment():
            body += "\n\n" + _body(other, name, notices)  # a reader sees it below the first
        elif filename or not other.is_multipart():
            attachments.append(filename or kind)
    headers = {header: str(message.get(header, "")) for header in SHOWN}
    text = mail_text(str(message.get("Subject", "")), headers, attachments, body)
    return text + "".join(messages), notices


def _body(part: Any, name: str, notices: list[str]) -> str:
    """Return the text of a part; add notices."""
    content = part.get_payload(decode=True) or b""
    charset = str(part.get_content_charset() or "us-ascii")
    try:
        is_named = charset != "us-ascii"
        text, own = decode_as(charset, content, name) if is_named else decode(content, name, last="cp1252")
    except (LookupError, UnicodeError, OctavoError):  # an encoding that does not exist, or bytes that are not text
        text, own = decode_as("cp1252", content, name)
    notices += own
    text = text.replace("\r\n", "\n")
    return markdown_of_html(text, name) if part.get_content_type() == "text/html" else text
