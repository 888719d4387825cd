// Another simd group's element is read before it is certain that it was written.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
    threadgroup float tile[64];
    tile[i] = in[i];
#ifdef FIXED
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    out[i] = tile[63 - i];
}
