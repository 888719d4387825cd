"""Test arithmetic, functions, vectors and types against NumPy."""

import struct

import numpy as np
import pytest
from metal_simulator import simulator
from metal_simulator.small_kernels import kernel, run

simulator.require()


def elementwise(expression, x, result, kind="float", result_kind="float"):
    """Compute out[i] = expression, where x is in[i]."""
    source = kernel(
        f"{kind} x = in[i]; out[i] = {expression};",
        f"device const {kind} *in [[buffer(0)]], device {result_kind} *out [[buffer(1)]],",
    )
    return run(source, x, np.zeros(len(x), result), threads=len(x))


MATH = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
    "trunc": np.trunc,
    "fabs": np.abs,
    "precise::exp": np.exp,
    "fast::log2": np.log2,
}


@pytest.mark.parametrize("name", MATH)
def test_math(name):
    x = np.linspace(0.1, 9, 64, dtype=np.float32)
    expected = MATH[name](x.astype(np.float64))
    np.testing.assert_allclose(elementwise(f"{name}(x)", x, np.float32), expected, rtol=3e-7, atol=1e-7)
    half = x.astype(np.float16)
    result = elementwise(f"{name}(x)", half, np.float16, "half", "half")
    np.testing.assert_allclose(result, MATH[name](half.astype(np.float64)), rtol=1e-3, atol=1e-3)


def test_math_of_two_and_three():
    x = np.array([-2.5, -0.5, 0.5, 2.5, np.nan, np.inf], np.float32)
    np.testing.assert_array_equal(elementwise("max(x, 0.0f)", x, np.float32), np.fmax(x, 0))
    np.testing.assert_array_equal(elementwise("min(x, 1.0f)", x, np.float32), np.fmin(x, 1))
    np.testing.assert_array_equal(elementwise("clamp(x, -1.0f, 1.0f)", x, np.float32)[:4], [-1, -0.5, 0.5, 1])
    np.testing.assert_array_equal(elementwise("round(x)", x, np.float32)[:4], [-3, -1, 1, 3])
    np.testing.assert_array_equal(elementwise("fma(x, 2.0f, 1.0f)", x, np.float32)[:4], [-4, 0, 2, 6])
    np.testing.assert_array_equal(elementwise("pow(x, 2.0f)", x, np.float32)[:4], x[:4] ** 2)
    np.testing.assert_array_equal(elementwise("select(0.0f, x, x > 0)", x, np.float32)[:4], [0, 0, 0.5, 2.5])
    for name, function in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite)):
        np.testing.assert_array_equal(elementwise(f"{name}(x)", x, np.float32), function(x))


def test_half_rounds_after_each_operation():
    x = np.random.default_rng(4).standard_normal(64).astype(np.float16)
    result = elementwise("x * x + x", x, np.float16, "half", "half")
    np.testing.assert_array_equal(result, x * x + x)
    assert not np.array_equal(result, (x.astype(np.float32) ** 2 + x).astype(np.float16))


def test_floats_are_not_contracted():
    x = np.random.default_rng(5).standard_normal(64).astype(np.float32)
    np.testing.assert_array_equal(elementwise("x * x - 0.1f", x, np.float32), x * x - np.float32(0.1))


def test_integers():
    x = np.array([0, 1, 2, 255, 0x80000000, 0xFFFFFFFF], np.uint32)
    assert elementwise("popcount(x)", x, np.uint32, "uint", "uint").tolist() == [0, 1, 1, 8, 1, 32]
    assert elementwise("clz(x)", x, np.uint32, "uint", "uint").tolist() == [32, 31, 30, 24, 0, 0]
    assert elementwise("ctz(x)", x, np.uint32, "uint", "uint").tolist() == [32, 0, 1, 0, 31, 0]
    assert elementwise("extract_bits(x, 4, 4)", x, np.uint32, "uint", "uint").tolist() == [0, 0, 0, 15, 0, 15]
    y = np.array([-3, 0, 7], np.int32)
    assert elementwise("abs(x) + max(x, 1)", y, np.int32, "int", "int").tolist() == [4, 1, 14]


def test_as_type():
    x = np.array([1.0, -2.5, 0.0], np.float32)
    np.testing.assert_array_equal(elementwise("as_type<uint>(x)", x, np.uint32, "float", "uint"), x.view(np.uint32))
    y = np.array([0x3C00_4000], np.uint32)
    result = elementwise("float2(as_type<half2>(x)).y * 10 + as_type<half2>(x).x", y, np.float32, "uint")
    assert result.tolist() == [12.0]


def test_vectors():
    source = kernel(
        "float4 v = float4(in[0], float2(in[1], in[2]), 4.0f); float4 s = float4(2);\n"
        "out[0] = dot(v, s); out[1] = v.wzyx.x; out[2] = (v * s + 1.0f).y; out[3] = any(v > 3.5f) && !all(v > 3.5f);\n"
        "float3 t = v.xyz; out[4] = length(t - float3(0)); out[5] = max(v, 2.5f).x; out[6] = sizeof(float3);\n"
        "uint2 u = uint2(v.xy); out[7] = u.x + u.y; float4x_t w = {v.x, v.y}; out[8] = w.b;\n"
        "half4 h = half4(v); out[9] = float(h.w) + float4(h).x; out[10] = select(v, s, v > s).z;\n"
        "out[11] = float4{1, 2}.y;",
        "device const float *in [[buffer(0)]], device float *out [[buffer(1)]],",
        "struct float4x_t { float a, b; };",
    )
    out = run(source, np.array([1, 2, 3], np.float32), np.zeros(12, np.float32))
    assert out.tolist() == [20, 4, 5, 1, pytest.approx(14**0.5), 2.5, 16, 3, 2, 5, 2, 2]


def test_packed_vectors():
    source = kernel(
        "Row row = rows[1]; float4 v = float4(row.values); packed_float3 p = in[1]; in[0] = p;\n"
        "char4 q = char4(row.codes); half4 h = half4(halves[1]);\n"
        "out[0] = v.x + v.w; out[1] = p.x + float3(p).z + p[1]; out[2] = sizeof(Row);\n"
        "out[3] = float(q.w) + float(h.y);",
        "device const Row *rows [[buffer(0)]], device packed_float3 *in [[buffer(1)]],\n"
        "device const packed_half4 *halves [[buffer(2)]], device float *out [[buffer(3)]],",
        "struct Row { uint n; packed_float4 values; packed_char4 codes; };",
    )
    rows = struct.pack("I4f4b", 0, *range(8)) + struct.pack("I4f4b", 0, 1, 2, 3, 4, 5, 6, 7, -8)
    vectors = np.array([[0, 0, 0], [1, 2, 3]], np.float32)
    out = run(source, rows, vectors, np.arange(8, dtype=np.float16), np.zeros(4, np.float32))
    assert out.tolist() == [5, 6, 24, -3]
    assert vectors[0].tolist() == [1, 2, 3]


def test_bfloat():
    x = np.array([1.5, -3.14159, 1e30], np.float32)
    rounded = ((x.view(np.uint32) + 0x7FFF + (x.view(np.uint32) >> 16 & 1)) & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(elementwise("float(bfloat(x))", x, np.float32), rounded)
