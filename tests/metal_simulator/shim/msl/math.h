// Metal's common, math, integer, geometric and relational functions, for scalars and vectors.
//
// Functions of floats are the C library's, correctly rounded or nearly: metal::precise and metal::fast are the same
// here. Those of half and bfloat are computed in float and rounded.
#pragma once
#pragma clang system_header

// Defines NAME for the vectors of T, element by element, from NAME for T.
#define MSL_EACH1(R, NAME, V, N)                           \
    inline R NAME(V x) {                                   \
        R r;                                               \
        for (int i = 0; i < N; i++) r[i] = NAME(x[i]);     \
        return r;                                          \
    }
#define MSL_EACH2(R, NAME, V, N)                                 \
    inline R NAME(V x, V y) {                                    \
        R r;                                                     \
        for (int i = 0; i < N; i++) r[i] = NAME(x[i], y[i]);     \
        return r;                                                \
    }
#define MSL_EACH3(R, NAME, V, N)                                       \
    inline R NAME(V x, V y, V z) {                                     \
        R r;                                                           \
        for (int i = 0; i < N; i++) r[i] = NAME(x[i], y[i], z[i]);     \
        return r;                                                      \
    }
#define MSL_VECTORS1(T, NAME) MSL_EACH1(T##2, NAME, T##2, 2) MSL_EACH1(T##3, NAME, T##3, 3) MSL_EACH1(T##4, NAME, T##4, 4)
#define MSL_VECTORS2(T, NAME) MSL_EACH2(T##2, NAME, T##2, 2) MSL_EACH2(T##3, NAME, T##3, 3) MSL_EACH2(T##4, NAME, T##4, 4)
#define MSL_VECTORS3(T, NAME) MSL_EACH3(T##2, NAME, T##2, 2) MSL_EACH3(T##3, NAME, T##3, 3) MSL_EACH3(T##4, NAME, T##4, 4)

#define MSL_FLOAT1(NAME, EXPRESSION)                                            \
    inline float NAME(float x) { return EXPRESSION; }                           \
    inline half NAME(half h) { return (half)NAME((float)h); }                   \
    inline bfloat NAME(bfloat h) { return (bfloat)NAME((float)h); }             \
    MSL_VECTORS1(float, NAME) MSL_VECTORS1(half, NAME) MSL_VECTORS1(bfloat, NAME)
#define MSL_FLOAT2(NAME, EXPRESSION)                                                        \
    inline float NAME(float x, float y) { return EXPRESSION; }                              \
    inline half NAME(half a, half b) { return (half)NAME((float)a, (float)b); }             \
    inline bfloat NAME(bfloat a, bfloat b) { return (bfloat)NAME((float)a, (float)b); }     \
    MSL_VECTORS2(float, NAME) MSL_VECTORS2(half, NAME) MSL_VECTORS2(bfloat, NAME)
#define MSL_FLOAT3(NAME, EXPRESSION)                                                                       \
    inline float NAME(float x, float y, float z) { return EXPRESSION; }                                    \
    inline half NAME(half a, half b, half c) { return (half)NAME((float)a, (float)b, (float)c); }          \
    inline bfloat NAME(bfloat a, bfloat b, bfloat c) { return (bfloat)NAME((float)a, (float)b, (float)c); } \
    MSL_VECTORS3(float, NAME) MSL_VECTORS3(half, NAME) MSL_VECTORS3(bfloat, NAME)

namespace metal {
MSL_FLOAT1(exp, __builtin_expf(x))
MSL_FLOAT1(exp2, __builtin_exp2f(x))
MSL_FLOAT1(exp10, __builtin_powf(10.0f, x))
MSL_FLOAT1(log, __builtin_logf(x))
MSL_FLOAT1(log2, __builtin_log2f(x))
MSL_FLOAT1(log10, __builtin_log10f(x))
MSL_FLOAT1(sqrt, __builtin_sqrtf(x))
MSL_FLOAT1(rsqrt, 1.0f / __builtin_sqrtf(x))
MSL_FLOAT1(fabs, __builtin_fabsf(x))
MSL_FLOAT1(abs, __builtin_fabsf(x))
MSL_FLOAT1(floor, __builtin_floorf(x))
MSL_FLOAT1(ceil, __builtin_ceilf(x))
MSL_FLOAT1(trunc, __builtin_truncf(x))
MSL_FLOAT1(round, __builtin_roundf(x))
MSL_FLOAT1(rint, __builtin_rintf(x))
MSL_FLOAT1(fract, x - __builtin_floorf(x))
MSL_FLOAT1(sin, __builtin_sinf(x))
MSL_FLOAT1(cos, __builtin_cosf(x))
MSL_FLOAT1(tan, __builtin_tanf(x))
MSL_FLOAT1(sinh, __builtin_sinhf(x))
MSL_FLOAT1(cosh, __builtin_coshf(x))
MSL_FLOAT1(tanh, __builtin_tanhf(x))
MSL_FLOAT1(asin, __builtin_asinf(x))
MSL_FLOAT1(acos, __builtin_acosf(x))
MSL_FLOAT1(atan, __builtin_atanf(x))
MSL_FLOAT1(sign, x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f)
MSL_FLOAT1(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))
MSL_FLOAT2(pow, __builtin_powf(x, y))
MSL_FLOAT2(powr, __builtin_powf(x, y))
MSL_FLOAT2(atan2, __builtin_atan2f(x, y))
MSL_FLOAT2(fmod, __builtin_fmodf(x, y))
MSL_FLOAT2(copysign, __builtin_copysignf(x, y))
MSL_FLOAT2(divide, x / y)
MSL_FLOAT2(step, y < x ? 0.0f : 1.0f)
MSL_FLOAT2(fmax, __builtin_fmaxf(x, y))
MSL_FLOAT2(fmin, __builtin_fminf(x, y))
MSL_FLOAT2(max, __builtin_fmaxf(x, y))
MSL_FLOAT2(min, __builtin_fminf(x, y))
MSL_FLOAT3(clamp, __builtin_fminf(__builtin_fmaxf(x, y), z))
MSL_FLOAT3(mix, x + (y - x) * z)
MSL_FLOAT3(fma, __builtin_fmaf(x, y, z))

#define MSL_INTEGER(T)                                                                          \
    inline T max(T x, T y) { return x > y ? x : y; }                                            \
    inline T min(T x, T y) { return x < y ? x : y; }                                            \
    inline T clamp(T x, T low, T high) { return min(max(x, low), high); }                       \
    inline T abs(T x) { return x < T(0) ? T(0 - x) : x; }                                       \
    inline T popcount(T x) { return T(__builtin_popcountg(msl::bits(x))); }                     \
    inline T clz(T x) { return T(__builtin_clzg(msl::bits(x), int(sizeof(T)) * 8)); }           \
    inline T ctz(T x) { return T(__builtin_ctzg(msl::bits(x), int(sizeof(T)) * 8)); }           \
    inline T absdiff(T x, T y) { return x > y ? T(x - y) : T(y - x); }                          \
    MSL_VECTORS2(T, max) MSL_VECTORS2(T, min) MSL_VECTORS3(T, clamp) MSL_VECTORS1(T, abs)       \
    MSL_VECTORS1(T, popcount) MSL_VECTORS1(T, clz) MSL_VECTORS1(T, ctz)
}  // namespace metal
namespace msl {
inline uchar bits(char x) { return (uchar)x; }
inline uchar bits(uchar x) { return x; }
inline ushort bits(short x) { return (ushort)x; }
inline ushort bits(ushort x) { return x; }
inline uint bits(int x) { return (uint)x; }
inline uint bits(uint x) { return x; }
inline ulong bits(long x) { return (ulong)x; }
inline ulong bits(ulong x) { return x; }
}  // namespace msl
namespace metal {
MSL_INTEGERS(MSL_INTEGER)
#undef MSL_INTEGER
inline uint mulhi(uint x, uint y) { return uint((ulong(x) * y) >> 32); }
inline int mulhi(int x, int y) { return int((long(x) * y) >> 32); }
inline uint rotate(uint x, uint n) { return (x << (n & 31u)) | (x >> ((32u - n) & 31u)); }
inline uint reverse_bits(uint x) { return __builtin_bitreverse32(x); }
// bits [offset, offset + count) of x
inline uint extract_bits(uint x, uint offset, uint count) {
    return count == 0 ? 0u : (x >> offset) & (0xFFFFFFFFu >> (32u - count));
}

inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool signbit(float x) { return __builtin_signbit(x); }
#define MSL_CLASSIFY(NAME)                                                                              \
    inline bool NAME(half x) { return NAME((float)x); }                                                 \
    inline bool NAME(bfloat x) { return NAME((float)x); }                                               \
    MSL_EACH1(bool2, NAME, float2, 2) MSL_EACH1(bool3, NAME, float3, 3) MSL_EACH1(bool4, NAME, float4, 4) \
    MSL_EACH1(bool2, NAME, half2, 2) MSL_EACH1(bool3, NAME, half3, 3) MSL_EACH1(bool4, NAME, half4, 4)
MSL_CLASSIFY(isnan)
MSL_CLASSIFY(isinf)
MSL_CLASSIFY(isfinite)
MSL_CLASSIFY(signbit)
#undef MSL_CLASSIFY

// M is bool4, or what clang's comparison of vectors gives: an integer vector of 0 and -1.
template <typename M> inline bool any(M x) {
    bool found = false;
    for (int i = 0; i < msl::traits<M>::size; i++) found = found || x[i];
    return found;
}
inline bool any(bool x) { return x; }
template <typename M> inline bool all(M x) {
    bool found = true;
    for (int i = 0; i < msl::traits<M>::size; i++) found = found && x[i];
    return found;
}
inline bool all(bool x) { return x; }

template <typename V, typename M> inline V select(V no, V yes, M condition) {
    V r;
    for (int i = 0; i < msl::traits<V>::size; i++) r[i] = condition[i] ? yes[i] : no[i];
    return r;
}
#define MSL_SELECT(T) inline T select(T no, T yes, bool condition) { return condition ? yes : no; }
MSL_FLOATS(MSL_SELECT)
MSL_INTEGERS(MSL_SELECT)
#undef MSL_SELECT

#define MSL_GEOMETRIC_OF(T, V, N)                                    \
    inline T dot(V x, V y) {                                         \
        T sum = x[0] * y[0];                                         \
        for (int i = 1; i < N; i++) sum = (T)(sum + x[i] * y[i]);    \
        return sum;                                                  \
    }                                                                \
    inline T length_squared(V x) { return dot(x, x); }               \
    inline T length(V x) { return sqrt(dot(x, x)); }                 \
    inline T distance(V x, V y) { return length(x - y); }            \
    inline V normalize(V x) { return x * rsqrt(dot(x, x)); }
#define MSL_GEOMETRIC(T) MSL_GEOMETRIC_OF(T, T##2, 2) MSL_GEOMETRIC_OF(T, T##3, 3) MSL_GEOMETRIC_OF(T, T##4, 4)
MSL_FLOATS(MSL_GEOMETRIC)
#undef MSL_GEOMETRIC
#undef MSL_GEOMETRIC_OF

namespace precise {
using namespace metal;
}
namespace fast {
using namespace metal;
}
}  // namespace metal
