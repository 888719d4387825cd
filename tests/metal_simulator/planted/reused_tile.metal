// The next round overwrites the tile while other simd groups still read it.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
    threadgroup float tile[64];
    float sum = 0;
    for (uint round = 0; round < 4; round++) {
        tile[i] = in[round * 64 + i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        sum += tile[63 - i];
#ifdef FIXED
        threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    }
    out[i] = sum;
}
