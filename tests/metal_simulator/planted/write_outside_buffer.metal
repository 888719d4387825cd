// One element too far.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
#ifdef FIXED
    out[i] = in[i];
#else
    out[i + 1] = in[i];
#endif
}
