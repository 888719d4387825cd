// A vector is read from an address that is not a multiple of its size.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
#ifdef FIXED
    float4 four = *(device const packed_float4 *)(in + i);
#else
    float4 four = *(device const float4 *)(in + i);
#endif
    out[i] = four.x;
}
