// Read memory, and hardly compute: the lower bound of other kernels' times. This is a separate library.

#include <metal_stdlib>
using namespace metal;

// Compute the exclusive or of n_vectors vectors, in parts. Neighbouring threads read neighbouring vectors.
kernel void read_memory(device const uint4 *vectors [[buffer(0)]],
                        constant uint &n_vectors [[buffer(1)]],
                        device uint *out [[buffer(2)]],
                        uint3 place [[threadgroup_position_in_grid]],
                        uint3 places [[threadgroups_per_grid]],
                        uint index [[thread_index_in_threadgroup]],
                        uint n_simds [[simdgroups_per_threadgroup]]) {
    uint n_threads = n_simds * 32, thread_number = place.x * n_threads + index;
    uint4 seen = uint4(0, 0, 0, 0);
    for (uint i = thread_number; i < n_vectors; i += places.x * n_threads) {
        seen ^= vectors[i];
    }
    out[thread_number] = seen.x ^ seen.y ^ seen.z ^ seen.w;
}
