"""How documents are read: everything, or the keys that hold most of a batch's attention."""

import numpy as np
import pytest
from helpers.index_builds import NAME, index_document, library_of, said, text_of

import octavo
from octavo.convert import pipeline
from octavo.cpu_kernels.prefill.integer_tiles import OF_BYTES
from octavo.cpu_kernels.prefill.sparse_prefill import FEWEST_BLOCKS
from octavo.cpu_kernels.prefill.tile_scratch import BLOCK
from octavo.progress import Silent
from octavo.runtime.document.stored_rows import as_floats
from octavo.runtime.store.index_files import open_index
from octavo.settings import PREFILLS, ReadSettings

N_DENSE = FEWEST_BLOCKS * BLOCK  # tokens up to which everything is read

#: How far products may be rounded where a document is read: int16 have 13 bits, bytes 7.
ROUNDED, ROUNDED_TO_BYTES = 0.002, 0.05


@pytest.fixture
def llama(tiny_model):
    return octavo.Llama(tiny_model, n_ctx=8192, n_threads=2, attention="dense")


def index(llama, folder, prefill, n_characters=5200, notices=None):
    """The index of a document, with rows in the order of the text, and its manifest."""
    document = folder / NAME
    document.write_text(text_of(n_characters))
    notice = (notices if notices is not None else []).append
    path = index_document(llama, library_of(llama, folder), document, Silent(), notice, prefill)
    return *open_index(path, library_of(llama, folder).model_hash), path


def in_order(layer):
    """Keys and values in the order of the text, as numbers."""
    order = np.argsort([layer.positions(head) for head in range(len(layer.keys))], axis=1)[..., None]
    return [np.take_along_axis(as_floats(rows), order, axis=1) for rows in (layer.keys, layer.values)]


def test_a_long_document_is_read_by_blocks(llama, tmp_path, monkeypatch):
    """The keys of the first layer follow from the tokens. Those of the next ones change where something is left out.

    The random weights of the model attend to nearly all of the text, so this leaves out more than usual.
    """
    monkeypatch.setattr(pipeline, "ATTENTION_SHARE", 0.97)
    for prefill in PREFILLS:
        (tmp_path / prefill).mkdir()
    (dense, dense_manifest, _), (sparse, manifest, _) = (index(llama, tmp_path / each, each) for each in PREFILLS)
    assert manifest["prefill_covers"] == 0.97
    assert "prefill_covers" not in dense_manifest
    first, *others = zip(sparse.layers, dense.layers, strict=True)
    shape = llama.context.shapes[0]  # bf16, of 8 bits, is no coarser than bytes
    rounded = ROUNDED_TO_BYTES if shape.on_amx or (OF_BYTES and shape.on_integers) else ROUNDED
    for own, expected in zip(*map(in_order, first), strict=True):
        np.testing.assert_array_equal(own, expected)
    for pair in others:
        for own, expected in zip(*map(in_order, pair), strict=True):
            early = own[:, :N_DENSE], expected[:, :N_DENSE]
            assert np.linalg.norm(early[0] - early[1]) / np.linalg.norm(early[1]) < rounded
            late = own[:, N_DENSE + 512 :], expected[:, N_DENSE + 512 :]
            assert 0 < np.linalg.norm(late[0] - late[1]) / np.linalg.norm(late[1]) < 0.1


def test_an_index_of_a_dense_reading_serves_any(llama, tmp_path):
    notices = []
    *_, dense = index(llama, tmp_path, "dense", notices=notices)
    *_, found = index(llama, tmp_path, "sparse", notices=notices)
    assert dense == found
    assert notices[-1].startswith(f"{NAME} is indexed already")


def test_an_index_of_a_sparse_reading_does_not_serve_who_wants_everything_read(llama, tmp_path):
    notices = []
    *_, sparse = index(llama, tmp_path, "sparse", notices=notices)
    *_, dense = index(llama, tmp_path, "dense", notices=notices)
    *_, found = index(llama, tmp_path, "sparse", notices=notices)
    assert sparse != dense == found
    assert [notice.split(",")[0] for notice in said(notices)] == [
        f"Indexing {NAME}",
        f"Indexing {NAME}",
        f"{NAME} is indexed already: {dense}",
    ]


def test_another_way_is_refused():
    with pytest.raises(octavo.OctavoError, match=r"read dense or sparse: not 'auto'"):
        ReadSettings(prefill="auto")
