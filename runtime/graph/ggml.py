"""Read and write ggml's tensors by the layout of `struct ggml_tensor`, which a tiny known graph verifies.

The layout differs between versions of llama.cpp. Python reads a tensor through `Tensor`, kernels through `TENSOR`.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import llama_cpp
import numpy as np

# llama.cpp's own handle: `llama_cpp._ggml` loads the package's ggml, also where LLAMA_CPP_LIB_PATH names another.
from llama_cpp.llama_cpp import _lib as libggml

from ...errors import OctavoError

MAX_DIMS, MAX_SRC = 4, 10
TYPE_F32, TYPE_F16, TYPE_Q4_0, TYPE_Q8_0, TYPE_I32 = 0, 1, 2, 8, 26


class Tensor(ctypes.Structure):
    """struct ggml_tensor of ggml.h."""


Tensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * MAX_DIMS),
    ("nb", ctypes.c_size_t * MAX_DIMS),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(Tensor) * MAX_SRC),
    ("view_src", ctypes.POINTER(Tensor)),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
    ("extra", ctypes.c_void_p),
    ("padding", ctypes.c_char * 8),
]

#: Byte offsets in struct ggml_custom_op_params, at the start of a CUSTOM node's op_params.
CUSTOM_FUNCTION = Tensor.op_params.offset
CUSTOM_N_TASKS = CUSTOM_FUNCTION + 8
CUSTOM_USER_DATA = CUSTOM_FUNCTION + 16

#: Byte offset of eight bytes that ggml leaves unused. octavo notes there where weights are stored that llama.cpp has
#: laid out: an address, or -1 if that is not known.
STORED = Tensor.padding.offset

#: n_tasks of a CUSTOM node that runs on all threads: GGML_N_TASKS_MAX.
ALL_THREADS = -1

#: The fields of a tensor that kernels use; pointers are addresses.
TENSOR = np.dtype(
    {
        "names": [
            "type",
            "ne",
            "nb",
            "op",
            "custom_function",
            "custom_n_tasks",
            "custom_user_data",
            "src",
            "data",
            "extra",
            "stored",
        ],
        "formats": [
            "i4",
            ("i8", MAX_DIMS),
            ("i8", MAX_DIMS),
            "i4",
            "i8",
            "i4",
            "i8",
            ("i8", MAX_SRC),
            "i8",
            "i8",
            "i8",
        ],
        "offsets": [
            Tensor.type.offset,
            Tensor.ne.offset,
            Tensor.nb.offset,
            Tensor.op.offset,
            CUSTOM_FUNCTION,
            CUSTOM_N_TASKS,
            CUSTOM_USER_DATA,
            Tensor.src.offset,
            Tensor.data.offset,
            Tensor.extra.offset,
            STORED,
        ],
        "itemsize": ctypes.sizeof(Tensor),
    }
)


class Operations(NamedTuple):
    """The numbers of operations in this build of ggml."""

    flash_attention: int
    product: int
    expert_product: int
    custom: int


class _InitParams(ctypes.Structure):
    """struct ggml_init_params of ggml.h."""

    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def _function(name: str, result: Any, *arguments: Any) -> Any:
    """Declare a function of ggml. Raise OctavoError if this version has none of that name."""
    function = getattr(libggml, name, None)
    if function is None:
        raise OctavoError(_mismatch(f"lacks {name}"))
    function.restype, function.argtypes = result, arguments
    return function


def operation_name(node: Any) -> str:
    """Return the name of a node's operation in this build of ggml, such as "ROPE"."""
    name: bytes = _function("ggml_op_name", ctypes.c_char_p, ctypes.c_int)(node.op)
    return name.decode()


@cache
def check_layout() -> Operations:
    """Build a tiny graph, and check that it reads as expected through `Tensor`.

    Raises
    ------
    OctavoError
        A field has another place than octavo expects: llama-cpp-python has another version.
    """
    tensor, pointer = ctypes.POINTER(Tensor), ctypes.c_void_p
    init = _function("ggml_init", pointer, _InitParams)
    free = _function("ggml_free", None, pointer)
    new = _function("ggml_new_tensor_4d", tensor, pointer, ctypes.c_int, *[ctypes.c_int64] * 4)
    attention = _function("ggml_flash_attn_ext", tensor, pointer, *[tensor] * 4, *[ctypes.c_float] * 3)
    sizes = [ctypes.c_int64] * 4
    call = [ctypes.POINTER(tensor), ctypes.c_int, pointer, ctypes.c_int, pointer]
    custom = _function("ggml_custom_4d", tensor, pointer, ctypes.c_int, *sizes, *call)
    set_name = _function("ggml_set_name", tensor, tensor, ctypes.c_char_p)
    multiply = _function("ggml_mul_mat", tensor, pointer, tensor, tensor)
    multiply_by_experts = _function("ggml_mul_mat_id", tensor, pointer, *[tensor] * 3)
    view, get_data = _function("ggml_view_tensor", tensor, pointer, tensor), _function("ggml_get_data", pointer, tensor)

    context = init(_InitParams(1 << 16, None, False))
    try:
        q = new(context, TYPE_F32, 64, 3, 4, 1)
        k, v = (new(context, TYPE_F16, 64, 5, 2, 1) for _ in range(2))
        mask = new(context, TYPE_F16, 5, 3, 1, 1)
        node = attention(context, q, k, v, mask, 0.125, 0.25, 0.5).contents
        set_name(node, b"octavo")
        ours = custom(context, TYPE_F32, 1, 1, 1, 1, (tensor * 1)(q), 1, 0x1234, ALL_THREADS, 0x5678).contents
        product = multiply(context, k, k).contents
        chosen = new(context, TYPE_I32, 6, 4, 1, 1)
        expert_product = multiply_by_experts(context, k, q, chosen).contents
        user_data = ctypes.addressof(ours) + CUSTOM_USER_DATA
        as_expected = (
            (list(q.contents.ne), list(q.contents.nb)) == ([64, 3, 4, 1], [4, 256, 768, 3072])
            and (q.contents.type, k.contents.type) == (TYPE_F32, TYPE_F16)
            and list(node.ne) == [64, 4, 3, 1]
            and [ctypes.addressof(node.src[i].contents) for i in range(4)]
            == [ctypes.addressof(each.contents) for each in (q, k, v, mask)]
            and not node.src[4]
            and list((ctypes.c_float * 3).from_buffer(node.op_params)) == [0.125, 0.25, 0.5]
            and node.name == b"octavo"
            and operation_name(node) == "FLASH_ATTN_EXT"
            and operation_name(ours) == "CUSTOM"
            and operation_name(product) == "MUL_MAT"
            and operation_name(expert_product) == "MUL_MAT_ID"
            and list(expert_product.ne) == [5, 6, 4, 1]
            and ctypes.addressof(expert_product.src[2].contents) == ctypes.addressof(chosen.contents)
            and not product.src[2]
            and not product.extra
            and ctypes.c_int64.from_address(ctypes.addressof(ours) + CUSTOM_FUNCTION).value == 0x1234
            and ctypes.c_int32.from_address(ctypes.addressof(ours) + CUSTOM_N_TASKS).value == ALL_THREADS
            and ctypes.c_int64.from_address(user_data).value == 0x5678
            and q.contents.data == get_data(q) == ctypes.addressof(q.contents) + ctypes.sizeof(Tensor)
            and ctypes.addressof(view(context, q).contents.view_src.contents) == ctypes.addressof(q.contents)
        )
        if not as_expected:
            raise OctavoError(_mismatch("lays out its tensors differently"))
        return Operations(node.op, product.op, expert_product.op, ours.op)
    except ValueError as problem:  # a pointer that octavo follows is NULL
        raise OctavoError(_mismatch("lays out its tensors differently")) from problem
    finally:
        free(context)


def strided(tensor: Tensor, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Read elements of a tensor, from its first one on, in the memory of any device.

    Parameters
    ----------
    strides : tuple of int
        Bytes between neighbouring elements along each axis.

    Returns
    -------
    array
        A view if the CPU can read the tensor's memory, else a copy.
    """
    last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    n_bytes = last + np.dtype(dtype).itemsize
    if _is_host(tensor):
        stored = np.ctypeslib.as_array((ctypes.c_uint8 * n_bytes).from_address(tensor.data))
    else:
        stored = np.empty(n_bytes, np.uint8)
        _accessors().get(ctypes.byref(tensor), stored.ctypes.data, 0, n_bytes)
    return np.ndarray(shape, dtype, stored, 0, strides)


def write(tensor: Tensor, values: np.ndarray) -> None:
    """Overwrite the beginning of a tensor in the memory of any device."""
    if _is_host(tensor):
        ctypes.memmove(tensor.data, values.ctypes.data, values.nbytes)
    else:
        _accessors().set(ctypes.byref(tensor), values.ctypes.data, 0, values.nbytes)


def _is_host(tensor: Tensor) -> bool:
    """Return whether the CPU can use a tensor's address."""
    buffer = tensor.view_src.contents.buffer if tensor.view_src else tensor.buffer
    return bool(_accessors().is_host(buffer))


class _Accessors(NamedTuple):
    """ggml's functions to read and write a tensor on any device, and to ask whether the CPU can access it."""

    get: Any
    set: Any
    is_host: Any


@cache
def _accessors() -> _Accessors:
    """Declare the functions once."""
    access = (None, ctypes.POINTER(Tensor), ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    get, put = (_function(f"ggml_backend_tensor_{name}", *access) for name in ("get", "set"))
    return _Accessors(get, put, _function("ggml_backend_buffer_is_host", ctypes.c_bool, ctypes.c_void_p))


def row_size(tensor_type: int, n_elements: int) -> int:
    """Return the bytes of a row of elements, of ggml's type number; some types store elements in blocks."""
    size: int = _function("ggml_row_size", ctypes.c_size_t, ctypes.c_int, ctypes.c_int64)(tensor_type, n_elements)
    return size


def _mismatch(how: str) -> str:
    """Return the message about another version of llama.cpp, with the version that was met."""
    met = f"llama-cpp-python {llama_cpp.__version__}"
    if version := getattr(libggml, "ggml_version", None):
        version.restype = ctypes.c_char_p
        met += f" with ggml {version().decode()}"
    known = "this octavo was written for version 0.3.36, with ggml 0.25.3"
    return f"{met} {how}: {known}. Install that one, or a newer octavo."
