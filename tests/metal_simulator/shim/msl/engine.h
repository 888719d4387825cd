// What a translated shader calls: the border between the shim (instrumented by sanitizers) and the engine (not).
#pragma once
#include <stddef.h>
#include <stdint.h>

// Where in the .metal file a barrier or simd operation stands; the column tells two on one line apart.
struct msl_site {
    const char *file;
    int line, column;
};

enum msl_scope { msl_simdgroup = 0, msl_threadgroup = 1 };

// One kernel launch. `kernel` runs the thread with the given index in its threadgroup.
struct msl_launch {
    void (*kernel)(uint32_t thread);
    void *const *buffers;
    const uint64_t *threadgroup_bytes;  // of the kernel's [[threadgroup(n)]] parameters
    uint32_t groups[3], threads[3];
    uint32_t schedule;  // 0 in order, 1 reversed, others: seed of a random order
    uint32_t timeout_seconds;
};

extern "C" {
// Waits for the other threads of the scope; memory is ordered unless flags is 0.
void msl_barrier(int scope, int flags, msl_site site);
// Waits for the other lanes of the simd group; returns the 32 lanes' values and, in *active, which lanes there are.
const void *msl_exchange(const void *value, uint32_t bytes, const char *operation, msl_site site, uint32_t *active);
uint32_t msl_lane();
// Memory of one threadgroup variable: the same for all threads of a group, all bytes 0xFF at first (NaN).
void *msl_threadgroup_memory(int id, size_t bytes, size_t alignment, const char *name);
// The launch and the threadgroup that runs.
const msl_launch *msl_current(uint32_t group[3]);

int msl_run(const msl_launch *launch);  // 0, or 1 and msl_error()
const char *msl_error();
}
