"""Documents of each kind, to read in tests."""

import io
import struct
import zipfile
from itertools import pairwise

import docx

#: A page of a site, in Latin 1.
PAGE = """<!doctype html><html><head><meta charset="iso-8859-1"><title>The Island</title>
<style>p { color: red }</style><script>alert("no")</script></head><body>
<header>Site name</header><nav><a href="/">Home</a></nav>
<article><header><h1>The Lighthouse</h1></header>
<p>The keeper wrote <b>each</b> ship down at <a href="/log">the log</a>&nbsp;&amp; slept.<!-- not this --></p>
<h2>Ships</h2>
<ul><li>Petrel<ul><li>of Leith</li></ul></li><li>Gannet</li></ul>
<ol><li>first</li><li>second</li></ol>
<table><tr><th>Ship</th><th>Port</th></tr><tr><td>Petrel</td><td>Leith</td></tr></table>
<pre><code>ring(bell)
  twice</code></pre>
<blockquote><p>Fog again.</p></blockquote>
<p hidden>hidden</p><p style="display: none">gone</p><img src="x.png" alt="A ship"></article>
<aside>Advertisement</aside><footer>Imprint</footer></body></html>"""


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


CONTAINER = '<container xmlns="c"><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
PACKAGE = """<package xmlns="p"><manifest><item id="b" href="two%20.xhtml"/><item id="a" href="one.xhtml"/>
<item id="gone" href="gone.xhtml"/></manifest>
<spine><itemref idref="a"/><itemref idref="gone"/><itemref idref="b"/></spine></package>"""
BOOK = {
    "mimetype": "application/epub+zip",
    "META-INF/container.xml": CONTAINER,
    "OEBPS/book.opf": PACKAGE,
    "OEBPS/two .xhtml": "<html><body><h1>Two</h1><p>The end.</p></body></html>",
    "OEBPS/one.xhtml": """<html xmlns:epub="e"><head><title>T</title></head><body><span epub:type="pagebreak"
        title="7"/>
        <h1>One</h1><p>It began <span epub:type="pagebreak" id="p8" title="8"></span>here.</p></body></html>""",
}


def word_file():
    document = docx.Document()
    document.add_heading("The Lighthouse", 0)
    document.add_heading("Ships", 1)
    document.add_paragraph("The keeper wrote ").add_run("each").bold = True
    document.add_paragraph("Petrel", style="List Bullet")
    document.add_paragraph("Gannet", style="List Bullet")
    document.add_paragraph("first", style="List Number")
    table = document.add_table(rows=2, cols=2)
    for row, texts in zip(table.rows, [("Ship", "Port"), ("Petrel", "Leith")], strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def word_parts():
    with zipfile.ZipFile(io.BytesIO(word_file())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


ODT = """<o:c xmlns:o="o" xmlns:text="t" xmlns:table="b"><o:automatic-styles>no</o:automatic-styles><o:body><o:text>
<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>
<text:h text:outline-level="2">Rent</text:h>
<text:p>A<text:s text:c="2"/>b<text:note><text:note-citation>1</text:note-citation>
<text:note-body><text:p>Six.</text:p></text:note-body></text:note></text:p>
<text:list><text:list-item><text:p>one</text:p></text:list-item></text:list>{}</o:text></o:body></o:c>"""
CELLS = """<table:table table:name="Q1"><table:table-column table:number-columns-repeated="3"/><table:table-row>
<table:table-cell table:number-rows-spanned="2"><text:p>North</text:p></table:table-cell>
<table:table-cell><text:p>7</text:p></table:table-cell>
<table:table-cell table:number-columns-repeated="16000"/></table:table-row><table:table-row>
<table:covered-table-cell/><table:table-cell><text:p>8</text:p></table:table-cell></table:table-row>
<table:table-row table:number-rows-repeated="1000000"><table:table-cell/></table:table-row></table:table>"""


FB2 = """<?xml version="1.0" encoding="windows-1251"?><FictionBook xmlns="f" xmlns:l="l"><description><title-info>
<book-title>Маяк</book-title><author><first-name>А.</first-name> <last-name>Автор</last-name></author></title-info>
</description><body><section><title><p>Один</p></title><p>Туман<a l:href="#n" type="note">1</a>.</p></section></body>
<binary id="p">AAEC</binary></FictionBook>"""  # noqa: RUF001


def ole(streams):
    """An OLE file: its streams by their paths, which are tuples of names, each in sectors of its own."""
    within = {(): []}  # of each folder and stream, those in it
    for path in streams:
        for depth in range(1, len(path) + 1):
            if path[:depth] not in within:
                within[path[: depth - 1]].append(path[:depth])
                within[path[:depth]] = []
    number = {path: place for place, path in enumerate(within)}
    right = {before: number[after] for chain in within.values() for before, after in pairwise(chain)}
    contents = {path: streams[path].ljust(4096, b"\0") if path in streams else b"" for path in within}
    n_sectors = {path: -(-len(content) // 512) for path, content in contents.items()}
    n_directory = -(-len(within) // 4)
    n_fat = next(n for n in range(1, 110) if n + n_directory + sum(n_sectors.values()) <= 128 * n)
    fat = [0xFFFFFFFD] * n_fat + [*range(n_fat + 1, n_fat + n_directory), 0xFFFFFFFE]
    records = b""
    for path, content in contents.items():
        name = (path[-1] if path else "Root Entry").encode("utf-16-le")
        kind = 5 if not path else 2 if path in streams else 1
        first = number[within[path][0]] if within[path] else 0xFFFFFFFF
        links = struct.pack("<III", 0xFFFFFFFF, right.get(path, 0xFFFFFFFF), first)
        records += name.ljust(64, b"\0") + struct.pack("<HBB", len(name) + 2, kind, 1) + links + bytes(36)
        records += struct.pack("<IQ", len(fat) if content else 0xFFFFFFFE, len(content))
        fat += [*range(len(fat) + 1, len(fat) + n_sectors[path]), 0xFFFFFFFE] if content else []
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH", 62, 3, 0xFFFE, 9, 6) + bytes(6)
    head += struct.pack("<IIIIIIIII", 0, n_fat, n_fat, 0, 4096, 0xFFFFFFFE, 0, 0xFFFFFFFE, 0)
    head += struct.pack(f"<{n_fat}I", *range(n_fat))
    table = struct.pack(f"<{len(fat)}I", *fat).ljust(512 * n_fat, b"\xff")
    body = b"".join(content.ljust(512 * n_sectors[path], b"\0") for path, content in contents.items())
    return head.ljust(512, b"\xff") + table + records.ljust(512 * n_directory, b"\0") + body
