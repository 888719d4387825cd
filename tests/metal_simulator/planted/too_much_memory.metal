// More threadgroup memory than a threadgroup has.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
#ifdef FIXED
    threadgroup float tile[8000];
#else
    threadgroup float tile[8000], more[200];
    more[i] = in[i];
#endif
    tile[i] = in[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = tile[63 - i];
}
