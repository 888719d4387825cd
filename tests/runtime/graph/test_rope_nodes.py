"""RoPE as it is read off the graph: turning by it is what llama.cpp does."""

import numpy as np
import pytest
from helpers import papers, tiny_models
from helpers.kernel_inputs import normal, read_rows, store_rows

import octavo
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0, Shape
from octavo.runtime.document.cache_layer import Rope
from octavo.runtime.document.stored_rows import row_format

STRETCHED = {"plain": {}, "linear": {"rope_scaling": "linear", "rope_scale": 2.0}}
STRETCHED["yarn"] = {"rope_scaling": "yarn", "rope_scale": 4.0}
TOKEN, FIRST, LATER = 77, 3, 411


def queries_at(llama, position):
    """The same token's queries at a position: of each layer (n_kv_head, group, head_dim)."""
    llama.reset()
    llama.eval([TOKEN] * position)
    with llama.context.captured_queries(1) as captured:
        llama.eval([TOKEN])
    return [queries[:, 0] for queries in captured]


@pytest.mark.parametrize("way", STRETCHED)
@pytest.mark.parametrize("architecture", tiny_models.RUN)
def test_a_query_is_turned_to_another_position(tmp_path, architecture, way):
    model = tiny_models.write_model(tmp_path / "model.gguf", architecture, n_layer=2)
    llama = octavo.Llama(model, n_ctx=512, n_threads=2, **STRETCHED[way])
    first, later = (queries_at(llama, position)[0] for position in (FIRST, LATER))  # of the first layer: no context yet
    rope = llama.context.nodes[0].rope
    turned = papers.rope(first.reshape(-1, 64), LATER - FIRST, rope.frequencies, rope.interleaved)
    np.testing.assert_allclose(turned, later.reshape(-1, 64), atol=1e-4 * np.abs(later).max())
    assert np.abs(first - later).max() > 0.1 * np.abs(later).max()


@pytest.mark.parametrize("way", STRETCHED)
def test_only_the_second_part_of_a_latent_query_is_turned(tmp_path, way):
    model = tiny_models.write_model(tmp_path / "model.gguf", "deepseek2", n_layer=2)
    llama = octavo.Llama(model, n_ctx=512, n_threads=2, **STRETCHED[way])
    first, later = (queries_at(llama, position)[0].reshape(-1, 96) for position in (FIRST, LATER))
    rope = llama.context.nodes[0].rope
    assert (rope.frequencies[:32] == 0).all()
    turned = papers.rope(first, LATER - FIRST, rope.frequencies, rope.interleaved)
    np.testing.assert_allclose(turned, later, atol=1e-4 * np.abs(later).max())
    np.testing.assert_array_equal(first[:, :64], later[:, :64])
    assert np.abs(first - later)[:, 64:].max() > 0.1 * np.abs(later[:, 64:]).max()


#: What rounding costs an element, of rows whose largest are about 3.
ROUNDED = {F16: 4e-3, Q8_0: 0.08, Q4_0: 0.8}


@pytest.mark.parametrize("kv_type", [F16, Q8_0, Q4_0])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("n_pairs", [0, 8, 32])
def test_stored_rows_are_turned(kv_type, interleaved, n_pairs):
    rng, shape = np.random.default_rng(1), Shape(64, 1, kv_type)
    rope = Rope(0.1 ** np.linspace(0, 2, n_pairs), interleaved)
    stored = store_rows(shape, normal(rng, 5, 64)).copy()
    before = read_rows(shape, stored)
    rope.turn(stored.view(row_format(64, kv_type)[0]), -70)
    expected = papers.rope(before, -70, rope.frequencies, interleaved)
    np.testing.assert_allclose(read_rows(shape, stored), expected, atol=ROUNDED[kv_type])
