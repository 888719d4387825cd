"""Define `Shape`, the sizes of a head's rows. Kernels get them at run time: one compilation serves all models.

In a kernel a shape is one int64, of which each attribute is a few instructions. LLVM computes these once for a loop, as
it knows that they do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr,
    models,
    register_model,
    typeof_impl,
    unbox,
)

from .machine_features import HAS_AMX, HAS_AVX2, LANES

#: Storage formats of keys and values, by llama.cpp's names.
F16, Q8_0, Q4_0 = "f16", "q8_0", "q4_0"

#: Elements of a 4-bit row that share a scale.
NIBBLES = 32

#: Elements of a row of bf16 in an AMX tile.
AMX_DEPTH = 32

#: Numbers of the formats in a kernel, and where a shape's int64 has them and the group. head_dim is in the lowest bits.
_FORMATS = {F16: 0, Q8_0: 1, Q4_0: 2}
_FORMAT_BIT, _GROUP_BIT, _FIELD = 32, 16, 0xFFFF


@dataclass(frozen=True)
class Shape:
    """The sizes of the rows that an attention kernel reads, and of the queries that read them.

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
    def packed(self) -> int:
        """Return the int64 that a kernel gets."""
        return self.head_dim | self.group << _GROUP_BIT | _FORMATS[self.kv_type] << _FORMAT_BIT

    @property
    def row_bytes(self) -> int:
        """Return the bytes of one stored key or value."""
        if self.kv_type == Q4_0:
            return self.head_dim // 2 + 2 * -(-self.head_dim // NIBBLES)
        return self.head_dim + 4 if self.kv_type == Q8_0 else 2 * self.head_dim

    @property
    def quantised(self) -> bool:
        """Return whether rows are integers, with scales."""
        return self.kv_type != F16

    @property
    def rotated(self) -> bool:
        """Return whether rows are rotated before they are rounded (see rotation.py)."""
        return self.kv_type == Q4_0

    @property
    def on_amx(self) -> bool:
        """Return whether prefill multiplies on AMX tiles.

        Kernels ask for `HAS_AMX and shape.on_amx`: without AMX, Numba then leaves out what follows.
        """
        return HAS_AMX and self.head_dim % AMX_DEPTH == 0

    @property
    def on_words(self) -> bool:
        """Return whether rough products of prefill use int16."""
        return HAS_AVX2 and not self.on_amx and self.head_dim % LANES == 0

    @property
    def of_halves(self) -> Shape:
        """Return the shape of rows that are always f16, such as centroids."""
        return Shape(self.head_dim, self.group)

    @property
    def of_bytes(self) -> Shape:
        """Return the shape of rows that are always q8_0, such as mean values."""
        return Shape(self.head_dim, self.group, Q8_0)

    @property
    def of_pairs(self) -> Shape:
        """Return the shape of f16 rows of two vectors: the bounds of a page."""
        return Shape(2 * self.head_dim, self.group)


class ShapeType(types.Type):
    """The Numba type of a `Shape`."""

    def __init__(self) -> None:
        super().__init__(name="Shape")


SHAPE = ShapeType()


@register_model(ShapeType)
class _ShapeModel(models.PrimitiveModel):
    def __init__(self, manager: Any, shape_type: Any) -> None:
        super().__init__(manager, shape_type, ir.IntType(64))


@typeof_impl.register(Shape)
def _type_of_shape(_shape: Shape, _context: Any) -> ShapeType:
    return SHAPE


@unbox(ShapeType)
def _unbox_shape(_type: Any, shape: Any, unboxer: Any) -> NativeValue:
    packed = unboxer.pyapi.object_getattr_string(shape, "packed")
    value = unboxer.pyapi.long_as_longlong(packed)
    unboxer.pyapi.decref(packed)
    return NativeValue(value)


class ShapeParts:
    """Write the attributes of a shape into a function while it is compiled."""

    def __init__(self, builder: Any, packed: Any) -> None:
        self.builder, self.packed = builder, packed

    def _and(self, x: Any, mask: int) -> Any:
        return self.builder.and_(x, _constant(mask))

    def head_dim(self) -> Any:
        return self._and(self.packed, _FIELD)

    def group(self) -> Any:
        return self._and(self.builder.lshr(self.packed, _constant(_GROUP_BIT)), _FIELD)

    def _is(self, kv_type: str) -> Any:
        number = self.builder.lshr(self.packed, _constant(_FORMAT_BIT))
        return self.builder.icmp_signed("==", number, _constant(_FORMATS[kv_type]))

    def quantised(self) -> Any:
        return self.builder.not_(self._is(F16))

    def rotated(self) -> Any:
        return self._is(Q4_0)

    def row_bytes(self) -> Any:
        builder, head_dim = self.builder, self.head_dim()
        blocks = builder.lshr(builder.add(head_dim, _constant(NIBBLES - 1)), _constant(5))
        nibbles = builder.add(builder.lshr(head_dim, _constant(1)), builder.shl(blocks, _constant(1)))
        halves, bytes_ = builder.shl(head_dim, _constant(1)), builder.add(head_dim, _constant(4))
        return builder.select(self._is(F16), halves, builder.select(self._is(Q8_0), bytes_, nibbles))

    def _divides(self, number: int) -> Any:
        return self.builder.icmp_signed("==", self._and(self.packed, number - 1), _constant(0))

    def on_amx(self) -> Any:
        return self._divides(AMX_DEPTH) if HAS_AMX else ir.Constant(ir.IntType(1), 0)

    def on_words(self) -> Any:
        if not HAS_AVX2:
            return ir.Constant(ir.IntType(1), 0)
        return self.builder.and_(self.builder.not_(self.on_amx()), self._divides(LANES))

    def of_halves(self) -> Any:
        return self._and(self.packed, (1 << _FORMAT_BIT) - 1)

    def of_bytes(self) -> Any:
        return self.builder.or_(self.of_halves(), _constant(_FORMATS[Q8_0] << _FORMAT_BIT))

    def of_pairs(self) -> Any:
        return self.builder.add(self.of_halves(), self.head_dim())


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("head_dim", "group", "row_bytes"), types.int64),
    **dict.fromkeys(("quantised", "rotated", "on_amx", "on_words"), types.boolean),
    **dict.fromkeys(("of_halves", "of_bytes", "of_pairs"), SHAPE),
}


def _constant(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


@infer_getattr
class _ShapeAttributes(AttributeTemplate):
    key = ShapeType

    def generic_resolve(self, _shape: ShapeType, name: str) -> Any:
        return _TYPES.get(name)


def _define(name: str) -> None:
    @lower_getattr(ShapeType, name)
    def attribute(_context: Any, builder: Any, _type: Any, packed: Any) -> Any:
        write: Callable[[], Any] = getattr(ShapeParts(builder, packed), name)
        return write()


for _name in _TYPES:
    _define(_name)


@intrinsic
def shape_of_halves(typing: Any, head_dim: Any, group: Any) -> Any:
    """Return the shape of f16 rows of head_dim elements, and of queries of `group` query heads."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        head_dim, group = args
        return builder.or_(head_dim, builder.shl(group, _constant(_GROUP_BIT)))

    return SHAPE(types.int64, types.int64), generate


@intrinsic
def unpacked_shape(typing: Any, packed: Any) -> Any:
    """Return the shape that a record keeps as an int64."""
    return SHAPE(types.int64), lambda context, builder, signature, args: args[0]
