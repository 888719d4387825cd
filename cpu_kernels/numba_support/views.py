"""View memory at an address as an array or a record."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array


@intrinsic
def array_at(typing: Any, address: Any, shape: Any, dtype: Any) -> Any:
    """View the memory at an address as a C-contiguous array.

    Parameters
    ----------
    address : int64
        Address of the first element.
    shape : tuple of int64
        Sizes of the array.
    dtype : NumPy dtype
        Type of the elements, a constant of the calling kernel.

    Returns
    -------
    array
        A view: writing to it writes to the memory.
    """
    array_type = types.Array(dtype.dtype, len(shape), "C")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, element = make_array(array_type)(context, builder), context.get_data_type(array_type.dtype)
        sizes = [
            context.cast(builder, size, own_type, types.int64)
            for size, own_type in zip(cgutils.unpack_tuple(builder, args[1]), shape, strict=True)
        ]
        item = context.get_constant(types.int64, context.get_abi_sizeof(element))
        strides = [item]
        for size in reversed(sizes[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        data = builder.inttoptr(args[0], element.as_pointer())
        populate_array(array, data=data, shape=sizes, strides=strides, itemsize=item, meminfo=None)
        return array._getvalue()

    return array_type(types.int64, shape, dtype), generate


@intrinsic
def record_at(typing: Any, address: Any, dtype: Any) -> Any:
    """View the memory at an address as one record with readable and writable fields.

    Parameters
    ----------
    dtype : NumPy structured dtype
        Type of the record, a constant of the calling kernel.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(dtype.dtype))

    return dtype.dtype(types.int64, dtype), generate
