// An index outside an array of the thread.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
    float kept[4];
    for (uint j = 0; j < 4; j++) kept[j] = in[i];
#ifdef FIXED
    out[i] = kept[i % 4];
#else
    out[i] = kept[i % 5];
#endif
}
