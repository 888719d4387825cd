// Atomics in device and threadgroup memory. Metal has the relaxed order only.
#pragma once
#pragma clang system_header

namespace metal {
enum memory_order { memory_order_relaxed };

// An atomic's value is only for the functions below.
template <typename T> struct atomic {
    T msl_value;
};
template <typename T> using _atomic = atomic<T>;
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<ulong> atomic_ulong;
typedef atomic<float> atomic_float;

#ifdef MSL_CHECK  // only their types matter, once for each address space
#define MSL_ATOMIC(SPACE, RETURN, NAME, PARAMETERS) \
    template <typename T> RETURN NAME(volatile SPACE atomic<T> *object PARAMETERS, memory_order);
#define MSL_ATOMICS(SPACE)                                       \
    MSL_ATOMIC(const SPACE, T, atomic_load_explicit, )           \
    MSL_ATOMIC(SPACE, void, atomic_store_explicit, MSL_VALUE)    \
    MSL_ATOMIC(SPACE, T, atomic_exchange_explicit, MSL_VALUE)    \
    MSL_ATOMIC(SPACE, T, atomic_fetch_add_explicit, MSL_VALUE)   \
    MSL_ATOMIC(SPACE, T, atomic_fetch_sub_explicit, MSL_VALUE)   \
    MSL_ATOMIC(SPACE, T, atomic_fetch_max_explicit, MSL_VALUE)   \
    MSL_ATOMIC(SPACE, T, atomic_fetch_min_explicit, MSL_VALUE)   \
    MSL_ATOMIC(SPACE, T, atomic_fetch_or_explicit, MSL_VALUE)    \
    MSL_ATOMIC(SPACE, T, atomic_fetch_and_explicit, MSL_VALUE)   \
    MSL_ATOMIC(SPACE, T, atomic_fetch_xor_explicit, MSL_VALUE)   \
    template <typename T>                                        \
    bool atomic_compare_exchange_weak_explicit(volatile SPACE atomic<T> *object, T *expected, \
                                               msl::same<T> desired, memory_order, memory_order);
}
namespace msl {
template <typename T> struct identity { typedef T type; };
template <typename T> using same = typename identity<T>::type;  // not deduced: an int may be given for a uint
}  // namespace msl
namespace metal {
#define MSL_VALUE , msl::same<T> value
MSL_ATOMICS(device)
MSL_ATOMICS(threadgroup)
#undef MSL_VALUE
#undef MSL_ATOMICS
#undef MSL_ATOMIC
#else
template <typename A> using msl_value_of = decltype(A::msl_value);
template <typename T> inline T atomic_load_explicit(const volatile atomic<T> *object, memory_order) {
    T value;
    __atomic_load((T *)&object->msl_value, &value, __ATOMIC_RELAXED);
    return value;
}
template <typename A, typename V> inline void atomic_store_explicit(A *object, V given, memory_order) {
    msl_value_of<A> value = given;
    __atomic_store(&object->msl_value, &value, __ATOMIC_RELAXED);
}
template <typename A, typename V> inline auto atomic_exchange_explicit(A *object, V given, memory_order) {
    msl_value_of<A> value = given, old;
    __atomic_exchange(&object->msl_value, &value, &old, __ATOMIC_RELAXED);
    return old;
}
template <typename A, typename T, typename V>
inline bool atomic_compare_exchange_weak_explicit(A *object, T *expected, V given, memory_order, memory_order) {
    T desired = given;
    return __atomic_compare_exchange(&object->msl_value, expected, &desired, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
// a: the value before, b: the operand
#define MSL_FETCH(NAME, EXPRESSION)                                                                               \
    template <typename A, typename V> inline auto NAME(A *object, V given, memory_order) {                        \
        msl_value_of<A> a, b = given, desired;                                                                    \
        __atomic_load(&object->msl_value, &a, __ATOMIC_RELAXED);                                                  \
        do desired = EXPRESSION;                                                                                  \
        while (!__atomic_compare_exchange(&object->msl_value, &a, &desired, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
        return a;                                                                                                 \
    }
MSL_FETCH(atomic_fetch_add_explicit, a + b)
MSL_FETCH(atomic_fetch_sub_explicit, a - b)
MSL_FETCH(atomic_fetch_max_explicit, a > b ? a : b)
MSL_FETCH(atomic_fetch_min_explicit, a < b ? a : b)
MSL_FETCH(atomic_fetch_or_explicit, a | b)
MSL_FETCH(atomic_fetch_and_explicit, a &b)
MSL_FETCH(atomic_fetch_xor_explicit, a ^ b)
#undef MSL_FETCH
#endif
}  // namespace metal
