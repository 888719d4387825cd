// Threads without work return before the barrier.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
    threadgroup float tile[64];
#ifndef FIXED
    if (i >= 50) return;
#endif
    tile[i] = in[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (i < 50) out[i] = tile[49 - i];
}
