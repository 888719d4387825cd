"""Read a picture: the text that tesseract recognises in it."""

from __future__ import annotations

from dataclasses import replace

from ...errors import OctavoError
from ..document import Document
from ..pdf.pdf import read_pdf
from .recognition import Recognition, remedy


def read_picture(content: bytes, name: str, recognition: Recognition) -> Document:
    """Read a picture. Raise OctavoError if its text was not recognised, or if it has none."""
    recognised = recognition.pages([0], lambda _: content)
    if not recognised:
        raise OctavoError(f"{name} has only a picture: {remedy()}.")
    return replace(read_pdf(recognised[0], name), notices=(recognition.notice,))
