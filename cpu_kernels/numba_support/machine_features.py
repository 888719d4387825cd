"""Tell which instructions this process may use."""

from __future__ import annotations

import ctypes
import platform

import llvmlite.binding

_FEATURES = llvmlite.binding.get_host_cpu_features()

#: f32 in a vector: 16 with AVX-512, else 8 (one AVX2 register, or a pair of NEON registers).
LANES = 16 if _FEATURES.get("avx512f") else 8

#: Whether this is an x86 CPU that multiplies int16.
HAS_AVX2 = bool(_FEATURES.get("avx2"))

#: Whether it adds four products of bytes to an int32 at once, one of them unsigned, by AVX-VNNI or AVX-512's VNNI.
HAS_VNNI = HAS_AVX2 and bool(_FEATURES.get("avxvnni") or (_FEATURES.get("avx512vnni") and _FEATURES.get("avx512vl")))

#: Whether this is an ARM CPU that adds four products of signed bytes to an int32 at once. Macs multiply by Metal, or by
#: a unit for matrices that Accelerate has for itself.
HAS_DOT = bool(_FEATURES.get("dotprod")) and platform.system() != "Darwin"

#: Whether products of weights are added up four at once, from bytes to int32. AVX2 adds them up as int16 before.
ADDS_PRODUCTS = HAS_VNNI or HAS_DOT

#: Whether octavo multiplies quantised weights. With AVX-512, but without its VNNI, llama.cpp does.
MULTIPLIES_WEIGHTS = HAS_DOT or (
    (LANES == 8 or HAS_VNNI) and all(_FEATURES.get(name) for name in ("avx2", "fma", "f16c"))
)

#: Linux gives a process AMX's registers on demand: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def _may_use_amx() -> bool:
    """Return whether this CPU multiplies tiles of bf16 and of bytes, and the system lets this process use them."""
    if not (_FEATURES.get("amx-bf16") and _FEATURES.get("amx-int8")) or platform.system() != "Linux" or LANES != 16:
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


#: Whether kernels may multiply on Intel's AMX tiles.
HAS_AMX = _may_use_amx()

#: Whether octavo multiplies weights by few tokens, too. With AMX llama.cpp does, in a layout of its own.
MULTIPLIES_FEW = MULTIPLIES_WEIGHTS and not HAS_AMX
