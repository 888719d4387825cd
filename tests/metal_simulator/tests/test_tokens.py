"""Test tokens, declarations and the translated text."""

import pytest
from metal_simulator.program import parse
from metal_simulator.tokens import MSLError, closing_angle, split, text_of, tokenize
from metal_simulator.translate import Translator

KERNEL = """
constant bool causal [[function_constant(3)]];
constant float scale = 2.0f;
struct Span { device const half *keys; uint count; };
template <typename T, int N = 4>
inline T first(device const T *x) { return x[0]; }
kernel void plain(device float *out [[buffer(0)]], constant Span &span [[buffer(1)]],
                  threadgroup float *tile [[threadgroup(0)]],
                  uint3 at [[thread_position_in_grid]]) { out[at.x] = scale; }
template <typename T>
[[kernel, max_total_threads_per_threadgroup(256)]] void shaped(
    device T *out [[buffer(0)]], const device T *mask [[buffer(2), function_constant(causal)]]) {}
template [[host_name("shaped_half")]] [[kernel]] decltype(shaped<half>) shaped<half>;
template [[host_name("shaped_float")]] kernel void shaped<float>(device float *, const device float *);
"""


def program(source):
    return parse(tokenize(source))


def translated(source):
    return Translator(program(source), check=False).text()


def test_text_of_tokens_is_the_source():
    source = "a>>b; x = 1.5e-3h; // comment\nfloat4 v /* of four */ (1, 2);\n#pragma unroll\ns = \"//\\\"\"; c = '\\'';"
    assert text_of(tokenize(source)).split() == source.replace("// comment", "").replace("/* of four */", "").split()


def test_numbers_are_one_token():
    assert [t.text for t in tokenize("1.0e+5f 0x1F .5h 1'000u 3ul")] == ["1.0e+5f", "0x1F", ".5h", "1'000u", "3ul"]


def test_comments_and_strings_hide_brackets():
    tokens = tokenize('/* { */ "}" // (\n x')
    assert [(t.kind, t.text) for t in tokens] == [("string", '"}"'), ("name", "x")]


def test_lines_follow_markers():
    tokens = tokenize('a\n#line 40 "b.metal"\nb /* \n */ c\n# 7 "c.metal" 2\nd', "a.metal")
    places = [token.place for token in tokens if token.kind == "name"]
    assert places == ["a.metal:1", "b.metal:40", "b.metal:41", "c.metal:7"]


def test_angles_are_told_from_comparisons():
    assert closing_angle(tokenize("<A<B>, (1 > 2)> x"), 0) == 11
    assert closing_angle(tokenize("< n; i > 3"), 0) is None
    assert [text_of(part) for part in split(tokenize("A<B, C> x, f(a, b), y[1, 2]"))] == [
        "A<B, C> x",
        "f(a, b)",
        "y[1, 2]",
    ]


@pytest.mark.parametrize("source", ["void f() { (]; }", "void f() { ", "int x"])
def test_unbalanced_brackets_are_refused(source):
    with pytest.raises(MSLError, match=r"shader.metal:1"):
        program(source)


def test_declarations():
    found = program(KERNEL)
    assert [function.name for function in found.functions] == ["first", "plain", "shaped"]
    assert [function.is_kernel for function in found.functions] == [False, True, True]
    assert [variable.name for variable in found.variables] == ["scale", "keys", "count"]
    assert {name: expression for name, (_, expression) in found.kernels.items()} == {
        "plain": "plain",
        "shaped_half": "shaped<half>",
        "shaped_float": "shaped<float>",
    }
    assert found.functions[2].max_threads == 256
    constant = found.function_constants["causal"]
    assert (constant.type, constant.index, constant.optional) == ("bool", 3, False)


def test_parameters():
    found = program(KERNEL)
    out, span, tile, at = found.functions[1].parameters
    assert [p.name for p in (out, span, tile, at)] == ["out", "span", "tile", "at"]
    assert (out.index_of("buffer"), span.index_of("buffer"), tile.index_of("threadgroup")) == (0, 1, 0)
    assert "thread_position_in_grid" in at.attributes
    assert text_of(found.functions[2].parameters[1].attributes["function_constant"]) == "causal"


def test_threadgroup_variables_become_memory():
    text = translated(
        "kernel void k(uint i [[thread_index_in_threadgroup]]) {\n"
        "  threadgroup float a[2 * 4], b;\n  threadgroup float *p = &a[i];\n}\n"
    )
    assert "threadgroup float (&a)[2 * 4] = *static_cast<threadgroup float (*)[2 * 4]>" in text
    assert "threadgroup float (&b) = *static_cast<threadgroup float (*)>" in text
    assert "threadgroup float *p = &a[i];" in text


def test_vectors_are_made_and_attributes_left_out():
    text = translated("inline float4 f(float2 a) { [[maybe_unused]] float4 v = float4(a, 1.0f, 2); return v; }")
    assert "float4 v = msl::make<float4>(a, 1.0f, 2);" in text
    assert "maybe_unused" not in text


def test_lines_stay():
    source = (
        "kernel void k(device float *out\n   [[buffer(0)]],\n uint i [[\nthread_position_in_grid]]) {\n  out[i] = 1;\n}"
    )
    body = translated(source).split("\n")[1:]
    assert "out[i]" in body[4]
