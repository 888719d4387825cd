// Constructors of vectors, and packed vectors, which are aligned as their elements.
//
// The translator writes `float4(a, b)` as `msl::make<float4>(a, b)`: clang's vectors have no such constructors.
#pragma once
#pragma clang system_header

namespace msl {
// How many elements a scalar or vector type has, and of which type.
template <typename T> struct traits {
    typedef T element;
    static constexpr int size = 1;
};
#define MSL_TRAITS(T)                                                             \
    template <> struct traits<T##2> { typedef T element; static constexpr int size = 2; }; \
    template <> struct traits<T##3> { typedef T element; static constexpr int size = 3; }; \
    template <> struct traits<T##4> { typedef T element; static constexpr int size = 4; };
MSL_FLOATS(MSL_TRAITS)
MSL_INTEGERS(MSL_TRAITS)
MSL_TRAITS(bool)
#undef MSL_TRAITS

template <typename E, int N> struct vector_of { typedef E type __attribute__((ext_vector_type(N))); };

template <typename T> struct is_scalar { static constexpr bool value = traits<T>::size == 1; };

constexpr bool all_of() { return true; }
template <typename... Rest> constexpr bool all_of(bool first, Rest... rest) { return first && all_of(rest...); }
constexpr int sum_of() { return 0; }
template <typename... Rest> constexpr int sum_of(int first, Rest... rest) { return first + sum_of(rest...); }

template <typename V, typename A, bool scalar> struct append;
template <typename V, typename A> struct append<V, A, true> {
    static void to(V &v, int &at, A a) { v[at++] = (typename traits<V>::element)a; }
};
template <typename V, typename A> struct append<V, A, false> {
    static void to(V &v, int &at, A a) {
        for (int i = 0; i < traits<A>::size; i++) v[at++] = (typename traits<V>::element)a[i];
    }
};

// Three ways: one scalar for all elements, as many scalars as elements (constexpr), and anything that adds up.
template <typename V, int kind> struct maker;
template <typename V> struct maker<V, 0> {
    template <typename A> static constexpr V make(A a) { return (V)(typename traits<V>::element)a; }
};
template <typename V> struct maker<V, 1> {
    template <typename... A> static constexpr V make(A... a) { return V{(typename traits<V>::element)a...}; }
};
template <typename V> struct maker<V, 2> {
    template <typename... A> static V make(A... a) {
        V v;
        int at = 0;
        int unused[] = {(append<V, A, is_scalar<A>::value>::to(v, at, a), 0)...};
        (void)unused;
        return v;
    }
};

template <typename V, typename... A> constexpr V make(A... a) {
    constexpr bool scalars = all_of(is_scalar<A>::value...);
    static_assert(sum_of(traits<A>::size...) == traits<V>::size || (sizeof...(A) == 1 && scalars),
                  "a vector's constructor has too few or too many elements");
    return maker<V, !scalars ? 2 : sizeof...(A) == 1 ? 0 : 1>::make(a...);
}
template <typename V> constexpr V make() { return V{}; }

// packed_float3 and so on. Arithmetic goes through the vector.
template <typename E, int N> struct packed_elements;
template <typename E> struct packed_elements<E, 2> { E x, y; };
template <typename E> struct packed_elements<E, 3> { E x, y, z; };
template <typename E> struct packed_elements<E, 4> { E x, y, z, w; };

template <typename E, int N> struct packed : packed_elements<E, N> {
    typedef typename vector_of<E, N>::type vector;
    packed() = default;
    packed(vector v) { set(v); }
    template <typename... A, typename = metal::enable_if_t<(sizeof...(A) > 1)>> packed(A... a) { set(make<vector>(a...)); }
    void set(vector v) {
        for (int i = 0; i < N; i++) (&this->x)[i] = v[i];
    }
    vector get() const {
        vector v;
        __builtin_memcpy(&v, (const void *)&this->x, N * sizeof(E));
        return v;
    }
    operator vector() const { return get(); }
    E &operator[](int i) { return ((E *)this)[i]; }
    const E &operator[](int i) const { return ((const E *)this)[i]; }
    packed &operator+=(vector v) { return *this = packed(get() + v); }
    packed &operator-=(vector v) { return *this = packed(get() - v); }
    packed &operator*=(vector v) { return *this = packed(get() * v); }
};
template <typename E, int N> struct traits<packed<E, N>> {
    typedef E element;
    static constexpr int size = N;
};
}  // namespace msl

// In check mode they are vectors, whose members can be used in every address space; packed_float3 is too large then.
#ifdef MSL_CHECK
#define MSL_PACKED(T)                                                              \
    typedef T packed_##T##2 __attribute__((ext_vector_type(2), aligned(sizeof(T)))); \
    typedef T packed_##T##3 __attribute__((ext_vector_type(3), aligned(sizeof(T)))); \
    typedef T packed_##T##4 __attribute__((ext_vector_type(4), aligned(sizeof(T))));
#else
#define MSL_PACKED(T)                        \
    typedef msl::packed<T, 2> packed_##T##2; \
    typedef msl::packed<T, 3> packed_##T##3; \
    typedef msl::packed<T, 4> packed_##T##4;
#endif
MSL_FLOATS(MSL_PACKED)
MSL_INTEGERS(MSL_PACKED)
#undef MSL_PACKED

namespace metal {
template <typename E, int N> using vec = typename msl::vector_of<E, N>::type;
}
