"""Test that no head is larger than the memory of the kernels that compute it, and that they need little stack."""

import subprocess
import sys

import numpy as np
import pytest
from helpers import tiny_models

import octavo
from octavo import OctavoError
from octavo.cpu_kernels.methods import sketch
from octavo.cpu_kernels.numba_support.shape import MOST, Limits, Shape
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.cpu_kernels.select import tail_codes
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.methods.assignment import assign
from octavo.runtime.methods.attention import Attention
from octavo.runtime.methods.auto import SHORT

#: Longer than what `auto` reads whole, and what `sketch` does.
N_TOKENS = SHORT + 250


def layer(head_dim=64, group=1, value_dim=0, window=0):
    return CacheLayer(1, head_dim, window, group=group, value_dim=value_dim)


@pytest.mark.parametrize(
    ("shape", "excess"),
    [
        (Shape(576, 128), ""),
        (Shape(584, 1), "its heads have 584 numbers, and 576 are the most here"),
        (Shape(64, 1, value_dim=640), "its heads have 640 numbers, and 576 are the most here"),
        (Shape(64, 129), "129 query heads share a KV head, and 128 are the most here"),
    ],
    ids=str,
)
def test_limits_name_what_exceeds_them(shape, excess):
    assert sketch.LIMITS.excess(shape) == excess


def test_limits_are_those_of_the_memory():
    state = tail_codes.STATE
    longest = min(state[name].shape[0] for name in ("order", "weights", "errors"))
    assert longest == sketch.LIMITS.longest == state["codebooks"].shape[0] // 16 == state["values"].shape[0] // 16
    assert 2 * sketch.LIMITS.group == CHUNK_ROWS, "two sums of each query head, in place of a size of each row"


@pytest.mark.parametrize("sizes", [{"head_dim": MOST + 1}, {"value_dim": MOST + 9}, {"group": MOST + 1}])
def test_a_shape_that_its_bits_do_not_hold_exceeds_all_kernels(sizes):
    assert "the most here" in Limits().excess(Shape(**{"head_dim": 64, "group": 1, **sizes}))


@pytest.mark.parametrize("name", ["sketch", "sketch:columns=8"])
@pytest.mark.parametrize("sizes", [{"head_dim": 584}, {"value_dim": 584}, {"group": 129}])
def test_a_named_method_refuses_heads_that_are_too_large(name, sizes):
    with pytest.raises(OctavoError, match=r"sketch cannot compute .*: use another attention, such as dense\."):
        assign(Attention.parse(name), [layer(), layer(**{"head_dim": 64, **sizes})])


def test_layers_that_a_method_does_not_serve_may_have_any_heads():
    assert len(assign(Attention.parse("sketch"), [layer(), layer(584, 200, window=32)])) == 2
    assert len(assign(Attention.parse("quest:dense_layers=1,select=head"), [layer(group=65), layer()])) == 2


@pytest.mark.parametrize("name", ["quest", "sparq", "squeezed"])
def test_query_heads_select_apart_up_to_the_bits_of_a_set(name):
    assert assign(Attention.parse(f"{name}:select=head"), [layer(group=64)])
    with pytest.raises(OctavoError, match="65 query heads share a KV head, and 64 are the most here: leave out select"):
        assign(Attention.parse(f"{name}:select=head"), [layer(group=65)])


@pytest.fixture(scope="module")
def tokens():
    return np.random.default_rng(0).integers(97, 123, N_TOKENS).tolist()


def logits_after(model, attention, tokens):
    llama = octavo.Llama(model, n_ctx=N_TOKENS + 8, n_threads=2, attention=attention, device="cpu")
    llama.eval(tokens)
    llama.eval([65])
    return np.array(llama.logits()), llama.resolved_attention.method


@pytest.mark.parametrize("sizes", [{"head_dim": 640, "n_head": 1}, {"head_dim": 8, "n_head": 132}], ids=str)
def test_auto_is_dense_where_heads_are_too_large_for_its_method(tmp_path, tokens, sizes):
    model = tiny_models.write_model(tmp_path / "model.gguf", "llama", n_layer=1, n_kv_head=1, **sizes)
    expected, _ = logits_after(model, "dense", tokens)
    actual, method = logits_after(model, "auto", tokens)
    assert method == "dense"
    np.testing.assert_array_equal(actual, expected)
    with pytest.raises(OctavoError, match="sketch cannot compute this model's attention"):
        octavo.Llama(model, n_ctx=64, attention="sketch", device="cpu")


@pytest.mark.parametrize("n_head", [127, 128])
def test_the_largest_group_selects_rightly(tmp_path, tokens, n_head):
    model = tiny_models.write_model(tmp_path / "model.gguf", "llama", n_layer=1, n_head=n_head, n_kv_head=1, head_dim=8)
    dense, _ = logits_after(model, "dense", tokens[:900])
    actual, _ = logits_after(model, "sketch:quality=0.999", tokens[:900])
    assert np.abs(actual - dense).max() < 0.05 * dense.std()


#: Runs a step with the largest heads, latent, on a thread with the stack of ggml's threads on macOS, less what ggml's
#: and Python's own frames take.
ON_A_SMALL_STACK = """
import sys, threading
import numpy as np
from octavo.cpu_kernels.layer import after_step
from octavo.runtime.devices.random_layers import RandomLayers, as_rows
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.document.stored_rows import rows_format
from octavo.runtime.methods.attention import Attention

words, kv_type, latent = sys.argv[1], sys.argv[2], sys.argv[3] == "latent"
layer = CacheLayer(1, 576, 0, kv_type, 128, value_dim=512 if latent else 576, latent=latent)
dtype, sizes = rows_format(layer.shape)
numbers = np.random.default_rng(0).standard_normal(600 * max(sizes), np.float32).astype(np.float16).view(dtype)
keys, values = (np.resize(numbers, (1, 600, size)) for size in sizes)
rows = [(as_rows(kv_type, 576, keys), values if latent else as_rows(kv_type, layer.shape.value_dim, values))]
layers = RandomLayers(layer, rows, Attention.parse(words).new_method(), 1)

def step():
    layers.attend(0, 1)
    after_step(layers.cache.table.address, 1, 1)

step()  # compiles, on the main thread
threading.stack_size(256 << 10)
thread = threading.Thread(target=step)
thread.start()
thread.join()
print("done", np.isfinite(layers.out).all())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("kind", ["latent", "plain"])
@pytest.mark.parametrize("words", ["dense", "sketch", "quest", "sparq"])
def test_kernels_need_little_stack_whatever_the_heads(words, kind, kv_type):
    run = subprocess.run(
        [sys.executable, "-c", ON_A_SMALL_STACK, words, kv_type, kind], capture_output=True, text=True, check=False
    )
    assert run.stdout == "done True\n", (run.returncode, run.stderr[-2000:])
