"""Indexes of a model whose template writes the date before a document: they outlive the day on which they were made."""

import shutil
from datetime import datetime

import numpy as np
import pytest
from helpers import tiny_models
from helpers.index_builds import SETTINGS, Recorded, assert_same_index, library_of, text_of

import octavo
from octavo.ask.context.answer_context import at_once
from octavo.ask.context.document_set import open_document_set
from octavo.ask.context.excerpts import lay_out
from octavo.ask.search.ranking import Span
from octavo.convert.identity import identity
from octavo.library.file_texts import FileTexts
from octavo.library.open_index import Indexer
from octavo.library.source_text import SourceFile, identify
from octavo.progress import Silent, of_many
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.library_snapshot import LibrarySnapshot
from octavo.runtime.store.manifest import DATELESS_HEAD, read_manifest, save_manifest
from octavo.settings import ReadSettings

#: As Llama 3.2's: the head's number of tokens depends on the day, too.
TEMPLATE = tiny_models.CHAT_TEMPLATE.replace(
    "{% for",
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %B %Y') %}{% endif %}"
    "<|im_start|>system\nToday Date: {{ date_string }}\n\n<|im_end|>\n{% for",
    1,
)
MAY, SEPTEMBER = datetime(2026, 5, 31, 23, 59), datetime(2026, 9, 1, 0, 1)
TEXT = text_of(1600)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tiny_models.write_model(tmp_path_factory.mktemp("dated") / "tiny.gguf", "llama", chat_template=TEMPLATE)
    llama = octavo.Llama(path, n_ctx=4096, n_threads=2)
    yield llama
    llama.close()


@pytest.fixture
def clock(monkeypatch):
    """Set the clock that templates are told."""
    return lambda time: monkeypatch.setattr("octavo.prompts.chat_template.now", lambda: time)


@pytest.fixture
def opens(llama, clock, tmp_path):
    """Open a text on a day, as a new octavo would; the folder of its index, and what was reported and said."""
    document = tmp_path / "document.txt"

    def open_(time, text=TEXT, at=None):
        clock(time)
        document.write_text(text)
        progress = Recorded(at)
        indexer = Indexer(
            llama, LibrarySnapshot(library_of(llama, tmp_path)), ReadSettings(prefill="dense"), progress.notice
        )
        hashed = identify(SourceFile(document), indexer.snapshot, progress)
        indexer.attach(hashed, progress)
        return indexer.find(hashed), progress

    return open_


def test_the_head_has_the_date_and_the_identity_has_not(llama, clock):
    clock(MAY)
    may, of_may = llama.prompt().head(), identity(llama, SETTINGS)
    clock(SEPTEMBER)
    september = llama.prompt().head()
    assert b"31 May 2026" in llama.detokenize(may)
    assert b"01 September 2026" in llama.detokenize(september)
    assert len(may) != len(september)
    assert identity(llama, SETTINGS) == of_may


def test_an_index_is_opened_the_next_day_with_its_own_head(llama, opens):
    path, made = opens(MAY)
    head = llama.prompt().head()
    again, opened = opens(SEPTEMBER)
    assert again == path
    assert any("Indexing" in notice for notice in made.notices)
    assert (opened.notices, opened.reports) == ([], [])
    document = llama.context.cache.document
    assert document.n_prefix == len(head) != len(llama.prompt().head())
    assert document.tokens.tolist() == head + llama.prompt().document(TEXT)


def test_a_build_that_midnight_interrupts_goes_on_with_its_head(llama, opens, tmp_path):
    whole, _ = opens(MAY, TEXT + " ")
    expected = shutil.copytree(whole, tmp_path / "expected")
    shutil.rmtree(whole)
    with pytest.raises(KeyboardInterrupt):
        opens(MAY, TEXT + " ", at=5)
    path, _ = opens(SEPTEMBER, TEXT + " ")
    assert_same_index(path, expected)
    assert read_manifest(path)["head"] == read_manifest(expected)["head"]
    assert not list(path.glob("prefill-*"))


def test_of_a_text_that_grew_overnight_only_what_is_new_is_read(llama, opens):
    opens(MAY)
    head = llama.prompt().head()
    path, progress = opens(SEPTEMBER, TEXT + " And more.")
    assert progress.done_before[0] == 1024
    assert read_manifest(path)["head"] == head
    fresh = text_of(1600, seed=1)
    path, progress = opens(SEPTEMBER, fresh)
    assert progress.done_before[0] == 0
    assert read_manifest(path)["head"] == llama.prompt().head() != head


def test_a_damaged_index_is_healed_with_its_head(llama, opens, tmp_path):
    path, _ = opens(MAY)
    expected = shutil.copytree(path, tmp_path / "expected")
    (path / "layer-001.safetensors").write_bytes(b"?")
    again, _ = opens(SEPTEMBER)
    assert again == path
    assert_same_index(path, expected)
    assert read_manifest(path)["head"] == read_manifest(expected)["head"]
    (path / "manifest.json").write_text("{")
    again, _ = opens(SEPTEMBER)  # nobody knows its head, and so none of its layers is used
    assert read_manifest(again)["head"] == llama.prompt().head()
    document, _ = open_index(again, library_of(llama, tmp_path).model_hash)
    assert document.tokens.tolist() == llama.prompt().head() + llama.prompt().document(TEXT)


@pytest.mark.parametrize("seconds", [0, 600])
def test_an_index_that_an_older_octavo_named_by_its_day_is_found(llama, clock, opens, tmp_path, seconds):
    """It was made within a day, or was begun before midnight."""
    path, _ = opens(MAY)
    library, manifest = library_of(llama, tmp_path), read_manifest(path)
    settings = {name: manifest[name] for name in ("format_version", "head", "clustering", "rope")}
    older = path.with_name(f"document-{library.digest(manifest['document']['sha256'], settings)}")
    path.rename(older)
    del manifest[DATELESS_HEAD]
    made = MAY if not seconds else datetime(2026, 6, 1, 0, 5)
    save_manifest(older, {**manifest, "created": made.astimezone().isoformat(), "seconds": seconds})
    again, opened = opens(SEPTEMBER)
    assert again == older != path
    assert opened.notices == []
    save_manifest(older, {**manifest, "created": SEPTEMBER.astimezone().isoformat()})
    assert opens(SEPTEMBER)[0] == path  # of no day that its time gives: made again


def test_documents_of_several_days_are_asked_together(llama, clock, tmp_path):
    texts = [text_of(700, seed) for seed in (1, 2)]
    for time, name, text in ((MAY, "a.txt", texts[0]), (SEPTEMBER, "b.txt", texts[1])):
        clock(time)
        (tmp_path / name).write_text(text)
        indexer = Indexer(llama, LibrarySnapshot(library_of(llama, tmp_path)), ReadSettings(), lambda notice: None)
        files = [SourceFile(path) for path in sorted(tmp_path.glob("*.txt"))]
        of_files = FileTexts(indexer.library, Silent())
        document_set = open_document_set(indexer, files, of_files, of_many(Silent(), len(files)), [])
    a, b = document_set.documents
    assert document_set.n_prefix(a) != document_set.n_prefix(b)
    for document, text in zip((a, b), texts, strict=True):
        assert document_set.texts[document].tolist() == llama.prompt().document(text)
    index = at_once(lay_out(llama, document_set, [Span(b, 20, 60), Span(a, 100, 300)], lambda: 512)).index
    own = [*document_set.texts[b][20:60], *document_set.texts[a][100:300]]
    assert index.tokens.tolist() == [*document_set.tokens(b)[: document_set.n_prefix(b)], *own]
    keys = {each: document_set.whole(each).index for each in (a, b)}
    assert index.n_prefix == keys[b].n_prefix
    llama.reset()
    llama.prefill(index.tokens.tolist())
    # In the first layer a key depends on its token and its place alone.
    np.testing.assert_allclose(
        np.asarray(index.layers[0].keys, np.float32), np.asarray(llama.context.cache.rows(0)[0], np.float32), atol=0.02
    )
