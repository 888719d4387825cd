// A simd operation in a branch that not all lanes take.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
    float x = in[i];
#ifdef FIXED
    x = simd_sum(lane < 20 ? x : 0);
#else
    if (lane < 20) x = simd_sum(x);
#endif
    out[i] = x;
}
