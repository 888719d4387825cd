// Two threadgroups add to the same output.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
#ifdef FIXED
    out[group * 32 + lane] += in[group * 32 + lane];
#else
    out[lane] += in[group * 32 + lane];
#endif
}
