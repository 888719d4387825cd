// Barriers, and the operations of a simd group of 32 lanes.
//
// Every operation is an exchange: each lane gives its value and gets all lanes' values and which lanes there are. All
// lanes of the simd group must reach the same operation; the engine refuses others.
#pragma once
#pragma clang system_header

#define MSL_SITE msl_site site = {__builtin_FILE(), __builtin_LINE(), __builtin_COLUMN()}

namespace metal {
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
inline constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }

inline void threadgroup_barrier(mem_flags flags, MSL_SITE) { msl_barrier(msl_threadgroup, int(flags), site); }
inline void simdgroup_barrier(mem_flags flags, MSL_SITE) { msl_barrier(msl_simdgroup, int(flags), site); }
}  // namespace metal

namespace msl {
// What an exchange returned. Lanes that a partial simd group does not have read as 0xFF bytes.
template <typename T> struct lanes {
    const char *values;
    uint32_t active;
    lanes(T value, const char *operation, msl_site site) {
        static_assert(sizeof(T) <= 64, "a simd operation of so large a type");
        values = static_cast<const char *>(msl_exchange(&value, sizeof(T), operation, site, &active));
    }
    bool has(int i) const { return active >> i & 1u; }
    T operator[](int i) const {
        T value;
        __builtin_memcpy(&value, values + i * int(sizeof(T)), sizeof(T));
        return value;
    }
};
}  // namespace msl

namespace metal {
// a: the lanes before, b: the next lane's value
#define MSL_REDUCTION(NAME, EXPRESSION)                                                \
    template <typename T> inline T NAME(T value, MSL_SITE) {                           \
        msl::lanes<T> all(value, #NAME, site);                                         \
        T a = all[0];                                                                  \
        for (int i = 1; i < 32; i++)                                                   \
            if (all.has(i)) {                                                          \
                T b = all[i];                                                          \
                a = (T)(EXPRESSION);                                                   \
            }                                                                          \
        return a;                                                                      \
    }
MSL_REDUCTION(simd_sum, a + b)
MSL_REDUCTION(simd_product, a * b)
MSL_REDUCTION(simd_max, max(a, b))
MSL_REDUCTION(simd_min, min(a, b))
MSL_REDUCTION(simd_and, a & b)
MSL_REDUCTION(simd_or, a | b)
MSL_REDUCTION(simd_xor, a ^ b)
#undef MSL_REDUCTION

// i: the lane whose value this lane gets; its own, where there is no such lane in a simd group
#define MSL_SHUFFLE(NAME, INDEX)                                                       \
    template <typename T> inline T NAME(T value, ushort n, MSL_SITE) {                 \
        msl::lanes<T> all(value, #NAME, site);                                         \
        int lane = int(msl_lane()), i = INDEX;                                         \
        (void)lane;                                                                    \
        return i >= 0 && i < 32 ? all[i] : value;                                      \
    }
MSL_SHUFFLE(simd_shuffle, int(n))
MSL_SHUFFLE(simd_broadcast, int(n))
MSL_SHUFFLE(simd_shuffle_xor, lane ^ int(n))
MSL_SHUFFLE(simd_shuffle_down, lane + int(n))
MSL_SHUFFLE(simd_shuffle_up, lane - int(n))
MSL_SHUFFLE(simd_shuffle_rotate_down, (lane + int(n)) % 32)
MSL_SHUFFLE(simd_shuffle_rotate_up, (lane + 32 - int(n) % 32) % 32)
#undef MSL_SHUFFLE

template <typename T> inline T simd_broadcast_first(T value, MSL_SITE) {
    msl::lanes<T> all(value, "simd_broadcast_first", site);
    return all[0];
}

#define MSL_PREFIX(NAME, FIRST, LAST, EXPRESSION)                                      \
    template <typename T> inline T NAME(T value, MSL_SITE) {                           \
        msl::lanes<T> all(value, #NAME, site);                                         \
        T a = (T)FIRST;                                                                \
        for (int i = 0; i < int(msl_lane()) + LAST; i++) {                             \
            T b = all[i];                                                              \
            a = (T)(EXPRESSION);                                                       \
        }                                                                              \
        return a;                                                                      \
    }
MSL_PREFIX(simd_prefix_exclusive_sum, 0, 0, a + b)
MSL_PREFIX(simd_prefix_inclusive_sum, 0, 1, a + b)
MSL_PREFIX(simd_prefix_exclusive_product, 1, 0, a *b)
MSL_PREFIX(simd_prefix_inclusive_product, 1, 1, a *b)
#undef MSL_PREFIX

class simd_vote {
  public:
    typedef ulong vote_t;
    explicit constexpr simd_vote(vote_t votes = 0, uint active = ~0u) : votes(votes), active(active) {}
    explicit constexpr operator vote_t() const { return votes; }
    bool any() const { return votes != 0; }
    bool all() const { return votes == active; }

  private:
    vote_t votes;
    uint active;
};

inline simd_vote simd_ballot(bool value, MSL_SITE) {
    msl::lanes<bool> all(value, "simd_ballot", site);
    ulong votes = 0;
    for (int i = 0; i < 32; i++)
        if (all.has(i) && all[i]) votes |= 1ul << i;
    return simd_vote(votes, all.active);
}
inline simd_vote simd_active_threads_mask(MSL_SITE) { return simd_ballot(true, site); }
inline bool simd_any(bool value, MSL_SITE) { return simd_ballot(value, site).any(); }
inline bool simd_all(bool value, MSL_SITE) { return simd_ballot(value, site).all(); }
inline bool simd_is_first() { return msl_lane() == 0; }
}  // namespace metal
