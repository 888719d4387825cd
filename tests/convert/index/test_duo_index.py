"""Indexes of documents that some heads streamed through: what they hold, and that attending to them is duo."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.index_builds import (
    NAME,
    SAME,
    SETTINGS,
    TEXT,
    Recorded,
    arrays_of,
    assert_same_index,
    attach_document,
    build,
    index_document,
    library_of,
    logits_after,
    new_llama,
    said,
)

from octavo import OctavoError
from octavo.convert.identity import identity
from octavo.convert.pipeline import document_tokens, prefill
from octavo.progress import Silent
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.manifest import MANIFEST
from octavo.runtime.store.plan import Plan
from octavo.system.files import read_json, sha256_of

#: Of layer 0 both heads stream, of layer 1 the second, of layer 2 none.
STREAMING = [(0, 0), (0, 1), (1, 1)]
N_SINKS, N_RECENT = 16, 300


@pytest.fixture(scope="module")
def plan(tiny_model):
    order = (*STREAMING, (1, 0), (2, 0), (2, 1))
    return Plan(sha256_of(tiny_model), "duo+squeezed", 0.5, N_SINKS, N_RECENT, {}, order, (None,) * 3)


def duo_llama(model, plan, attention="duo", **options):
    return new_llama(model, attention=attention, plan=plan, **options)


@pytest.fixture(scope="module")
def folder(tiny_model, plan, tmp_path_factory):
    return build(duo_llama(tiny_model, plan), tmp_path_factory.mktemp("indexes"))


@pytest.mark.parametrize("settings", ["", ":prefill=chunk", ":sinks=8,recent=100", ":retrieval=0.2,recent=5000"])
@pytest.mark.parametrize("method", ["", "+squeezed"])
def test_attending_to_the_index_is_reading_the_document_with_duo(tiny_model, plan, tmp_path, settings, method):
    llama = duo_llama(tiny_model, plan, f"duo{settings}")
    tokens = document_tokens(llama, NAME, TEXT)
    prefill(llama, tokens, Silent(), SETTINGS.n_queries(len(tokens)))
    expected = logits_after(llama)
    document, _ = open_index(build(llama, tmp_path), sha256_of(tiny_model))
    attached = duo_llama(tiny_model, plan, f"duo{settings}{method}", budget=1.0)
    attached.attach(document)
    np.testing.assert_allclose(logits_after(attached), expected, atol=SAME)


def test_rule_7_streaming_heads_have_arrays_of_their_own(folder):
    layers, n_tokens = arrays_of(folder), len(arrays_of(folder)["document.safetensors"]["tokens"])
    first, second, third = (layers[f"layer-00{i}.safetensors"] for i in range(3))
    assert first["keys"].shape[:2] == (0, n_tokens)
    assert second["keys"].shape[:2] == second["order"].shape == (1, n_tokens)
    assert second["centroids"].shape[0] == 1
    assert not [name for name in third if name.startswith("streaming")]
    for arrays, heads in ((first, [0, 1]), (second, [1])):
        assert arrays["streaming"].tolist() == heads
        assert arrays["streaming_sinks"].tolist() == [N_SINKS]
        for name in ("streaming_keys", "streaming_values"):
            assert arrays[name].shape[:2] == (len(heads), N_SINKS + N_RECENT - 1)
    described = {"heads": [list(head) for head in STREAMING], "sinks": N_SINKS, "recent": N_RECENT, "prefill": "exact"}
    assert read_json(folder / MANIFEST)["duo"] == described


def test_streaming_heads_hold_the_first_and_the_last_rows(tiny_model, plan, folder):
    document, _ = open_index(folder, sha256_of(tiny_model))
    llama = duo_llama(tiny_model, replace(plan, retrieval_heads=1.0))  # of layer 0, keys do not depend on attention
    llama.eval(document.tokens.tolist())
    keys, values = llama.context.cache.document_rows(0)[0]
    kept = np.r_[:N_SINKS, len(document.tokens) - N_RECENT + 1 : len(document.tokens)]
    streaming = document.layers[0].streaming
    np.testing.assert_array_equal(streaming.keys, keys[:, kept])
    np.testing.assert_array_equal(streaming.values, values[:, kept])


def test_it_takes_less_on_the_disk_and_in_memory(tiny_model, plan, folder, tmp_path):
    whole, own = build(new_llama(tiny_model), tmp_path), folder
    sizes = [sum(file.stat().st_size for file in path.iterdir()) for path in (whole, own)]
    assert sizes[1] < 0.75 * sizes[0]
    documents = [open_index(path, sha256_of(tiny_model))[0] for path in (whole, own)]
    n_tokens = len(documents[0].tokens)
    kept = 3 * n_tokens + 3 * (N_SINKS + N_RECENT - 1)
    assert documents[1].n_bytes / documents[0].n_bytes == pytest.approx(kept / (6 * n_tokens))


@pytest.mark.parametrize("attention", ["dense", "duo:retrieval=0.7", "duo:recent=301", "duo:sinks=17"])
def test_an_attention_that_needs_more_rows_is_refused(tiny_model, plan, folder, attention):
    llama = duo_llama(tiny_model, plan, attention)
    document, _ = open_index(folder, sha256_of(tiny_model))
    with pytest.raises(OctavoError, match=r"holds only sinks and recent rows of some heads.*: attend to it with duo"):
        llama.attach(document)


def test_what_streams_is_part_of_the_identity(tiny_model, plan):
    llama = duo_llama(tiny_model, plan)
    found = {}
    for attention in (
        *("dense", "squeezed", "duo", "duo:retrieval=0.7", "duo:recent=100", "duo:sinks=4"),
        *("duo:prefill=chunk", "duo+quest"),
    ):
        llama.set_attention(attention)
        found[attention] = identity(llama, SETTINGS)
    assert found["dense"] == found["squeezed"]
    assert "duo" not in found["dense"]
    assert found["duo"] == found["duo+quest"]
    del found["squeezed"], found["duo+quest"]
    assert all(found[a] != found[b] for a in found for b in found if a < b)
    assert found["duo:prefill=chunk"]["duo"]["batch"] == llama.n_batch


def test_duo_makes_and_finds_an_index_of_its_own(tiny_model, plan, tmp_path):
    path, notices = tmp_path / NAME, []
    path.write_text(TEXT)
    plain, llama = new_llama(tiny_model), duo_llama(tiny_model, plan, "duo+squeezed", budget=0.5)
    library = library_of(plain, tmp_path)
    whole = index_document(plain, library, path, Silent(), notices.append)
    attach_document(llama, library, path, Silent(), notices.append)
    assert said(notices) == [f"Indexing {NAME}, once."] * 2
    assert (str(llama.attention), llama.attention.budget) == ("duo+squeezed", 0.5)
    own = index_document(llama, library, path, Silent(), notices.append)
    assert own != whole
    assert said(notices)[-1] == f"{NAME} is indexed already: {own}"


@pytest.mark.parametrize("at", [2, 6, 7])
def test_an_interrupted_build_goes_on_to_the_same_index(tiny_model, plan, folder, tmp_path, at):
    with pytest.raises(KeyboardInterrupt):
        build(duo_llama(tiny_model, plan), tmp_path, progress=Recorded(at))
    assert_same_index(build(duo_llama(tiny_model, plan), tmp_path), folder)
