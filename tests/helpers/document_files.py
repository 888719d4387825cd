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
    """An OLE file: its streams, each in sectors of its own, in one folder or in folders of that one."""
    folders = sorted({path[0] for path in streams if len(path) > 1})
    entries = [("Root Entry", 5, b"")] + [(name, 1, folder) for name in folders for folder in [b""]]
    entries += [(path[-1], 2, content.ljust(4096, b"\0")) for path, content in streams.items()]
    sectors, table, records = [], [], b""
    top = [*range(1, 1 + len(folders))]
    within = {name: [] for name in folders}
    for number, path in enumerate(streams, 1 + len(folders)):
        (within[path[0]] if len(path) > 1 else top).append(number)
    right = {a: b for chain in (top, *within.values()) for a, b in pairwise(chain)}
    first = {0: top[0]} | {1 + number: within[name][0] for number, name in enumerate(folders)}
    n_directory = -(-len(entries) // 4)
    start = 1 + n_directory
    for number, (name, kind, content) in enumerate(entries):
        raw, count = name.encode("utf-16-le"), len(content) // 512
        at = start + len(sectors) if count else 0xFFFFFFFE
        sectors += [content[i : i + 512] for i in range(0, len(content), 512)]
        table += [at + i + 1 for i in range(count - 1)] + [0xFFFFFFFE] * bool(count)
        kind = 1 if 0 < number <= len(folders) else kind
        links = struct.pack("<III", 0xFFFFFFFF, right.get(number, 0xFFFFFFFF), first.get(number, 0xFFFFFFFF))
        size = len(content)
        records += raw.ljust(64, b"\0") + struct.pack("<HBB", len(raw) + 2, kind, 1) + links + bytes(36)
        records += struct.pack("<IQ", at, size)
    fat = [0xFFFFFFFD, *range(2, 1 + n_directory), 0xFFFFFFFE, *table]
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH", 62, 3, 0xFFFE, 9, 6) + bytes(6)
    head += struct.pack("<IIIIIIIII", 0, 1, 1, 0, 4096, 0xFFFFFFFE, 0, 0xFFFFFFFE, 0) + struct.pack("<I", 0)
    return (
        head.ljust(512, b"\xff")
        + struct.pack(f"<{len(fat)}I", *fat).ljust(512, b"\xff")
        + (records.ljust(512 * n_directory, b"\0") + b"".join(sectors))
    )
