"""Read DOCX, as Word and LibreOffice write it: headings by style, lists, tables and notes."""

from __future__ import annotations

import io

from .archive import Archive
from .document import Document
from .html import parse, to_markdown
from .markdown import document_of

#: What mammoth does not know by itself.
_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='Subtitle'] => p:fresh
p[style-name='Quote'] => blockquote > p:fresh
p[style-name='Intense Quote'] => blockquote > p:fresh
"""


def read_docx(archive: Archive, content: bytes) -> Document:
    """Read a document of Word.

    Parameters
    ----------
    archive : Archive
        The file.
    content : bytes
        The same, as it is.

    Raises
    ------
    OctavoError
        It is damaged.
    """
    import mammoth

    for part in ("word/document.xml", "word/styles.xml", "word/numbering.xml", "word/footnotes.xml"):
        if part in archive:
            archive.read(part)  # refuses what is damaged or encrypted
    try:
        html = mammoth.convert_to_html(
            io.BytesIO(content), style_map=_STYLES, convert_image=mammoth.images.img_element(lambda image: {"src": ""})
        ).value
    except MemoryError:
        raise
    except Exception as problem:  # mammoth trusts what it reads: it may raise anything
        raise archive.damaged() from problem
    text, pages = to_markdown(parse(html, archive.name))
    return document_of(text, pages)
