"""Documents of each kind, to read in tests."""

import io
import zipfile

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
