"""OCTAVO_TEST_CPU=NAME pretends that this machine's CPU is another one, so that its kernels are tested on any machine.

Kernels are written for the features that llvmlite finds when octavo is imported, and Numba compiles for the same: both
are told less here. A CPU with AVX-512's VNNI, but not AVX-VNNI, still has the same products of 32 bytes, in another
encoding: octavo is told that it has AVX-VNNI, and Numba has the encoding. AMX is emulated. Import this before octavo.
"""

import os
from pathlib import Path

import llvmlite.binding
import platformdirs

_NO_AVX512 = ("avx512", "avx10", "evex512", "amx")
_NO_VNNI = ("avxvnni",)
#: What has the instructions of AVX-VNNI in another encoding.
_VNNI_OF_32_BYTES = ("avx512vl", "avx512vnni")
#: What else needs AVX2.
_NO_AVX2 = ("avx2", "avxifma", "avxneconvert", "vaes", "vpclmulqdq", "gfni", "sha512", "sm3", "sm4")

#: The features that each of them lacks, by how their names begin.
CPUS = {
    "skylake": ("avx512vnni", "avx10", "evex512", "amx", *_NO_VNNI),  # AVX-512 without products of bytes
    "icelake": ("amx", *_NO_VNNI),  # AVX-512 with products of 64 bytes
    "sapphirerapids": _NO_VNNI,  # the same, and AMX
    "alderlake": _NO_AVX512,  # AVX2, and products of 32 bytes
    "avx2": (*_NO_AVX512, *_NO_VNNI),
    "baseline": (*_NO_AVX512, *_NO_VNNI, *_NO_AVX2),
}


def pretend(cpu: str) -> None:
    """Take this machine's CPU for another, with a cache of kernels of its own."""
    features = llvmlite.binding.get_host_cpu_features()
    has_both = all(features.get(name) for name in _VNNI_OF_32_BYTES)
    for name in features:
        features[name] = features[name] and not name.startswith(CPUS[cpu])
    if has_both and not features.get("avxvnni") and not set(_NO_VNNI) & set(CPUS[cpu]):
        os.environ["NUMBA_CPU_FEATURES"] = ",".join([features.flatten(), *(f"+{name}" for name in _VNNI_OF_32_BYTES)])
        features["avxvnni"] = True
    folder = Path(platformdirs.user_cache_dir("octavo")) / "test-cpus" / cpu
    llvmlite.binding.get_host_cpu_features = lambda: features
    platformdirs.user_cache_dir = lambda *_, **__: str(folder)


#: Emulated ARM CPUs that add products of bytes: the emulator does not say so.
_WITH_DOT = ("cortex-a76", "apple-m1")

if os.environ.get("NUMBA_CPU_NAME") in _WITH_DOT:
    _features = {**llvmlite.binding.get_host_cpu_features(), "dotprod": True}
    llvmlite.binding.get_host_cpu_features = lambda: _features
if os.environ.get("OCTAVO_TEST_CPU"):
    pretend(os.environ["OCTAVO_TEST_CPU"])
if os.environ.get("OCTAVO_TEST_CPU") == "sapphirerapids":
    from .emulated_amx import emulate

    emulate()
