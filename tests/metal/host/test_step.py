"""Test which kernels the host runs in a step, on a GPU that computes nothing, and how it reports errors."""

import gc
import signal
import weakref

import llama_cpp
import numpy as np
import pytest
from helpers import fake_metal

import octavo
from octavo import OctavoError
from octavo.convert.plan.heads import streaming
from octavo.cpu_kernels.numba_support.shape import Q8_0, Shape
from octavo.metal import gpu
from octavo.metal import shared_memory as memory
from octavo.metal.shader_library import (
    FUNCTIONS,
    HELPERS,
    KERNELS,
    THREADS,
    defines,
    library,
    method_names,
    part_text,
    source,
)
from octavo.runtime.devices import choose as devices
from octavo.runtime.methods.attention import DENSE_ATTENTION, Attention

LAYERS, KV_HEADS, GROUP = 3, 2, 2
TOKENS = np.random.default_rng(5).integers(32, 127, 700).tolist()


def new_llama(model, attention="dense", **options):
    return octavo.Llama(model, n_ctx=2048, n_batch=256, n_threads=2, device="metal", attention=attention, **options)


def names(run):
    return [name for name, _, _ in run]


PREFILL = ["append_rows", "select_spans", "attend_tiles"]
DECODE = ["append_rows", "select_spans", "attend_shares", "merge_shares"]
SCORES = ["append_rows", "score_items", "select_spans", "attend_shares", "merge_shares"]
TWO_LEVELS = ["append_rows", "score_items", "narrow_items", "score_narrowed", *DECODE[1:]]


@pytest.mark.parametrize(
    ("attention", "steps"),
    [
        ("dense", [DECODE] * 3),
        ("streaming:positions=sequence,tokens=200", [DECODE] * 3),
        ("quest", [SCORES] * 3),
        ("quest:dense_layers=2", [DECODE, DECODE, SCORES]),
        ("sparq", [SCORES] * 3),
        ("squeezed", [SCORES] * 3),
        ("squeezed2", [TWO_LEVELS] * 3),
    ],
)
def test_each_layer_is_one_command_buffer_and_one_wait(tiny_model, metal, attention, steps):
    llama = new_llama(tiny_model, attention)
    llama.prefill(TOKENS[:300])
    assert list(map(names, metal.runs)) == [PREFILL] * 2 * LAYERS
    llama.eval([7])
    assert list(map(names, metal.runs[2 * LAYERS :])) == steps
    assert metal.waits == 3 * LAYERS


def test_a_batch_over_many_rows_is_cut_into_command_buffers(tiny_model, metal, monkeypatch):
    tile = 32 * 250 * KV_HEADS * (64 + 64)  # multiply-adds: queries, rows of all heads, columns
    monkeypatch.setattr("octavo.metal.attention.LARGEST_COMMANDS", 6 * tile + tile // 2)
    llama = new_llama(tiny_model)
    llama.eval(TOKENS[:250])
    first, *others = metal.runs[:3]
    assert [names(run) for run in (first, *others)] == [PREFILL, ["attend_tiles"], ["attend_tiles"]]
    tiles = [run[-1][1] for run in (first, *others)]
    assert tiles == [(6, KV_HEADS, 1), (6, KV_HEADS, 1), (-(-250 * GROUP // 32) - 12, KV_HEADS, 1)]
    assert len(metal.runs) == 3 * LAYERS


@pytest.mark.parametrize("attention", ["dense", "sparq"])
def test_queries_of_q8_0_are_rotated_after_methods_saw_them(tiny_model, metal, attention):
    types = dict.fromkeys(("type_k", "type_v"), llama_cpp.GGML_TYPE_Q8_0)
    llama = new_llama(tiny_model, attention, **types)
    llama.prefill(TOKENS[:30])
    llama.eval([5])
    for steps, attend in ((metal.runs[:LAYERS], "attend_tiles"), (metal.runs[LAYERS:], "attend_shares")):
        for run in steps:
            at = names(run).index("rotate_queries")
            assert names(run)[at - 1 : at + 2] == ["select_spans", "rotate_queries", attend]
    groups = {name: (groups, threads[0]) for name, groups, threads in metal.runs[0]}
    assert groups["rotate_queries"] == ((30 * GROUP, KV_HEADS, 1), 32)


def test_threadgroups_and_threads(tiny_model, metal):
    metal.max_threads["select_spans"] = 500
    llama = new_llama(tiny_model)
    llama.eval(TOKENS[:250])
    llama.eval(TOKENS[250:260])  # rows 250 to 260 lie in two chunks
    groups = {name: (groups, threads[0]) for name, groups, threads in metal.runs[-1]}
    assert groups == {
        "append_rows": ((2, KV_HEADS, 1), 128),
        "select_spans": ((KV_HEADS, 1, 1), 480),
        "attend_tiles": ((-(-10 * GROUP // 32), KV_HEADS, 1), 128),
    }
    llama.eval([5])
    groups = {name: (groups, threads[0]) for name, groups, threads in metal.runs[-1]}
    assert groups == {
        "append_rows": ((1, KV_HEADS, 1), 128),
        "select_spans": ((KV_HEADS, 1, 1), 480),
        "attend_shares": ((-(-261 * KV_HEADS // 64) + KV_HEADS, 1, 1), 128),
        "merge_shares": ((GROUP, KV_HEADS, 1), 32),
    }


def test_a_shape_is_compiled_once_from_the_text_of_all_files(tiny_model, metal):
    new_llama(tiny_model)
    first = metal.executor.text
    metal.executor.text = None
    new_llama(tiny_model)
    assert metal.executor.text is None
    assert first == source(Shape(64, 2))
    sizes = {"HEAD_DIM": 64, "VALUE_DIM": 64, "GROUP": 2, "HEADS": 2, "TILE": 32, "LATENT": 0, "QUANTISED": 0}
    assert first.startswith("".join(f"#define {name} {value}\n" for name, value in sizes.items()))
    assert "#define QUANTISED 1\n" in source(Shape(64, 2, Q8_0))
    assert [first.count(f"kernel void {name}(") for name in THREADS] == [1] * len(THREADS)
    assert len((*HELPERS, *KERNELS)) == 6


def test_every_methods_part_is_in_the_text_before_the_calls_of_its_functions():
    text = source(Shape(64, 2))
    assert method_names() == ("dense", "quest", "sparq", "squeezed", "squeezed2", "streaming", "window")
    for number, name in enumerate(method_names()):
        assert text.count(part_text(name)) == 1
        assert defines(name, "select")
        for function in FUNCTIONS:
            call = f"case {number}: {name}_{function}(__VA_ARGS__); break;"
            assert (call in text) == defines(name, function)
            assert call not in text or text.index(part_text(name)) < text.index(call)


def test_a_method_that_serves_heads_for_a_while_leaves_their_extras_to_the_first(tiny_model, metal):
    llama = new_llama(tiny_model, "quest:dense_layers=2")
    llama.eval(TOKENS[:40])
    with streaming(llama.context.cache, [(2, 1)], 4, 32):
        llama.eval(TOKENS[40:50])
    records = llama.context._executor._heads.records
    dense, quest, recent = (method_names().index(name) for name in ("dense", "quest", "streaming"))
    assert records["select"].tolist() == [dense] * 4 + [quest, recent]
    assert records["append"].tolist() == [dense] * 4 + [quest, quest]


# What goes wrong


def test_what_the_compiler_says_is_shown(tiny_model, metal):
    metal.executor.broken = "common.metal:1: error: no"
    with pytest.raises(OctavoError, match=r"cannot compile octavo's kernels .*error: no\. Use `device=\"cpu\"`"):
        new_llama(tiny_model)


def test_a_kernel_that_needs_more_threads_than_there_are_is_refused(metal):
    metal.max_threads["attend_tiles"] = 96
    with pytest.raises(OctavoError, match=r"attend_tiles needs 128 threads .* gives it 96"):
        library(gpu.open_gpu(), Shape(64, 2))


def test_an_error_of_the_gpu_ends_the_step_and_nothing_is_left_of_it(tiny_model, metal):
    llama = new_llama(tiny_model)
    llama.eval(TOKENS[:40])
    metal.fail = "Out of memory"
    with pytest.raises(OctavoError, match="The GPU could not compute attention: Out of memory"):
        llama.eval(TOKENS[40:100])
    assert llama.context.cache.n_tokens == 40
    assert len(metal.runs) == LAYERS  # no other layer ran
    llama.n_tokens = 40
    llama.eval(TOKENS[40:100])
    assert llama.context.cache.n_tokens == 100


@pytest.mark.parametrize("n_tokens", [1, 30])
def test_an_exception_in_a_step_is_raised_again_after_it(tiny_model, metal, n_tokens):
    llama = new_llama(tiny_model)
    llama.eval(TOKENS[:40])

    def fail(name, *_):
        if name == "merge_shares" or name == "attend_tiles":
            raise ZeroDivisionError("in the second layer") if len(metal.runs) == 2 else ValueError("too late")

    metal.runs.clear()
    metal.runs.append([])
    metal.executor.on_run = fail
    with pytest.raises(ZeroDivisionError, match="in the second layer"):
        llama.eval(TOKENS[40 : 40 + n_tokens])
    assert llama.context.cache.n_tokens == 40


@pytest.mark.parametrize("n_tokens", [1, 30])
def test_ctrl_c_ends_a_step_at_the_next_layer(tiny_model, metal, n_tokens):
    llama = new_llama(tiny_model)
    llama.eval(TOKENS[:40])
    metal.runs.clear()
    metal.executor.on_run = lambda name, *_: signal.raise_signal(signal.SIGINT) if len(metal.runs) == 2 else None
    with pytest.raises(KeyboardInterrupt):
        llama.eval(TOKENS[40 : 40 + n_tokens])
    assert len(metal.runs) == 2
    assert llama.context.cache.n_tokens == 40
    metal.executor.on_run = lambda *_: None
    llama.n_tokens = 40
    llama.eval(TOKENS[40:70])
    assert llama.context.cache.n_tokens == 70


def test_a_dropped_model_frees_its_memory_at_once(tiny_model, metal):
    gc.collect()
    gc.disable()
    try:
        model = new_llama(tiny_model)
        model.eval(TOKENS[:50])
        left = [weakref.ref(each) for each in (model, model.context, model.context.cache, model.context._executor)]
        buffers = [weakref.ref(buffer) for buffer in model.context._executor.memory.buffers]
        del model
        assert [each() for each in left + buffers] == [None] * (4 + len(buffers))
    finally:
        gc.enable()


def test_memory_that_is_given_back_is_not_looked_for(tiny_model, metal, monkeypatch):
    monkeypatch.setattr(memory, "ARENA_BYTES", 1 << 18)
    llama = new_llama(tiny_model)
    llama.eval(TOKENS)
    most = len(llama.context._executor.memory.buffers)
    for n_tokens in (1, 300, 1, 500):
        llama.reset()
        llama.eval(TOKENS[:n_tokens])
        assert len(llama.context._executor.memory.buffers) < most


# Which device there is


def test_there_is_no_metal_here(tiny_model, monkeypatch):
    gpu.open_gpu.cache_clear()
    with pytest.raises(OctavoError, match=r"There is no Metal here: it needs a Mac .* use `device=\"cpu\"`"):
        new_llama(tiny_model)
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(OctavoError, match="install pyobjc-framework-Metal"):
        new_llama(tiny_model)


def test_an_older_gpu_is_refused(tiny_model, metal):
    metal.families = {metal.MTLGPUFamilyMetal3}
    with pytest.raises(OctavoError, match="need Apple silicon and macOS 13 or newer, and Fake M1 is not that"):
        new_llama(tiny_model)
    metal.has_device = False
    with pytest.raises(OctavoError, match="no GPU that Metal knows"):
        new_llama(tiny_model)


def on_a_mac(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")


@pytest.mark.parametrize(("attention", "name"), [("dense", "metal"), ("duo+quest", "metal"), ("h2o", "cpu")])
def test_auto_is_metal_on_a_mac_for_what_metal_has(metal, monkeypatch, attention, name):
    assert devices.choose("auto", Attention.parse(attention))[0].name == "cpu"
    on_a_mac(monkeypatch)
    device, note = devices.choose("auto", Attention.parse(attention))
    assert device.name == name
    assert note == (f"The Metal kernels do not have {attention}, so that attention runs on the CPU." * (name == "cpu"))
    assert devices.choose("cpu", Attention.parse(attention))[0].name == "cpu"
    metal.has_device = False
    gpu.open_gpu.cache_clear()
    assert devices.choose("auto", Attention.parse(attention))[0].name == "cpu"


def test_metal_has_no_rows_of_4_bits(metal, monkeypatch):
    on_a_mac(monkeypatch)
    assert devices.choose("auto", DENSE_ATTENTION, "q8_0")[0].name == "metal"
    assert devices.choose("auto", DENSE_ATTENTION, "q4_0")[0].name == "cpu"
    with pytest.raises(OctavoError, match='do not have rows of q4_0: use `device="cpu"`, or `cache_type="q8_0"`'):
        devices.choose("metal", DENSE_ATTENTION, "q4_0")


def test_other_names_are_refused():
    with pytest.raises(OctavoError, match="no device named 'cuda': choose from auto, cpu, metal"):
        devices.choose("cuda", DENSE_ATTENTION)


def test_what_metal_does_not_have_is_refused(tiny_model, metal):
    with pytest.raises(OctavoError, match='The Metal kernels do not have h2o: use `device="cpu"`'):
        new_llama(tiny_model, "h2o")
    llama = new_llama(tiny_model)
    llama.eval(TOKENS[:20])
    with pytest.raises(OctavoError, match='do not have H2O: load the model with `device="cpu"`'):
        llama.set_attention("h2o")
    assert str(llama.attention) == "dense"
    llama.eval(TOKENS[20:40])


def test_a_model_with_longer_heads_runs_on_the_cpu_unless_metal_was_asked_for(tmp_path, metal, monkeypatch):
    from helpers import tiny_models

    model = tiny_models.write_model(tmp_path / "long.gguf", "llama", head_dim=584, n_layer=1)
    with pytest.raises(OctavoError, match="heads of up to 576 numbers, and this model's have 584"):
        new_llama(model)
    on_a_mac(monkeypatch)
    llama = octavo.Llama(model, n_ctx=512, n_threads=2)
    assert llama.context.device.name == "cpu"
    llama.eval(TOKENS[:30])
    assert metal.runs == []


# The fake refuses what Metal refuses


def test_the_fake_notices_memory_that_is_no_whole_pages(metal):
    device = gpu.open_gpu().device
    new = device.newBufferWithBytesNoCopy_length_options_deallocator_
    with pytest.raises(fake_metal.Violation, match="whole pages"):
        new(bytearray(4096 + 100), 4096 + 100, metal.MTLResourceStorageModeShared, None)
    with pytest.raises(fake_metal.Violation, match="is said to have"):
        new(bytearray(4096), 8192, metal.MTLResourceStorageModeShared, None)


def test_the_fake_notices_what_is_out_of_order(metal):
    own = gpu.open_gpu()
    with pytest.raises(fake_metal.Violation, match="outside an autorelease pool"):
        own.queue.commandBuffer()
    with own.autorelease_pool():
        commands = own.queue.commandBuffer()
        encoder = commands.computeCommandEncoder()
        with pytest.raises(fake_metal.Violation, match="before endEncoding"):
            commands.commit()
        with pytest.raises(fake_metal.Violation, match="without a pipeline"):
            encoder.dispatchThreadgroups_threadsPerThreadgroup_(metal.MTLSize(1, 1, 1), metal.MTLSize(1, 1, 1))
        encoder.endEncoding()
        with pytest.raises(fake_metal.Violation, match="after endEncoding"):
            encoder.setBytes_length_atIndex_(b"1234", 4, 1)
        commands.commit()
        with pytest.raises(fake_metal.Violation, match="committed twice"):
            commands.commit()
        with pytest.raises(fake_metal.Violation, match="before the GPU is done"):
            commands.status()


def test_the_fake_notices_an_address_of_the_cpu(tiny_model, metal, monkeypatch):
    from octavo.metal.shared_memory import SharedMemory

    llama = new_llama(tiny_model)
    monkeypatch.setattr(SharedMemory, "on_gpu", lambda self, addresses: addresses)
    with pytest.raises(fake_metal.Violation, match="no resident memory of the GPU"):
        llama.eval(TOKENS[:20])
