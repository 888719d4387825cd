"""Test each lint on a shader that Metal refuses, for the line and the reason, and on one that it accepts."""

import re

import pytest
from metal_simulator import simulator

simulator.require()

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
OUT = "device float *out [[buffer(0)]]"


def kernel(body="", parameters=OUT, before=""):
    return f"{HEADER}{before}\nkernel void k({parameters}) {{\n{body}\n}}\n"


def function(text):
    return kernel(before=text)


BAD = {
    "recursion": (function("float f(float x) { return x < 1 ? x : f(x - 1); }"), 3, "f calls itself"),
    "mutual recursion": (
        function("float f(float x);\nfloat g(float x) { return f(x); }\nfloat f(float x) { return g(x); }"),
        4,
        "g calls itself, through f",
    ),
    "recursion of a template": (
        function("template <int N> float f(float x) { return f<N - 1>(x); }"),
        3,
        "no recursion",
    ),
    "static local": (kernel("static int n = 0; out[0] = n;"), 5, "static local"),
    "mutable global": (function("int counter = 0;"), 3, "counter: a variable at program scope"),
    "constexpr global": (function("constexpr float scale = 2;"), 3, "constant address space"),
    "static member": (function("struct S { static constexpr int n = 3; int x; };"), 3, "n: a static member"),
    "constant without value": (function("constant float scale;"), 3, "scale: a constant needs a value"),
    "derived constant": (
        function("constant int n [[function_constant(0)]];\nconstant int twice = 2 * n;"),
        4,
        "twice: the simulator has no constants that depend on function constants",
    ),
    "no attribute": (kernel(parameters="device float *out"), 4, "out has no"),
    "unknown position": (kernel(parameters=f"{OUT}, uint i [[thread_position]]"), 4, "i has no"),
    "duplicate buffer": (
        kernel(parameters=f"{OUT}, device float *b [[buffer(0)]]"),
        4,
        r"b and out are both buffer\(0\)",
    ),
    "buffer by value": (kernel(parameters=f"{OUT}, uint n [[buffer(1)]]"), 4, "must be a pointer or reference"),
    "buffer without space": (kernel(parameters="float *out [[buffer(0)]]"), 4, "must be device or constant"),
    "kernel with result": (f"{HEADER}kernel int k({OUT}) {{ return 1; }}", 3, "must return void"),
    "threadgroup in function": (function("void f() { threadgroup float tile[32]; }"), 3, "f is no kernel"),
    "threadgroup at program scope": (function("threadgroup float tile[32];"), 3, "in kernels only"),
    "threadgroup with value": (kernel("threadgroup float x = 1;"), 5, "no initial value"),
    "parameter without space": (function("float f(const float *x) { return x[0]; }"), 3, "x: this pointer"),
    "reference without space": (function("void f(float &x) { x = 1; }"), 3, "x: this pointer"),
    "member without space": (function("struct S { const half *keys; };"), 3, "keys: this pointer"),
    "local without space": (kernel("const float *p = out;"), 5, "p: this pointer"),
    "result without space": (function("float *f(device float *x) { return x; }"), 3, "the result of f"),
    "double": (kernel("out[0] = double(1);"), 5, "no double"),
    "long long": (kernel("long long x = 1; out[0] = x;"), 5, "no long long"),
    "goto": (kernel("goto end; end: out[0] = 1;"), 5, "no goto"),
    "virtual": (function("struct S { virtual void f() {} };"), 3, "no virtual"),
    "new": (kernel("thread float *p = new float[3];"), 5, "no new"),
    "throw": (kernel("throw 1;"), 5, "no exceptions"),
    "std": (kernel("out[0] = std::sqrt(2.0f);"), 5, r"no C\+\+ standard library"),
}

GOOD = {
    "overloads": function("float f(float x) { return x; }\nfloat f(float2 v) { return f(v.x) + f(v.y); }"),
    "other arity": function("float f(float x) { return x; }\nfloat f(float x, float y) { return f(x) + f(y); }"),
    "static constant local": kernel("static constant int n = 3; out[0] = n;"),
    "constant global": function("constant int table[2] = {1, 2};\nconstant constexpr float scale = 2;"),
    "constant vector": function("constant float4 table[2] = {float4(1, 2, 3, 4), float4(5)};"),
    "static constant member": function("struct S { static constant constexpr int n = 3; int x; };"),
    "function constant": function("constant bool causal [[function_constant(0)]];"),
    "positions": kernel(
        parameters=f"{OUT}, uint3 g [[threadgroup_position_in_grid]], ushort i [[thread_index_in_simdgroup]]"
    ),
    "threadgroup in kernel": kernel("threadgroup float tile[32]; threadgroup float *p = tile; p[0] = 1;"),
    "threadgroup parameter": kernel(parameters=f"{OUT}, threadgroup float *tile [[threadgroup(0)]]"),
    "pointers with spaces": function(
        "struct S { device const half *keys; };\n"
        "float f(thread const float *x, threadgroup float &y, constant S &s) { return x[0] + y + s.keys[0]; }\n"
        "device float *g(device float *x) { return x; }"
    ),
    "products": kernel("float a = 2, b = 3; out[0] = a * b; int c = 1 & 3; out[c] = 1;"),
    "words as parts": kernel("float new_max = 1, throwing = 2; out[0] = new_max + throwing;"),
    "records as arguments, results and members": kernel(
        "Pair p; p.first = pairs[1].first; Span s = first(pairs); out[0] = count(pairs[0].first) + s.count;\n"
        "threadgroup Span kept[2]; kept[0] = pairs[0].first; s = kept[0]; Span t = p.first; t = s.count ? t : s;",
        f"{OUT}, device const Pair *pairs [[buffer(1)]]",
        "struct Span { device const half *keys; uint count; };\nstruct Pair { Span first, second; };\n"
        "uint count(Span s) { return s.count; }\nSpan first(device const Pair *pairs) { return pairs[0].first; }",
    ),
    "records from other spaces": kernel(
        "Span s = spans[0]; s.count += 1; spans[1] = s; Span t = last; out[0] = t.count;",
        f"{OUT}, device Span *spans [[buffer(1)]], constant Span &last [[buffer(2)]]",
        "struct Span { device const half *keys; uint count; };",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad(name):
    source, line, reason = BAD[name]
    with pytest.raises(simulator.MSLError) as error:
        simulator.check(source, name="bad.metal")
    assert re.search(rf"^bad\.metal:{line}: .*{reason}", str(error.value), re.MULTILINE), str(error.value)


@pytest.mark.parametrize("name", GOOD)
def test_good(name):
    simulator.check(GOOD[name])


MIXED_SPACES = {
    "threadgroup for device": kernel("threadgroup float tile[4]; device float *p = tile; p[0] = 1;"),
    "thread for device": kernel("float x = 1; device float *p = &x; p[0] = 1;"),
    "constant for device": kernel(
        "device const float *p = &s; out[0] = p[0];", f"{OUT}, constant float &s [[buffer(1)]]"
    ),
    "argument": kernel("out[0] = f(out);", before="float f(threadgroup float *x) { return x[0]; }"),
    "writing a constant": kernel("s = 1;", f"{OUT}, constant float &s [[buffer(1)]]"),
    "atomic of another space": kernel(
        "threadgroup uint n; atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed);"
    ),
    "unknown function": kernel("out[0] = expf(1.0f);"),
    "too few elements": kernel("float4 v = float4(1, 2, 3); out[0] = v.x;"),
    "vectors of other elements": kernel("half4 h = half4(1); float4 v = h; out[0] = v.x;"),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED_SPACES)
def test_the_compiler_refuses(name):
    with pytest.raises(simulator.MSLError, match=r"bad\.metal:\d+:\d+: error: |vector.h.* error: "):
        simulator.check(MIXED_SPACES[name], name="bad.metal")


def test_all_findings_are_named():
    source = kernel("static int n = 0; double x = n;", "device float *out")
    with pytest.raises(simulator.MSLError) as error:
        simulator.check(source)
    assert len(str(error.value).splitlines()) == 3


def test_defines_and_includes(tmp_path):
    (tmp_path / "shared.metal").write_text("#pragma once\ninline float twice(float x) { return 2 * x; }\n")
    source = f'{HEADER}#include "shared.metal"\n#if WIDE\nint wrong;\n#endif\n{kernel("out[0] = twice(1.0f);")}'
    simulator.check(source, {"WIDE": 0}, include=tmp_path)
    with pytest.raises(simulator.MSLError, match=r"shader.metal:5: wrong"):
        simulator.check(source, {"WIDE": 1}, include=tmp_path)
