// Address spaces, scalar and vector types, and their limits.
#pragma once
#pragma clang system_header
#include "engine.h"

// In check mode a pointer's address space is part of its type, so that mixing two is an error; when running, all
// memory is the CPU's.
#ifdef MSL_CHECK
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#else
#define device
#define constant const
#define threadgroup
#endif
#define thread
#define kernel

typedef _Float16 half;
typedef __bf16 bfloat;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
static_assert(sizeof(long) == 8 && sizeof(half) == 2 && sizeof(bfloat) == 2, "as Metal's");

constexpr half operator""h(long double x) { return (half)x; }

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define MAXFLOAT 3.40282347e+38f
#define FLT_MAX 3.40282347e+38f
#define FLT_MIN 1.17549435e-38f
#define FLT_EPSILON 1.1920929e-7f
#define HALF_MAX ((half)65504.0f)
#define HALF_MIN ((half)6.103515625e-05f)
#define MAXHALF HALF_MAX
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-9223372036854775807l - 1)
#define ULONG_MAX 18446744073709551615ul
#define M_PI_F 3.14159265358979323846f
#define M_PI_H ((half)3.14159265358979323846f)
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_SQRT2_F 1.41421356237309504880f

// Applies a macro to each scalar type.
#define MSL_FLOATS(DO) DO(float) DO(half) DO(bfloat)
#define MSL_INTEGERS(DO) DO(char) DO(uchar) DO(short) DO(ushort) DO(int) DO(uint) DO(long) DO(ulong)

// float2, float3, float4 and so on: clang's own vectors, with swizzles and operators.
#define MSL_VECTOR(T)                                        \
    typedef T T##2 __attribute__((ext_vector_type(2)));      \
    typedef T T##3 __attribute__((ext_vector_type(3)));      \
    typedef T T##4 __attribute__((ext_vector_type(4)));
MSL_FLOATS(MSL_VECTOR)
MSL_INTEGERS(MSL_VECTOR)
MSL_VECTOR(bool)
#undef MSL_VECTOR

namespace metal {
// size_t and the fixed-width names are in the global namespace already.
using ::size_t;

template <typename T, T v> struct integral_constant {
    static constexpr T value = v;
    constexpr operator T() const { return v; }
};
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;
template <typename A, typename B> struct is_same : false_type {};
template <typename A> struct is_same<A, A> : true_type {};
template <typename A, typename B> constexpr bool is_same_v = is_same<A, B>::value;
template <bool, typename T = void> struct enable_if {};
template <typename T> struct enable_if<true, T> { typedef T type; };
template <bool condition, typename T = void> using enable_if_t = typename enable_if<condition, T>::type;
template <bool, typename A, typename B> struct conditional { typedef A type; };
template <typename A, typename B> struct conditional<false, A, B> { typedef B type; };
template <bool condition, typename A, typename B> using conditional_t = typename conditional<condition, A, B>::type;

template <typename T> struct numeric_limits;
#define MSL_INTEGER_LIMITS(T)                                                                          \
    template <> struct numeric_limits<T> {                                                             \
        static constexpr bool is_signed = T(-1) < T(0);                                                \
        static constexpr int digits = int(sizeof(T)) * 8 - is_signed;                                  \
        static constexpr T max() { return T(~0ull >> (64 - digits)); }                                 \
        static constexpr T min() { return is_signed ? T(-max() - 1) : T(0); }                          \
        static constexpr T lowest() { return min(); }                                                  \
    };
MSL_INTEGERS(MSL_INTEGER_LIMITS)
#undef MSL_INTEGER_LIMITS
#define MSL_FLOAT_LIMITS(T, largest, smallest, step)                                                   \
    template <> struct numeric_limits<T> {                                                             \
        static constexpr bool is_signed = true;                                                        \
        static constexpr T max() { return T(largest); }                                                \
        static constexpr T min() { return T(smallest); }                                               \
        static constexpr T lowest() { return T(-largest); }                                            \
        static constexpr T epsilon() { return T(step); }                                               \
        static constexpr T infinity() { return T(__builtin_inff()); }                                  \
        static constexpr T quiet_NaN() { return T(__builtin_nanf("")); }                               \
    };
MSL_FLOAT_LIMITS(float, 3.40282347e+38f, 1.17549435e-38f, 1.1920929e-7f)
MSL_FLOAT_LIMITS(half, 65504.0f, 6.103515625e-05f, 9.765625e-4f)
MSL_FLOAT_LIMITS(bfloat, 3.38953139e+38f, 1.17549435e-38f, 7.8125e-3f)
#undef MSL_FLOAT_LIMITS

template <typename To, typename From> constexpr To as_type(From from) {
    static_assert(sizeof(To) == sizeof(From), "as_type: the sizes differ");
    return __builtin_bit_cast(To, from);
}
}  // namespace metal
using metal::as_type;  // a keyword of Metal's
#define is_function_constant_defined(name) msl_defined_##name
