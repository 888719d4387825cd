"""OCTAVO_TEST_CPU=NAME pretends that this machine's CPU is a lesser one, so that its kernels are tested on any machine.

Kernels are written for the features that llvmlite finds when octavo is imported, and Numba compiles for the same: both
are told less here. Import this before octavo.
"""

import os
from pathlib import Path

import llvmlite.binding
import platformdirs

_NO_AVX512 = ("avx512", "avx10", "evex512", "amx")
_NO_VNNI = ("avxvnni",)
#: What else needs AVX2.
_NO_AVX2 = ("avx2", "avxifma", "avxneconvert", "vaes", "vpclmulqdq", "gfni", "sha512", "sm3", "sm4")

#: The features that each of them lacks, by how their names begin.
CPUS = {
    "skylake": ("avx512vnni", "avx10", "evex512", "amx", *_NO_VNNI),  # AVX-512 without products of bytes
    "alderlake": _NO_AVX512,  # AVX2, and products of 32 bytes
    "avx2": (*_NO_AVX512, *_NO_VNNI),
    "baseline": (*_NO_AVX512, *_NO_VNNI, *_NO_AVX2),
}


def pretend(cpu: str) -> None:
    """Take this machine's CPU for another, with a cache of kernels of its own."""
    features = llvmlite.binding.get_host_cpu_features()
    for name in features:
        features[name] = features[name] and not name.startswith(CPUS[cpu])
    folder = Path(platformdirs.user_cache_dir("octavo")) / "test-cpus" / cpu
    llvmlite.binding.get_host_cpu_features = lambda: features
    platformdirs.user_cache_dir = lambda *_, **__: str(folder)


if os.environ.get("OCTAVO_TEST_CPU"):
    pretend(os.environ["OCTAVO_TEST_CPU"])
