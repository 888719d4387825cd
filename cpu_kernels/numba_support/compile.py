"""Compile kernels: the decorators, their flags, and the sizes that a kernel is compiled for."""

from __future__ import annotations

import ctypes
import operator
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
from numba import types
from numba.core.imputils import lower_constant
from numba.extending import NativeValue, models, overload_attribute, register_model, typeof_impl, unbox

from .kernel_cache import folder_for, is_usable, keep_in

_FEATURES = llvmlite.binding.get_host_cpu_features()

#: f32 in a vector: 16 with AVX-512, else 8 (one AVX2 register, or a pair of NEON registers).
LANES = 16 if _FEATURES.get("avx512f") else 8

#: Whether this is an x86 CPU that multiplies int16.
_HAS_AVX2 = bool(_FEATURES.get("avx2"))

#: Linux gives a process AMX's registers on demand: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def _may_use_amx() -> bool:
    """Return whether this CPU multiplies tiles of bf16, and the system lets this process use them."""
    if not _FEATURES.get("amx-bf16") or platform.system() != "Linux" or LANES != 16:
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


#: Whether kernels may multiply on Intel's AMX tiles.
HAS_AMX = _may_use_amx()

#: Elements of a row of bf16 in an AMX tile.
AMX_DEPTH = 32

#: Sums may be reordered, and multiplications fused into additions. Never "nnan" or "ninf": a NaN in the cache must
#: reach the output, and -inf masks scores.
FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}


@cache
def cache_folder() -> Path:
    """Return the folder of kernels compiled from exactly these sources, for the CPU features of this process."""
    return folder_for(str(HAS_AMX))


@cache
def compiled_before() -> bool:
    """Return whether kernels were on disk when this process started."""
    return cache_folder().exists()


@cache
def keeps_kernels() -> bool:
    """Return whether kernels are kept on disk. Otherwise each process compiles its own."""
    compiled_before()
    if not is_usable(cache_folder()):
        return False
    keep_in(cache_folder())
    return True


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function of the hot path: without Python objects, without the GIL, cached on disk.

    Numba compiles it, for each combination of argument types.
    """
    return numba.njit(nogil=True, cache=keeps_kernels(), error_model="numpy", fastmath=FAST_MATH)(function)


def native_callback(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function for C; the result's `address` is the function pointer."""

    def decorate(function: Callable[..., Any]) -> Any:
        options = {"cache": keeps_kernels(), "error_model": "numpy", "fastmath": FAST_MATH}
        return numba.cfunc(signature, nopython=True, **options)(function)

    return decorate


#: Storage formats of keys and values, by llama.cpp's names.
F16, Q8_0, Q4_0 = "f16", "q8_0", "q4_0"

#: Elements of a 4-bit row that share a scale.
NIBBLES = 32


@dataclass(frozen=True)
class Shape:
    """The sizes that an attention kernel is compiled for: constants, so that loops over them unroll.

    Parameters
    ----------
    head_dim : int
        Elements of a key or value row, a multiple of 8.
    group : int
        Query heads that share a KV head.
    kv_type : str
        Storage format of keys and values, F16, Q8_0 or Q4_0 (see rows.py).
    """

    head_dim: int
    group: int
    kv_type: str = F16

    @property
    def row_bytes(self) -> int:
        """Return the bytes of one stored key or value."""
        if self.kv_type == Q4_0:
            return self.head_dim // 2 + 2 * -(-self.head_dim // NIBBLES)
        return self.head_dim + 4 if self.kv_type == Q8_0 else 2 * self.head_dim

    @property
    def on_amx(self) -> bool:
        """Return whether prefill multiplies on AMX tiles."""
        return HAS_AMX and self.head_dim % AMX_DEPTH == 0

    @property
    def on_words(self) -> bool:
        """Return whether rough products of prefill use int16."""
        return _HAS_AVX2 and not self.on_amx and self.head_dim % LANES == 0

    @property
    def of_halves(self) -> Shape:
        """Return the shape of rows that are always f16, such as centroids."""
        return Shape(self.head_dim, self.group)

    @property
    def of_pairs(self) -> Shape:
        """Return the shape of f16 rows of two vectors: the bounds of a page."""
        return Shape(2 * self.head_dim, self.group)


class ShapeType(types.Type):
    """The Numba type of one `Shape`: sizes are part of the type, so that compiled code holds them as constants."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        super().__init__(name=str(shape))


register_model(ShapeType)(models.OpaqueModel)


@typeof_impl.register(Shape)
def _type_of_shape(shape: Shape, _context: Any) -> ShapeType:
    return ShapeType(shape)


@lower_constant(ShapeType)
def _constant_shape(context: Any, _builder: Any, _type: Any, _shape: Any) -> Any:
    return context.get_dummy_value()


@unbox(ShapeType)
def _unbox_shape(_type: Any, _object: Any, unboxer: Any) -> NativeValue:
    return NativeValue(unboxer.context.get_dummy_value())


def constant_attribute(name: str, value_of: Callable[[Shape], Any]) -> None:
    """Let kernels read an attribute of a shape, as a constant."""

    @overload_attribute(ShapeType, name)
    def attribute(shape):
        value = value_of(shape.shape)
        return lambda shape: value


for _name in ("head_dim", "group", "row_bytes", "on_amx", "on_words", "of_halves", "of_pairs"):
    constant_attribute(_name, operator.attrgetter(_name))
constant_attribute("quantised", lambda shape: shape.kv_type != F16)
constant_attribute("rotated", lambda shape: shape.kv_type == Q4_0)
