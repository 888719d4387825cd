"""Write documents of many kinds and lengths, with a question about each: a lease, an invoice, minutes, half a novel.

    python benchmarks/write_mixed_documents.py FOLDER [--set first]

The texts stand in benchmarks/mixed, or in examples (novel and encyclopedia). The last part of a file's name is its
kind.
"""

from __future__ import annotations

import argparse
import csv
import html
import io
import json
import re
import textwrap
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx

_HERE = Path(__file__).parent
_EXAMPLES = _HERE.parent / "examples"

#: Lines of a PDF's page, and characters of a line.
_LINES, _WIDTH = 46, 84

_CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles>'
    '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
_ODT = (
    '<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:text>{}</office:text>'
    "</office:body></office:document-content>"
)


@dataclass(frozen=True)
class Asked:
    """A question about a document.

    Parameters
    ----------
    file : str
        Name of the document.
    answers : tuple of str
        Texts, each of which makes an answer right.
    passage : str
        Words of the passage that has the answer.
    """

    file: str
    question: str
    answers: tuple[str, ...]
    passage: str


@dataclass(frozen=True)
class Block:
    """A heading, a paragraph, code, or the rows of a table."""

    kind: str
    text: str = ""
    level: int = 0
    rows: tuple[tuple[str, ...], ...] = ()


def write_documents(folder: Path, name: str) -> list[Asked]:
    """Write the documents of a set into a folder, and return the questions about them."""
    folder.mkdir(parents=True, exist_ok=True)
    described = tomllib.loads((_HERE / "mixed" / f"{name}.toml").read_text("utf-8"))["document"]
    for document in described:
        file = folder / document["file"]
        content = _WRITERS[file.suffix](list(_blocks(_text(document))))
        if not file.exists() or file.stat().st_size == 0:
            file.write_bytes(content)  # one that is there stays: its index is of this version of the file
    return [Asked(each["file"], each["question"], tuple(each["answers"]), each["passage"]) for each in described]


def _text(document: dict[str, Any]) -> str:
    """Return the text of a document: its own, a part of the novel, or articles."""
    if "text" in document:
        return str(document["text"]).strip()
    if document["from"] == "xquad.json":
        articles = {each["title"]: each for each in json.loads((_EXAMPLES / "xquad.json").read_text("utf-8"))}
        return "\n\n".join(_article(articles[title]) for title in document["articles"])
    text = (_EXAMPLES / document["from"]).read_text("utf-8")
    ends = f"{text}\n\n"
    first, last = (ends.index("\n\n", int(share * (len(text) - 2))) for share in document["share"])
    text = text[first:last]
    return re.sub(r"^(CHAPTER \w+)$", r"# \1", text.strip(), flags=re.MULTILINE)


def _article(article: dict[str, Any]) -> str:
    paragraphs = [paragraph["context"] for paragraph in article["paragraphs"]]
    return "\n\n".join([f"# {article['title'].replace('_', ' ')}", *paragraphs])


def _blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a text in simple Markdown."""
    for part in re.split(r"\n\s*\n", text):
        if part.startswith("```"):
            yield Block("code", part.strip("`\n"))
        elif part.startswith("#"):
            marks, _, title = part.partition(" ")
            yield Block("heading", title, len(marks))
        elif part.startswith("|"):
            lines = part.splitlines()
            yield Block("table", rows=tuple(tuple(cell.strip() for cell in line[1:-1].split("|")) for line in lines))
        elif part.startswith("- "):
            yield from (Block("paragraph", line) for line in part.splitlines())
        else:
            yield Block("paragraph", " ".join(part.split()))


def _as_markdown(blocks: list[Block]) -> str:
    """Return blocks as Markdown."""
    parts = []
    for block in blocks:
        if block.kind == "table":
            head, *rows = [f"| {' | '.join(row)} |" for row in block.rows]
            parts.append("\n".join([head, "|" + " --- |" * len(block.rows[0]), *rows]))
        elif block.kind == "code":
            parts.append(f"```\n{block.text}\n```")
        else:
            parts.append(f"{'#' * block.level} {block.text}".strip())
    return "\n\n".join(parts) + "\n"


def _markdown(blocks: list[Block]) -> bytes:
    return _as_markdown(blocks).encode()


def _plain(blocks: list[Block]) -> bytes:
    return ("\n\n".join("\n".join(textwrap.wrap(block.text, 78)) for block in blocks) + "\n").encode()


def _body(blocks: list[Block]) -> str:
    """Return blocks as the elements of an HTML page."""
    parts = []
    for block in blocks:
        text = html.escape(block.text)
        if block.kind == "table":
            rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in block.rows)
            parts.append(f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>")
        else:
            tag = {"heading": f"h{block.level}", "code": "pre"}.get(block.kind, "p")
            parts.append(f"<{tag}>{text}</{tag}>")
    return "\n".join(parts)


def _html(blocks: list[Block]) -> bytes:
    navigation = '<nav><a href="/">Home</a> <a href="/contact">Contact</a></nav>'
    page = f'<!doctype html><html><head><meta charset="utf-8"><title>{html.escape(blocks[0].text)}</title></head>'
    return f"{page}<body>{navigation}<article>{_body(blocks)}</article></body></html>".encode()


def _zipped(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def _epub(blocks: list[Block]) -> bytes:
    chapters: list[list[Block]] = [[]]
    for block in blocks:
        if block.kind == "heading" and block.level == 1 and chapters[-1]:
            chapters.append([])
        chapters[-1].append(block)
    items = "".join(f'<item id="c{i}" href="c{i}.xhtml"/>' for i in range(len(chapters)))
    order = "".join(f'<itemref idref="c{i}"/>' for i in range(len(chapters)))
    package = (
        f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{order}</spine></package>'
    )
    pages = {
        f"c{i}.xhtml": f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{_body(own)}</body></html>'
        for i, own in enumerate(chapters)
    }
    return _zipped(
        {"mimetype": "application/epub+zip", "META-INF/container.xml": _CONTAINER, "book.opf": package} | pages
    )


def _odt(blocks: list[Block]) -> bytes:
    parts = []
    for block in blocks:
        tag, level = ("text:h", f' text:outline-level="{block.level}"') if block.kind == "heading" else ("text:p", "")
        parts.append(f"<{tag}{level}>{html.escape(block.text)}</{tag}>")
    return _zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": _ODT.format("".join(parts))})


def _docx(blocks: list[Block]) -> bytes:
    document = docx.Document()
    for block in blocks:
        if block.kind == "heading":
            document.add_heading(block.text, block.level)
        elif block.kind == "table":
            table = document.add_table(rows=len(block.rows), cols=len(block.rows[0]))
            for row, texts in zip(table.rows, block.rows, strict=True):
                for cell, text in zip(row.cells, texts, strict=True):
                    cell.text = text
        else:
            document.add_paragraph(block.text)
    return _saved(document)


def _xlsx(blocks: list[Block]) -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    for block in blocks:
        for row in block.rows or [[block.text]]:
            sheet.append([float(cell) if re.fullmatch(r"\d+(\.\d+)?", cell) else cell for cell in row])
    return _saved(book)


def _pptx(blocks: list[Block]) -> bytes:
    slides = pptx.Presentation()
    for block in blocks:
        if block.kind == "heading":
            slide = slides.slides.add_slide(slides.slide_layouts[1])
            slide.shapes.title.text = block.text
        else:
            slide.placeholders[1].text = block.text
    return _saved(slides)


def _saved(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def _csv(blocks: list[Block]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows(row for block in blocks for row in block.rows)
    return out.getvalue().encode()


def _eml(blocks: list[Block]) -> bytes:
    message = EmailMessage()
    message["From"], message["To"] = "sender@example.org", "list@example.org"
    message["Date"], message["Subject"] = "Tue, 4 Jun 2024 18:02:11 +0200", blocks[0].text
    message.set_content("\n\n".join(block.text for block in blocks[1:]))
    return message.as_bytes()


def _rtf(blocks: list[Block]) -> bytes:
    parts = [
        rf"\fs{40 - 6 * block.level}\b {block.text}\b0\par" if block.level else rf"{block.text}\par" for block in blocks
    ]
    return "\n".join([r"{\rtf1\ansi", *parts, "}"]).encode("ascii")


def _ipynb(blocks: list[Block]) -> bytes:
    cells = []
    for block in blocks:
        source = block.text if block.kind == "code" else _as_markdown([block]).strip()
        cell: dict[str, object] = (
            {"cell_type": "code", "execution_count": None, "outputs": []}
            if block.kind == "code"
            else {"cell_type": "markdown"}
        )
        cells.append({**cell, "metadata": {}, "source": source})
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def _srt(blocks: list[Block]) -> bytes:
    lines = [line for block in blocks for line in textwrap.wrap(block.text, 60)]
    times = [
        f"00:{i // 15:02}:{4 * (i % 15):02},000 --> 00:{i // 15:02}:{4 * (i % 15) + 3:02},500"
        for i in range(len(lines))
    ]
    return "\n\n".join(
        f"{i + 1}\n{time}\n{line}" for i, (time, line) in enumerate(zip(times, lines, strict=True))
    ).encode()


def _pdf(blocks: list[Block]) -> bytes:
    """Return a PDF in Helvetica."""
    lines: list[tuple[int, str]] = []
    for block in blocks:
        size = {1: 16, 2: 13}.get(block.level, 10)
        lines += [(10, ""), *((size, line) for line in textwrap.wrap(block.text, _WIDTH * 10 // size))]
    pages = [lines[i : i + _LINES] for i in range(0, len(lines), _LINES)]
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for page in pages:
        drawn = ["BT 60 770 Td"]
        for size, line in page:
            escaped = re.sub(r"([\\()])", r"\\\1", line)
            drawn.append(f"0 -15 Td /F {size} Tf ({escaped}) Tj")
        content = "\n".join([*drawn, "ET"])
        objects.append(f"<< /Length {len(content.encode('cp1252', 'replace'))} >>\nstream\n{content}\nendstream")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {len(objects)} 0 R "
            "/Resources << /Font << /F 3 0 R >> >> >>"
        )
    kids = " ".join(f"{5 + 2 * i} 0 R" for i in range(len(pages)))
    objects[1] = f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>"
    out = b"%PDF-1.4\n"
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("cp1252", "replace")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    return (
        out
        + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n"
        f"<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n".encode()
    )


_WRITERS: dict[str, Callable[[list[Block]], bytes]] = {
    ".csv": _csv,
    ".docx": _docx,
    ".eml": _eml,
    ".epub": _epub,
    ".html": _html,
    ".ipynb": _ipynb,
    ".md": _markdown,
    ".odt": _odt,
    ".pdf": _pdf,
    ".pptx": _pptx,
    ".rtf": _rtf,
    ".srt": _srt,
    ".txt": _plain,
    ".xlsx": _xlsx,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--set", default="first", choices=[path.stem for path in sorted((_HERE / "mixed").glob("*.toml"))]
    )
    arguments = parser.parse_args()
    for asked in write_documents(arguments.folder, arguments.set):
        print(f"{asked.file}: {asked.question}")


if __name__ == "__main__":
    main()
