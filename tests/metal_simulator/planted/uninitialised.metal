// An accumulator in threadgroup memory that nobody sets to zero.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
    threadgroup float sums[64];
#ifdef FIXED
    sums[i] = 0;
#endif
    sums[i] += in[i];
    out[i] = sums[i];
}
