"""Draw pages of PDFs in a process of its own, as a hostile file may end the process that draws it."""

from __future__ import annotations

import base64
from pathlib import Path

from ..documents.pdf.pdf_picture import draw_page
from ..workers.work import Message, Work


class DrawPages(Work):
    """Draw pages; a message has the path of a PDF, the label of a page and the passage to mark."""

    def do(self, message: Message) -> Message:
        """Return the PNG file in base64, as `png`, and where the passage begins, as `top` (see `Work.do`)."""
        picture = draw_page(Path(message["path"]).read_bytes(), message["page"], message["quote"])
        return {"png": base64.b64encode(picture.png).decode(), "top": picture.top}

    def close(self) -> None:
        """Do nothing: no file stays open."""
