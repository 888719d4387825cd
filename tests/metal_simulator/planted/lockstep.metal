// Lanes of one simd group exchange values through memory as if they ran in lockstep.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
    threadgroup float tile[32];
    tile[lane] = in[lane];
    float largest = simd_max(in[lane]);
#ifdef FIXED
    simdgroup_barrier(mem_flags::mem_threadgroup);
#endif
    float other = tile[31 - lane];
#ifdef FIXED
    simdgroup_barrier(mem_flags::mem_threadgroup);
#endif
    tile[lane] = other + largest;
    out[lane] = tile[lane];
}
