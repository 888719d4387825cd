"""Passages and excerpts of a long table come below the names of its columns, whichever file the table is of."""

import io

import numpy as np
import pytest
from helpers.index_builds import Recorded
from helpers.pdf_files import PdfWriter

import octavo
from octavo.ask.context.answer_context import at_once
from octavo.ask.context.document_set import open_document_set
from octavo.ask.context.excerpts import lay_out
from octavo.ask.context.passages import PassageFinder, PassagePlan
from octavo.ask.search.ranking import Span
from octavo.documents.extract import extract_document
from octavo.documents.table_heads import TableHeads
from octavo.library.file_texts import FileTexts
from octavo.library.open_index import Indexer
from octavo.library.source_text import SourceFile
from octavo.library.text_store import TextStore
from octavo.progress import Silent, of_many
from octavo.runtime.llama import Llama
from octavo.runtime.query_recorder import QueryHead
from octavo.runtime.store.library_snapshot import LibrarySnapshot
from octavo.runtime.store.model_library import Library

NAMES = ["part", "name", "store", "price"]
KINDS, STORES = ("bolt", "nut", "rope", "lamp", "hook"), ("north", "south", "quay")
ROWS = [[f"KX-{1000 + i}-A", f"{KINDS[i % 5]} {i}", STORES[i % 3], f"{i * 7 % 50}.50"] for i in range(120)]
QUESTION = "How much does KX-1083-A cost?"


def separated(rows):
    return "".join(f"{','.join(row)}\n" for row in rows).encode()


def markdown(rows):
    return "".join(f"| {' | '.join(row)} |\n" for row in [rows[0], ["---"] * 4, *rows[1:]]).encode()


def web_page(rows):
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<html><body><table>{cells}</table></body></html>".encode()


def sheet(rows):
    from openpyxl import Workbook

    book, content = Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(content)
    return content.getvalue()


def word(rows):
    from docx import Document

    document, content = Document(), io.BytesIO()
    table = document.add_table(0, len(rows[0]))
    for row in rows:
        for cell, text in zip(table.add_row().cells, row, strict=True):
            cell.text = text
    document.save(content)
    return content.getvalue()


def pdf(rows):
    """Pages of 50 rows, of which the first alone has the names."""
    writer = PdfWriter()
    for first in range(0, len(rows), 50):
        own = enumerate(rows[first : first + 50])
        writer.page(*((60 + 120 * x, 780 - 14 * y, cell) for y, row in own for x, cell in enumerate(row)))
    return writer.content()


FILES = {
    "stock.csv": separated, "stock.md": markdown, "stock.html": web_page, "stock.xlsx": sheet, "stock.docx": word,
    "stock.pdf": pdf,
}  # fmt: skip
LONG_HEAD = ["a name that is much longer than a name of a column has to be " * 10, *NAMES[1:]]


@pytest.fixture(scope="module")
def llama(tiny_model):
    model = Llama(tiny_model, n_ctx=2048, n_threads=2)
    yield model
    model.close()


@pytest.mark.parametrize("name", FILES)
def test_a_place_in_a_table_knows_the_names_of_its_columns(name, tmp_path):
    (tmp_path / name).write_bytes(FILES[name]([NAMES, *ROWS]))
    document = extract_document(tmp_path / name)
    for part in ("KX-1007", "KX-1049", "KX-1050", "KX-1119"):
        head = document.table_heads.head(document.text.index(part) + 4)
        assert all(column in head for column in NAMES)
        assert "KX" not in head


def test_a_passage_comes_below_the_names_of_its_columns_and_keeps_its_place(llama, tmp_path):
    for name in ("stock.csv", "stock.md"):
        (tmp_path / name).write_bytes(FILES[name]([NAMES, *ROWS]))
    with TextStore(tmp_path / "texts.sqlite") as store:
        sources = [store.add(extract_document(tmp_path / name)) for name in ("stock.csv", "stock.md")]
        finder = PassageFinder(llama, store, sources)
        candidates, found = finder.search(QUESTION)
        plan = PassagePlan(candidates, tuple(piece for piece in found[:4] if piece.start)[:2])
        context = at_once(finder.evaluate(plan, lambda: llama.n_batch))
        read = {source: store.document(source.number) for source in sources}
    llama.reset()
    at = context.index.n_prefix
    assert {span.document for span in context.spans} == set(sources)
    for document, start, stop in context.spans:
        shown = [llama.piece(token).decode() for token in context.index.tokens[at : at + stop - start].tolist()]
        title, names, *rows = "".join(shown).splitlines()
        assert title == f"[{document.name}]"
        assert all(column in names for column in NAMES)
        assert sum(NAMES[0] in row for row in rows) == 0
        text, n_title = context.text_of(document), len(title) + 1
        for place, piece in zip(text.starts[start:stop], shown, strict=True):
            assert n_title > 0 or read[document].text.startswith(piece, place) or not piece.strip()
            n_title -= len(piece)
        at += stop - start


def test_a_row_is_found_by_the_name_of_its_column(tmp_path):
    (tmp_path / "stock.csv").write_bytes(separated([NAMES, *ROWS]))
    with TextStore(tmp_path / "texts.sqlite") as store:
        number = store.add(extract_document(tmp_path / "stock.csv")).number
        text = store.document(number).text
        best = store.search("What is the price of rope 82?", [number])[0]
    assert "rope 82" in text[best.start : best.stop]


@pytest.fixture
def opened(llama, tmp_path):
    """opened(files): the set of files of a name and rows, which the model has read."""

    def open_them(files):
        for name, rows in files.items():
            (tmp_path / name).write_bytes(FILES[f"stock.{name.rpartition('.')[2]}"](rows))
        library = Library.of(llama.model_path, tmp_path)
        indexer = Indexer(llama, LibrarySnapshot(library), octavo.ReadSettings(prefill="dense"), lambda said: None)
        sources = [SourceFile(tmp_path / name) for name in files]
        texts = FileTexts(library, Silent())
        return open_document_set(indexer, sources, texts, of_many(Recorded(), 1), [QueryHead(0, 0, 0)])

    return open_them


def laid_out(llama, document_set, spans):
    """Return the context of excerpts, and the text of each of its spans."""
    context = at_once(lay_out(llama, document_set, spans, lambda: llama.n_batch))
    texts, at = [], context.index.n_prefix
    for _, start, stop in context.spans:
        texts.append(b"".join(llama.piece(token) for token in context.index.tokens[at : at + stop - start]).decode())
        at += stop - start
    return context, texts


def span_of(document_set, document, place, n_tokens=128):
    """Return the excerpt that begins within the row of a place."""
    text = document_set.whole(document).text_of(document)
    first = int(np.searchsorted(text.starts, text.text.index(place))) + 3
    return Span(document, first, min(first + n_tokens, len(text.starts)))


def test_excerpts_of_indexes_come_below_the_names_of_their_columns(llama, opened):
    document_set = opened(
        {"stock.md": [NAMES, *ROWS[:24]], "more.csv": [["piece", "kind"], *(row[:2] for row in ROWS)][:24]}
    )
    stock, more = document_set.documents
    head = "| part | name | store | price |\n| --- | --- | --- | --- |"
    spans = [span_of(document_set, more, "KX-1006"), *(span_of(document_set, stock, f"KX-100{n}") for n in (4, 8))]
    context, texts = laid_out(llama, document_set, [Span(stock, 0, 200), *spans])
    assert [text.strip() for text in texts[-4::2]] == [head, head]
    for text, number in zip(texts[-3::2], (4, 8), strict=True):
        assert text.lstrip("\n").startswith(f"| KX-100{number}-A |")
    assert context.share.n_passages == len(texts) - 2 - (len(texts) > 5)
    n_asked = sum(span.stop - span.start for span in spans) + 200
    assert len(context.index.tokens) - context.index.n_prefix <= n_asked + 10 * len(spans)  # rows from their beginning
    _, texts = laid_out(llama, document_set, spans[:1])
    assert texts[0].strip() == "piece,kind"
    assert texts[1].startswith("KX-1006-A,nut 6")
    attended = np.zeros((1, len(context.index.tokens)), np.float32)
    attended[0, -60:] = 0.01
    for document, passage in context.sources(attended, "", "", 3):
        text = document_set.whole(document).text_of(document).text
        assert " ".join(text[passage.start : passage.stop].split()) == passage.quote
        assert text.count("\n", 0, passage.start) + 1 == passage.line


def test_an_excerpt_without_a_table_or_at_its_beginning_stays_as_it_is(llama, opened):
    document_set = opened({"stock.md": [NAMES, *ROWS[:9]], "long.md": [LONG_HEAD, *ROWS[:9]]})
    stock, long = document_set.documents
    context, _ = laid_out(llama, document_set, [Span(stock, 0, 300)])
    assert context.spans == [Span(stock, 0, 300)]
    span = span_of(document_set, long, "KX-1006")
    context, texts = laid_out(llama, document_set, [span])  # its head takes more room than the excerpt has
    assert len(texts) == context.share.n_passages == 1


@pytest.mark.parametrize("name", ["stock.csv", "stock.md"])
def test_a_part_of_a_long_document_has_the_names_of_an_earlier_part(llama, opened, name):
    document_set = opened({name: [NAMES, *ROWS]})
    parts = document_set.documents
    assert len(parts) > 2
    assert TableHeads(document_set.whole(parts[2]).text_of(parts[2]).text, parts[2].name).n_continued
    context, texts = laid_out(llama, document_set, [Span(parts[2], 50, 200)])
    assert [span.document for span in context.spans] == [parts[0], parts[2]]
    assert all(column in texts[0] for column in NAMES)
    assert context.documents == [parts[2], parts[0]]
