"""Read mail (EML) and saved pages (MHTML): headers, the body, and the names of attachments."""

from __future__ import annotations

import re
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from .document import Document
from .encodings import decode_as
from .html import markdown_of_html
from .markdown import document_of

#: Headers that a reader sees, in this order.
SHOWN = ("From", "To", "Cc", "Date")

#: A header, and those of which every mail has one.
_HEADER = re.compile(rb"(?:[!-9;-~]+:[^\n]*\n(?:[ \t][^\n]*\n)*)+", re.ASCII)
_OF_MAIL = re.compile(
    rb"^(?:MIME-Version|Message-ID|Received|Snapshot-Content-Location):", re.IGNORECASE | re.MULTILINE
)

#: Most messages within each other.
_MOST_NESTED = 9


def is_mail(content: bytes, name: str) -> bool:
    """Return whether a file begins with the headers of a mail."""
    head = _HEADER.match(content[: 1 << 16].replace(b"\r\n", b"\n").lstrip())
    return head is not None and _OF_MAIL.search(head[0]) is not None and b"from:" in head[0].lower()


def read_mail(content: bytes, name: str) -> Document:
    """Read a mail, or a page that a browser saved as MHTML."""
    message: Any = message_from_bytes(content.lstrip(), policy=policy.default)
    return document_of(*_read(message, name, 1))


def mail_text(subject: str, headers: dict[str, str], attachments: list[str], body: str) -> str:
    """Return a mail as text: its subject as a heading, its headers, and its body."""
    lines = [f"{header}: {' '.join(text.split())}" for header, text in headers.items() if text.strip()]
    lines += [f"Attachments: {', '.join(attachments)}"] if attachments else []
    title = f"# {' '.join(subject.split())}\n\n" if subject.strip() else ""
    return title + "\n".join(lines) + "\n\n" + body.strip() + "\n"


def _read(message: EmailMessage, name: str, depth: int) -> tuple[str, tuple[()], tuple[str, ...]]:
    """Return the text of a message, no pages, and notices."""
    part = message.get_body(("related", "plain", "html"))
    body, notices = ("", ()) if part is None else _body(part, name)
    if not body.strip() and (part := message.get_body(("html",))) is not None:  # the plain part may be empty
        body, notices = _body(part, name)
    attachments, messages = [], []
    for attachment in message.iter_attachments() if message.is_multipart() else ():
        if attachment.get_content_type() == "message/rfc822" and depth < _MOST_NESTED:
            text, _, more = _read(attachment.get_payload(0), name, depth + 1)  # type: ignore[arg-type]
            messages.append("\n" + text)
            notices += more
        elif attachment.get_content_disposition() == "attachment" or attachment.get_filename():
            attachments.append(attachment.get_filename() or attachment.get_content_type())
    headers = {header: str(message.get(header, "")) for header in SHOWN}
    return mail_text(str(message.get("Subject", "")), headers, attachments, body) + "".join(messages), (), notices


def _body(part: Any, name: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of a part, and notices."""
    content = part.get_payload(decode=True) or b""
    charset = str(part.get_content_charset() or "utf-8")
    try:
        text, notices = decode_as(charset, content, name)
    except LookupError:
        text, notices = decode_as("cp1252", content, name)
    return (markdown_of_html(text, name) if part.get_content_type() == "text/html" else text), notices
