"""One-kernel shaders for tests: kernel k, whose last buffer is the result."""

from metal_simulator.simulator import Library

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"


def kernel(body, parameters="", before=""):
    """One kernel k(out, i) and more parameters, whose first are buffers."""
    return (
        f"{HEADER}{before}\nkernel void k({parameters}\n"
        f"uint i [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {{\n{body}\n}}\n"
    )


def run(source, *buffers, threads=1, groups=1, **options):
    """Runs kernel k with buffers 0, 1, ...; returns the last, which is the result."""
    Library(source).run("k", dict(enumerate(buffers)), groups, threads, **options)
    return buffers[-1]
