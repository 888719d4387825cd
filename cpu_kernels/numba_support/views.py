"""View memory at an address as an array or a record."""

from __future__ import annotations

from numba import carray

from .compile import kernel
from .memory import pointer


@kernel
def array_at(address, shape, dtype):
    """View the memory at an address as a C-contiguous array.

    Parameters
    ----------
    address : int64
        Address of the first element.
    dtype : NumPy dtype
        Type of the elements, a constant of the calling kernel.

    Returns
    -------
    array
        A view: writing to it writes to the memory.
    """
    return carray(pointer(address), shape, dtype)


@kernel
def record_at(address, dtype):
    """View the memory at an address as one record with readable and writable fields.

    Parameters
    ----------
    dtype : NumPy structured dtype
        Type of the record, a constant of the calling kernel.
    """
    return array_at(address, (1,), dtype)[0]
