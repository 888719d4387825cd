// A signed product that overflows, as an index would.
#include <metal_stdlib>
using namespace metal;

kernel void planted(device const float *in [[buffer(0)]],
                    device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
#ifdef FIXED
    long far = long(i + 1) * 100000 * 100000;
#else
    int far = int(i + 1) * 100000 * 100000;
#endif
    out[i] = far > 0 ? in[i] : 0;
}
