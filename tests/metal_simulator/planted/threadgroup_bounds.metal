// A threadgroup array that is smaller than the threadgroup.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
#ifdef FIXED
    threadgroup float tile[64];
#else
    threadgroup float tile[63];
#endif
    tile[i] = in[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = tile[i];
}
