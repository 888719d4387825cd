// From a launch to the arguments of one thread's call of a kernel. The translator writes one function per kernel that
// calls it with these.
#pragma once
#pragma clang system_header
#undef device
#undef constant
#undef threadgroup
#undef thread
#undef kernel

namespace msl {
template <int I, typename F> struct parameter;
template <typename R, typename A, typename... B> struct parameter<0, R(A, B...)> { typedef A type; };
template <int I, typename R, typename A, typename... B>
struct parameter<I, R(A, B...)> : parameter<I - 1, R(B...)> {};

// A buffer as a pointer or reference. A reference to an absent one (its function constant is false) reads zeros.
template <typename T> struct bound;
template <typename T> struct bound<T *> {
    static constexpr size_t least = 0;
    static T *get(void *memory) { return static_cast<T *>(memory); }
};
template <typename T> struct bound<T &> {
    static constexpr size_t least = sizeof(T);
    static T &get(void *memory) {
        alignas(256) static char nothing[sizeof(T) + 256];
        return *static_cast<T *>(memory ? memory : nothing);
    }
};

// A position as uint, ushort, uint2, ushort3 and so on.
template <typename T, int N> struct position_as {
    static T get(uint3 v) {
        T r;
        for (int i = 0; i < N; i++) r[i] = (typename traits<T>::element)v[i];
        return r;
    }
};
template <typename T> struct position_as<T, 1> { static T get(uint3 v) { return (T)v[0]; } };
template <typename T> T as(uint3 v) { return position_as<T, traits<T>::size>::get(v); }
template <typename T> struct plain { typedef T type; };
template <typename T> struct plain<const T> { typedef T type; };

// The values of all position attributes of a kernel.
struct builtins {
    uint3 thread_position_in_grid, threadgroup_position_in_grid, thread_position_in_threadgroup;
    uint3 threads_per_threadgroup, threadgroups_per_grid, threads_per_grid;
    uint3 thread_index_in_simdgroup, simdgroup_index_in_threadgroup, thread_index_in_threadgroup;
    uint3 simdgroups_per_threadgroup, threads_per_simdgroup;
    const msl_launch *launch;

    explicit builtins(uint thread) {
        uint group[3];
        launch = msl_current(group);
        const uint32_t *threads = launch->threads, *groups = launch->groups;
        threads_per_threadgroup = uint3{threads[0], threads[1], threads[2]};
        threadgroups_per_grid = uint3{groups[0], groups[1], groups[2]};
        threads_per_grid = threads_per_threadgroup * threadgroups_per_grid;
        threadgroup_position_in_grid = uint3{group[0], group[1], group[2]};
        thread_position_in_threadgroup =
            uint3{thread % threads[0], thread / threads[0] % threads[1], thread / threads[0] / threads[1]};
        thread_position_in_grid =
            threadgroup_position_in_grid * threads_per_threadgroup + thread_position_in_threadgroup;
        thread_index_in_threadgroup = thread;
        thread_index_in_simdgroup = thread % 32u;
        simdgroup_index_in_threadgroup = thread / 32u;
        simdgroups_per_threadgroup = (threads[0] * threads[1] * threads[2] + 31u) / 32u;
        threads_per_simdgroup = 32u;
    }
    void *threadgroup_parameter(int index) const {  // no variable of the kernel has this id
        return msl_threadgroup_memory(-1 - index, launch->threadgroup_bytes[index], 16, "parameter");
    }
};
}  // namespace msl
