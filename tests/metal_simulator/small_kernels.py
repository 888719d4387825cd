"""Write and run shaders of one kernel, k, for tests. The last buffer is the result."""

from metal_simulator.simulator import Library

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"


def kernel(body, parameters="", before=""):
    """Write a shader with kernel k: buffers and other `parameters`, then i and lane."""
    return (
        f"{HEADER}{before}\nkernel void k({parameters}\n"
        f"uint i [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {{\n{body}\n}}\n"
    )


def run(source, *buffers, threads=1, groups=1, **options):
    """Run kernel k with buffers 0, 1, ... and return the last."""
    Library(source).run("k", dict(enumerate(buffers)), groups, threads, **options)
    return buffers[-1]
