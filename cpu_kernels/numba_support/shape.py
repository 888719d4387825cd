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

#: The format of q8_0 rows that are not rotated: of mean values, and in indexes from before 0.4.
FLAT_Q8_0 = "flat q8_0"


def llama_cpp_name(kv_type: str) -> str:
    """Return llama.cpp's name of a storage format."""
    return Q8_0 if kv_type == FLAT_Q8_0 else kv_type


#: Elements of a 4-bit row that share a scale.
NIBBLES = 32

#: Elements of a row of bf16 in an AMX tile.
AMX_DEPTH = 32

#: Numbers of the formats in a kernel, and where a shape's int64 has its fields. head_dim is in the lowest bits.
_FORMATS = {F16: 0, FLAT_Q8_0: 1, Q4_0: 2, Q8_0: 3}
_GROUP_BIT, _FORMAT_BIT, _VALUE_BIT, _LATENT_BIT = 16, 32, 40, 56
_FIELD, _FORMAT_FIELD = 0xFFFF, 0xFF

#: The largest head_dim, value_dim and group: each has 16 bits.
MOST = _FIELD


def _stored_bytes(n_elements: int, kv_type: str, scales: int) -> int:
    """Return the bytes of a stored row; `scales` are the bytes of the scales of a q8_0 row."""
    if kv_type == Q4_0:
        return n_elements // 2 + 2 * -(-n_elements // NIBBLES)
    return 2 * n_elements if kv_type == F16 else n_elements + scales


class _Derived:
    """Sizes and rules that follow from a `Shape`."""

    packed: int  # the int64 that a kernel gets
    row_bytes: int  # of one stored key
    value_bytes: int  # from one stored value to the next
    token_bytes: int  # of one stored key and its value
    longest: int  # elements of a key or of a value, whichever is longer
    value_elements: int  # of the stored row that holds a value
    quantised: bool  # whether rows are integers, with scales
    rotated: bool  # whether rows are rotated before they are rounded (see rotation.py)
    of_nibbles: bool  # whether the elements of a row have 4 bits
    on_amx: bool  # whether prefill multiplies on AMX tiles. Kernels ask for `HAS_AMX and shape.on_amx`: without AMX,
    #               Numba then leaves out what follows
    on_integers: bool  # whether prefill multiplies integers


@dataclass(frozen=True)
class Shape(_Derived):
    """The sizes of the rows that an attention kernel reads, and of the queries that read them.

    Parameters
    ----------
    head_dim : int
        Elements of a key, a multiple of 8.
    group : int
        Query heads that share a KV head.
    kv_type : str
        Storage format of keys and values, F16, Q8_0, Q4_0 or FLAT_Q8_0 (see rows.py).
    value_dim : int
        Elements of a value, a multiple of 8. 0, the default, becomes head_dim.
    latent : bool
        Whether a value is the first part of its key, as in multi-head latent attention. Only the key is stored then.
    """

    head_dim: int
    group: int
    kv_type: str = F16
    value_dim: int = 0
    latent: bool = False

    def __post_init__(self) -> None:
        head_dim, kv_type, latent = self.head_dim, self.kv_type, self.latent
        value_dim = self.value_dim or head_dim
        row_bytes = _stored_bytes(head_dim, kv_type, 8 if latent else 4)
        value_bytes = row_bytes if latent else _stored_bytes(value_dim, kv_type, 4)
        keys = head_dim | self.group << _GROUP_BIT | _FORMATS[kv_type] << _FORMAT_BIT
        on_amx = HAS_AMX and (head_dim | value_dim) % AMX_DEPTH == 0
        vars(self).update(
            value_dim=value_dim,
            packed=keys | value_dim << _VALUE_BIT | latent << _LATENT_BIT,
            row_bytes=row_bytes,
            value_bytes=value_bytes,
            token_bytes=row_bytes if latent else row_bytes + value_bytes,
            longest=max(head_dim, value_dim),
            value_elements=head_dim if latent else value_dim,
            quantised=kv_type != F16,
            rotated=kv_type in (Q8_0, Q4_0),
            of_nibbles=kv_type == Q4_0,
            on_amx=on_amx,
            on_integers=HAS_AVX2 and not on_amx and (head_dim | value_dim) % LANES == 0,
        )

    @property
    def of_halves(self) -> Shape:
        """Return the shape of keys that are always f16, such as centroids."""
        return Shape(self.head_dim, self.group)

    @property
    def of_values(self) -> Shape:
        """Return the shape of rows as long as a value that stand alone, in the storage format."""
        return Shape(self.value_dim, self.group, self.kv_type)

    @property
    def of_bytes(self) -> Shape:
        """Return the shape of values that always have 8 bits and are not rotated, such as mean values."""
        return Shape(self.value_dim, self.group, FLAT_Q8_0)

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

    def value_dim(self) -> Any:
        return self._and(self.builder.lshr(self.packed, _constant(_VALUE_BIT)), _FIELD)

    def latent(self) -> Any:
        return self.builder.icmp_signed("!=", self._and(self.packed, 1 << _LATENT_BIT), _constant(0))

    def longest(self) -> Any:
        head_dim, value_dim = self.head_dim(), self.value_dim()
        return self.builder.select(self.builder.icmp_signed("<", head_dim, value_dim), value_dim, head_dim)

    def value_elements(self) -> Any:
        return self.builder.select(self.latent(), self.head_dim(), self.value_dim())

    def _is(self, kv_type: str) -> Any:
        number = self._and(self.builder.lshr(self.packed, _constant(_FORMAT_BIT)), _FORMAT_FIELD)
        return self.builder.icmp_signed("==", number, _constant(_FORMATS[kv_type]))

    def quantised(self) -> Any:
        return self.builder.not_(self._is(F16))

    def rotated(self) -> Any:
        return self.builder.or_(self._is(Q8_0), self._is(Q4_0))

    def of_nibbles(self) -> Any:
        return self._is(Q4_0)

    def _stored_bytes(self, n_elements: Any, scales: Any) -> Any:
        builder = self.builder
        blocks = builder.lshr(builder.add(n_elements, _constant(NIBBLES - 1)), _constant(5))
        nibbles = builder.add(builder.lshr(n_elements, _constant(1)), builder.shl(blocks, _constant(1)))
        halves, bytes_ = builder.shl(n_elements, _constant(1)), builder.add(n_elements, scales)
        return builder.select(self._is(F16), halves, builder.select(self._is(Q4_0), nibbles, bytes_))

    def row_bytes(self) -> Any:
        return self._stored_bytes(self.head_dim(), self.builder.select(self.latent(), _constant(8), _constant(4)))

    def value_bytes(self) -> Any:
        own = self._stored_bytes(self.value_dim(), _constant(4))
        return self.builder.select(self.latent(), self.row_bytes(), own)

    def token_bytes(self) -> Any:
        both = self.builder.add(self.row_bytes(), self.value_bytes())
        return self.builder.select(self.latent(), self.row_bytes(), both)

    def _divides(self, number: int) -> Any:
        elements = self.builder.or_(self.head_dim(), self.value_dim())
        return self.builder.icmp_signed("==", self._and(elements, number - 1), _constant(0))

    def on_amx(self) -> Any:
        return self._divides(AMX_DEPTH) if HAS_AMX else ir.Constant(ir.IntType(1), 0)

    def on_integers(self) -> Any:
        if not HAS_AVX2:
            return ir.Constant(ir.IntType(1), 0)
        return self.builder.and_(self.builder.not_(self.on_amx()), self._divides(LANES))

    def _of_rows(self, n_elements: Any, number: Any) -> Any:
        """Return the shape of rows of as many elements, whose format has a number."""
        builder = self.builder
        group, format_ = (
            builder.shl(x, _constant(bit)) for x, bit in ((self.group(), _GROUP_BIT), (number, _FORMAT_BIT))
        )
        lengths = builder.or_(n_elements, builder.shl(n_elements, _constant(_VALUE_BIT)))
        return builder.or_(lengths, builder.or_(group, format_))

    def of_halves(self) -> Any:
        return self._of_rows(self.head_dim(), _constant(_FORMATS[F16]))

    def of_values(self) -> Any:
        number = self._and(self.builder.lshr(self.packed, _constant(_FORMAT_BIT)), _FORMAT_FIELD)
        return self._of_rows(self.value_dim(), number)

    def of_bytes(self) -> Any:
        return self._of_rows(self.value_dim(), _constant(_FORMATS[FLAT_Q8_0]))

    def of_pairs(self) -> Any:
        return self._of_rows(self.builder.shl(self.head_dim(), _constant(1)), _constant(_FORMATS[F16]))


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("head_dim", "group", "value_dim", "value_elements", "longest"), types.int64),
    **dict.fromkeys(("row_bytes", "value_bytes", "token_bytes"), types.int64),
    **dict.fromkeys(("latent", "quantised", "rotated", "of_nibbles", "on_amx", "on_integers"), types.boolean),
    **dict.fromkeys(("of_halves", "of_values", "of_bytes", "of_pairs"), SHAPE),
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
        lengths = builder.or_(head_dim, builder.shl(head_dim, _constant(_VALUE_BIT)))
        return builder.or_(lengths, builder.shl(group, _constant(_GROUP_BIT)))

    return SHAPE(types.int64, types.int64), generate


@intrinsic
def shape_at(typing: Any, address: Any) -> Any:
    """Return the shape that a record keeps as its first int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return SHAPE(types.int64), generate


@intrinsic
def unpacked_shape(typing: Any, packed: Any) -> Any:
    """Return the shape that a record keeps as an int64."""
    return SHAPE(types.int64), lambda context, builder, signature, args: args[0]


@dataclass(frozen=True)
class Limits:
    """The largest sizes of a head: kernels' memory has room for no more, and they check no size themselves.

    A method's kernels have limits of their own, by the arrays of their state and scratch; its file states them. They
    are checked when the method is assigned to a layer, and the limits of all kernels when a model's graph is read.

    Parameters
    ----------
    longest : int
        Most elements of a key, and of a value.
    group : int
        Most query heads that share a KV head.
    way_out : str
        Advice for larger heads.
    """

    longest: int = MOST
    group: int = MOST
    way_out: str = "use another attention, such as dense"

    def excess(self, shape: Shape) -> str:
        """Return which size of a shape exceeds the limits; "" if none does."""
        if shape.longest > self.longest:
            return f"its heads have {shape.longest:,} numbers, and {self.longest:,} are the most here"
        if shape.group > self.group:
            return f"{shape.group:,} query heads share a KV head, and {self.group:,} are the most here"
        return ""


#: Limits of query heads that select apart: a set of them is the bits of an int64 (spans.py).
LIMITS_APART = Limits(group=64, way_out="leave out select=head")
