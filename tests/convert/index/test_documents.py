"""Documents as users open them: short, changed, repeated, and read with sliding windows."""

import re
import shutil
import time

import numpy as np
import pytest
from helpers import tiny_models
from helpers.index_builds import (
    NAME,
    SAME,
    SETTINGS,
    TEXT,
    Recorded,
    assert_same_index,
    attach_document,
    attached_logits,
    build,
    evaluate_directly,
    index_document,
    library_of,
    logits_after,
    new_llama,
    said,
    text_of,
    thresholds_of,
)

from octavo import OctavoError
from octavo.convert.pipeline import document_tokens
from octavo.library import source_text
from octavo.progress import Silent
from octavo.prompts.conversation_tokens import ConversationTokens
from octavo.runtime.document.index import Calibration
from octavo.runtime.document.thresholds import measured_curve
from octavo.runtime.store.index_files import open_index

# Documents as users open them.


def open_file(llama, folder, document, notices):
    attach_document(llama, library_of(llama, folder), document, Silent(), notices.append)
    return llama.context.cache.document


def test_a_text_is_tokenised_once_to_be_indexed(llama, tmp_path, monkeypatch):
    document, tokenised = tmp_path / NAME, []
    document.write_text(TEXT)
    of_text = ConversationTokens.document
    monkeypatch.setattr(
        ConversationTokens, "document", lambda self, text: tokenised.append(text) or of_text(self, text)
    )
    open_file(llama, tmp_path, document, [])
    assert tokenised.count(TEXT) == 1


def test_a_document_is_indexed_once(llama, tmp_path):
    document, notices = tmp_path / NAME, []
    document.write_text(TEXT)
    first = open_file(llama, tmp_path, document, notices)
    assert said(notices) == [f"Indexing {NAME}, once."]
    time.sleep(0.01)
    document.touch()
    second = open_file(llama, tmp_path, document, notices)
    assert len(said(notices)) == 1
    np.testing.assert_array_equal(first.tokens, second.tokens)
    library = library_of(llama, tmp_path)
    path = index_document(llama, library, document, Silent(), notices.append)
    assert said(notices)[1:] == [f"{NAME} is indexed already: {path}"]
    assert [each for each, _ in library.indexes()] == [path]


def test_a_document_that_has_changed_is_indexed_again(llama, tmp_path):
    document, notices = tmp_path / NAME, []
    document.write_text(TEXT)
    open_file(llama, tmp_path, document, notices)
    document.write_text(TEXT + " And one more sentence.")
    changed = open_file(llama, tmp_path, document, notices)
    assert said(notices)[1] == f"{NAME} has changed since it was indexed, so it is indexed again."
    assert llama.detokenize(changed.tokens.tolist()).endswith(b"one more sentence.")
    document.write_text(TEXT)
    open_file(llama, tmp_path, document, notices)
    assert len(said(notices)) == 2  # the first index is still there


def test_a_document_that_has_changed_is_known_by_a_link_too(llama, tmp_path):
    document, link, notices = tmp_path / NAME, tmp_path / "link to it.txt", []
    link.symlink_to(document)
    document.write_text(TEXT)
    open_file(llama, tmp_path, document, notices)
    document.write_text(TEXT + " And one more sentence.")
    open_file(llama, tmp_path, link, notices)
    assert said(notices)[1] == "link to it.txt has changed since it was indexed, so it is indexed again."


def test_a_renamed_copy_is_not_read_again(llama, tmp_path):
    document, copy, notices = tmp_path / NAME, tmp_path / "copy of it.txt", []
    document.write_text(TEXT)
    copy.write_text(TEXT)
    open_file(llama, tmp_path, document, notices)
    open_file(llama, tmp_path, copy, notices)
    assert said(notices) == [f"Indexing {NAME}, once."]


def test_a_file_that_is_as_it_was_indexed_is_not_read_again(llama, tmp_path, monkeypatch):
    document, notices = tmp_path / NAME, []
    document.write_text(TEXT)
    first = open_file(llama, tmp_path, document, notices)
    with monkeypatch.context() as patch:
        patch.setattr(source_text, "extract_document", lambda *_: pytest.fail("it was read"))
        np.testing.assert_array_equal(open_file(llama, tmp_path, document, notices).tokens, first.tokens)
    document.write_text(TEXT[::-1])  # as many bytes
    assert open_file(llama, tmp_path, document, notices).tokens.tolist() != first.tokens.tolist()
    assert len(said(notices)) == 2


def test_two_files_of_one_name_are_two_documents(llama, tmp_path):
    notices, paths = [], [tmp_path / folder / NAME for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(f"{path.parent.name} {TEXT}")
        open_file(llama, tmp_path, path, notices)
    assert said(notices) == [f"Indexing {NAME}, once."] * 2


def test_an_index_knows_where_pages_and_headings_begin(llama, tmp_path):
    document = tmp_path / "log.md"
    document.write_text(f"# Ships\n\n{TEXT}\n\n## Lights\n\n{TEXT}")
    library = library_of(llama, tmp_path)
    path = index_document(llama, library, document, Silent(), [].append)
    described = open_index(path, library.model_hash)[1]["document"]
    assert described["places"] == [[0, None, "Ships"], [len(TEXT) + 11, None, "Ships > Lights"]]
    assert described["path"] == str(document)


def test_indexing_measures_what_the_attention_asks_for_and_nothing_else(tiny_model, tmp_path):
    document = tmp_path / NAME
    document.write_text(TEXT)
    kept = []
    for attention in ("quest", "squeezed", "squeezed:threshold=head", "squeezed2:threshold=global"):
        llama = new_llama(tiny_model, attention=attention)
        library = library_of(llama, tmp_path)
        path = index_document(llama, library, document, Silent(), lambda message: None)
        kept.append(set(open_index(path, library.model_hash)[0].curves))
    usual, coarse = Calibration(), Calibration("global", levels=2)
    assert kept == [set(), set(), {usual}, {usual, coarse}]


def test_indexing_leaves_the_attention_as_it_was(llama, tmp_path):
    document = tmp_path / NAME
    document.write_text(TEXT)
    llama.set_attention("squeezed", 0.4)
    open_file(llama, tmp_path, document, [])
    assert (str(llama.attention), llama.attention.budget) == ("squeezed", 0.4)
    expected = build(llama, tmp_path / "dense")  # `build` is told to attend densely by its caller only
    assert expected.exists()


@pytest.mark.parametrize("n_characters", [1, 2, 50, 99, 100, 101, 300])
@pytest.mark.parametrize("budget", [0.01, 0.5, 1.0])
def test_a_short_document_is_attended_whole(llama, tmp_path, n_characters, budget):
    text = text_of(n_characters)
    path = build(llama, tmp_path, text)
    document, manifest = open_index(path, library_of(llama, tmp_path).model_hash)
    assert document.queries == []
    assert measured_curve(document, Calibration()) is None
    for layer in document.layers:
        assert (layer.n_clusters, layer.n_coarse) == (0, 0)
        assert layer.coarse_centroids.shape == (2, 0, 64)
        assert layer.coarse_starts.shape == (2, 1)
        assert layer.order.shape == (2, 0)
    assert manifest["document"]["tokens"] == len(document.tokens)
    evaluate_directly(llama, document.tokens.tolist())
    expected = logits_after(llama)
    np.testing.assert_allclose(attached_logits(llama, document, "squeezed", budget), expected, atol=SAME)


def test_a_document_is_clustered_from_a_given_length_on(llama, tmp_path):
    n_head = len(document_tokens(llama, NAME, "a")) - 1
    for n_tokens, clustered in [(SETTINGS.shortest - 1, False), (SETTINGS.shortest, True)]:
        text = "xy" * 1000
        text = text[: n_tokens - n_head]
        assert len(document_tokens(llama, NAME, text)) == n_tokens
        document, _ = open_index(build(llama, tmp_path, text), library_of(llama, tmp_path).model_hash)
        assert [layer.n_clusters > 0 for layer in document.layers] == [clustered] * 3
        assert (measured_curve(document, Calibration()) is not None) == clustered


def test_a_document_of_one_word_repeated_works(llama, tmp_path):
    """Fewer distinct directions than clusters, perhaps: clusters may be empty."""
    path = build(llama, tmp_path, "z" * 1500)
    document, _ = open_index(path, library_of(llama, tmp_path).model_hash)
    evaluate_directly(llama, document.tokens.tolist())
    expected = logits_after(llama)
    np.testing.assert_allclose(attached_logits(llama, document, "squeezed", 1.0), expected, atol=SAME)
    assert np.isfinite(attached_logits(llama, document, "squeezed", 0.3)).all()


def test_the_size_of_batches_does_not_change_the_index(llama, index, tmp_path):
    path = build(new_llama(llama.model_path, n_batch=SETTINGS.exact_last), tmp_path)
    expected, actual = (open_index(each, library_of(llama, tmp_path).model_hash)[0] for each in (index, path))
    np.testing.assert_array_equal(actual.tokens, expected.tokens)
    curves = [measured_curve(each, Calibration()) for each in (expected, actual)]
    for budget in (0.15, 0.3, 0.6):
        logs = [np.log(thresholds_of(curve, budget)) for curve in curves]
        assert logs[0] == pytest.approx(logs[1], abs=0.1)


def test_batches_too_small_to_calibrate_on_are_refused(llama, tmp_path):
    with pytest.raises(OctavoError, match="n_batch=100 or more"):
        build(new_llama(llama.model_path, n_batch=SETTINGS.exact_last - 1), tmp_path)


# Sliding windows.


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    path = tmp_path_factory.mktemp("gemma") / "gemma.gguf"
    return new_llama(tiny_models.write_model(path, "gemma3", n_layer=6, window=32))


@pytest.mark.parametrize("n_characters", [20, 1600])
def test_a_model_with_sliding_windows_gives_the_logits_of_the_document(gemma, tmp_path, n_characters):
    path = build(gemma, tmp_path, text_of(n_characters))
    document, _ = open_index(path, library_of(gemma, tmp_path).model_hash)
    n_tokens = len(document.tokens)
    kept = min(32, n_tokens)
    assert [layer.keys.shape[1] for layer in document.layers] == [kept] * 5 + [n_tokens]
    assert [layer.position for layer in document.layers[:5]] == [n_tokens - kept] * 5
    clustered = [False] * 5 + [n_tokens >= SETTINGS.shortest]
    assert [layer.order.shape[1] == n_tokens for layer in document.layers] == clustered
    assert [layer.n_coarse > 0 for layer in document.layers] == clustered
    assert (document.layers[5].n_clusters > 0) == (n_tokens >= SETTINGS.shortest)
    evaluate_directly(gemma, document.tokens.tolist())
    expected = logits_after(gemma)
    np.testing.assert_allclose(attached_logits(gemma, document, "dense"), expected, atol=SAME)
    np.testing.assert_allclose(attached_logits(gemma, document, "squeezed", 1.0), expected, atol=SAME)
    long_tail = np.random.default_rng(0).integers(0, 256, 50).tolist()  # the window leaves the document behind
    logits = []
    for attach in (lambda: gemma.attach(document), lambda: evaluate_directly(gemma, document.tokens.tolist())):
        gemma.set_attention("dense")
        gemma.reset()
        attach()
        gemma.eval(long_tail)
        gemma.eval([1])
        logits.append(gemma.logits())
    np.testing.assert_allclose(*logits, atol=SAME)


def test_an_interrupted_build_with_sliding_windows_goes_on_to_the_same_index(gemma, tmp_path):
    expected = build(gemma, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        build(gemma, tmp_path / "interrupted", progress=Recorded(at=8))
    assert_same_index(build(gemma, tmp_path / "interrupted"), expected)


def test_what_an_index_takes_is_said_before_and_after(llama, tmp_path):
    """The second time with how long it takes, by the first; and what is known of a text that was appended to."""
    document, notices = tmp_path / NAME, []
    document.write_text(text_of(2600))
    open_file(llama, tmp_path, document, notices)
    before, after = notices
    n_tokens = len(document_tokens(llama, NAME, document.read_text()))
    expected = re.fullmatch(rf"Indexing {NAME}, once: {n_tokens:,} tokens, about ([\d,]+) MiB\.", before)
    measured = re.fullmatch(rf"Indexed {n_tokens:,} tokens in \d+ s: ([\d,]+) MiB\.", after)
    assert int(measured[1]) == pytest.approx(int(expected[1]), rel=0.1)
    document.write_text(text_of(2600) + " And one more sentence.")
    open_file(llama, tmp_path, document, notices)
    assert re.fullmatch(
        rf"{NAME} has .* again: [\d,]+ tokens, 2,048 of them known, about \d+ MiB and \d+ s\.", notices[2]
    )


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"document": 1}'])
def test_a_damaged_neighbour_stops_nothing(llama, index, tmp_path, damage):
    shutil.copytree(index.parent.parent, tmp_path / "library", dirs_exist_ok=True)
    (manifest,) = (tmp_path / "library").glob("*/*/manifest.json")
    manifest.write_text(damage)
    document, notices = tmp_path / "other.txt", []
    document.write_text("The sky is blue. " * 20)
    open_file(llama, tmp_path / "library", document, notices)
    assert said(notices) == ["Indexing other.txt, once."]
    open_file(llama, tmp_path / "library", document, notices)
    assert len(said(notices)) == 1
