"""Compile kernels: functions of the hot path, without Python objects and without the GIL.

Numba compiles a function that others call as often as it meets it: for Python, for C, and once more, optimised again,
in each of its callers. Here each function is drafted once, in LLVM's language, and the draft is optimised only as a
part of what is called from outside: a kernel that Python calls, a hook, a function for C, a stage. Only these are kept
on disk. A large function that many kernels call is a `stage`: it is compiled once, and called by its address.

With OCTAVO_PLAIN_NUMBA=1 in the environment, kernels are ordinary functions of `numba.njit`: neither drafts.py nor
numba_cache.py, which build on Numba's private parts, is imported. Tests then tell whether a fault is theirs. Stages
stay, called by address. So no code is kept on disk, since Numba's own cache would load it without the addresses.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba import int64, types
from numba.core.typing.templates import make_concrete_template
from numba.extending import lower_builtin, models, register_model, typeof_impl

from .kernel_cache import folder_of, is_usable, kernel_folder
from .shape import SHAPE, Shape, shape_at

#: Sums may be reordered, and multiplications fused into additions. Never "nnan" or "ninf": a NaN in the cache must
#: reach the output, and -inf masks scores.
FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}

_IS_PLAIN = os.environ.get("OCTAVO_PLAIN_NUMBA") == "1"

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": FAST_MATH}


@cache
def compiled_before() -> bool:
    """Return whether kernels of this code were on disk when this process started."""
    return folder_of(Path(__file__).parents[1] / "rows" / "rows.py").exists()


@cache
def keeps_kernels() -> bool:
    """Return whether kernels are kept on disk. Otherwise each process compiles its own."""
    compiled_before()
    return not _IS_PLAIN and is_usable(kernel_folder())


def _is_kept(function: Callable[..., Any]) -> bool:
    """Return whether a function's compiled code is kept on disk; if so, tell Numba where."""
    if keeps_kernels():
        from .numba_cache import keep_kernels

        keep_kernels(Path(function.__code__.co_filename), bind_stages)
    return keeps_kernels()


class Kernel:
    """A function that kernels call, and Python too: Numba compiles it for Python when that happens first."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function

    @cached_property
    def drafts(self) -> Any:
        """Return what compiles it for other kernels."""
        if _IS_PLAIN:
            return self.for_python
        from .drafts import Drafts

        return Drafts(self.py_func, targetoptions={"nopython": True, **_OPTIONS})

    @cached_property
    def for_python(self) -> Any:
        """Return what compiles it for Python."""
        return numba.njit(cache=_is_kept(self.py_func), **_OPTIONS)(self.py_func)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function from Python."""
        return self.for_python(*arguments)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function of the hot path, for each combination of argument types."""
    return Kernel(function)


class _SmallKernel(Kernel):
    """A function that Python runs as it is."""

    def __call__(self, *arguments: Any) -> Any:
        return self.py_func(*arguments)


def layout(function: Callable[..., Any]) -> Any:
    """Let kernels call a small function, of sizes and addresses, that Python runs as it is."""
    return _SmallKernel(function)


@typeof_impl.register(Kernel)
def _type_of_kernel(function: Kernel, _context: Any) -> Any:
    return types.Dispatcher(function.drafts)


def native_callback(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function for C; the result's `address` is the function pointer."""

    def decorate(function: Callable[..., Any]) -> Any:
        options = {"cache": _is_kept(function), "error_model": "numpy", "fastmath": FAST_MATH}
        return numba.cfunc(signature, nopython=True, **options)(function)

    return decorate


def native_call(signature: Any, function: Kernel, arguments: str | None = None, **found: Any) -> Any:
    """Compile a call of a kernel for C, so that the kernel itself is only drafted.

    Numba finds a compiled function in its cache on disk by its file, its name, and its closure. A closure over a kernel
    would never be found again, because it holds a compiled function. So the call is written here as source text, in the
    name of the function's file, and finds the function among the globals of that file.

    Parameters
    ----------
    signature : Numba signature
        Of the call. Its parameters are named a, b, c and so on.
    function : Kernel
        A module-level function.
    arguments : str, optional
        Arguments of the call, as source text. The default is the parameters.
    **found
        What this text names besides the parameters.

    Returns
    -------
    numba.core.ccallback.CFunc
        Its `address` is the function pointer.
    """
    name, parameters = function.py_func.__name__, ", ".join(ascii_lowercase[: len(signature.args)])
    source = f"def native_{name}({parameters}):\n    return {name}({arguments or parameters})\n"
    made: dict[str, Any] = {**function.py_func.__globals__, name: function, **found}
    exec(compile(source, function.py_func.__code__.co_filename, "exec"), made)
    return native_callback(signature)(made[f"native_{name}"])


@cache
def native(hook: Kernel) -> Any:
    """Compile a hook as a native function of four int64: the address of a HEAD record, and the hook's other arguments.

    Parameters
    ----------
    hook : Kernel
        A module-level kernel (see layout/hooks.py). A HEAD record begins with the shape that is its first argument.

    Returns
    -------
    numba.core.ccallback.CFunc
        Its `address` goes into a HEAD record; its `ctypes` can be called from Python.
    """
    arguments = ", ".join("abcd"[: hook.py_func.__code__.co_argcount - 1])
    return native_call(int64(*[int64] * 4), hook, f"shape_at(a), {arguments}", shape_at=shape_at)


#: How compiled code names a stage. Names may follow each other without a gap.
_SYMBOL = "octavo.stage${}.{}$"
_A_SYMBOL = re.compile(rb"octavo\.stage\$[\w.]+\$")

_stages: dict[str, Stage | LateStage] = {}

#: Seconds after which a callback has surely returned.
_AFTER_CALLBACK = 0.1

_C_TYPES: dict[Any, Any] = {
    types.int64: ctypes.c_int64,
    SHAPE: ctypes.c_int64,
    types.float32: ctypes.c_float,
    types.boolean: ctypes.c_bool,
    types.void: None,
}


class Stage(types.ExternalFunction):
    """A large function that many kernels call: compiled once, and called by its address."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.py_func = function
        super().__init__(_SYMBOL.format(function.__module__, function.__name__), signature)
        _stages[self.symbol] = self

    @cached_property
    def _native(self) -> Any:
        """Return the compiled function, whose address LLVM knows from now on."""
        native = native_call(self.sig, Kernel(self.py_func))
        llvmlite.binding.add_symbol(self.symbol, native.address)
        return native

    def bind(self) -> None:
        """Compile the function, unless it is compiled: before the code of a caller is linked."""
        _ = self._native

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Return the type of a call in a kernel."""
        self.bind()
        return super().get_call_type(context, args, kws)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function from Python."""
        return _prototype(self.sig)(self._native.address)(*_c_values(arguments))


def _prototype(signature: Any) -> Any:
    """Return the ctypes type of a function."""
    return ctypes.CFUNCTYPE(_C_TYPES[signature.return_type], *[_C_TYPES[each] for each in signature.args])


def _c_values(arguments: tuple[Any, ...]) -> list[Any]:
    return [each.packed if isinstance(each, Shape) else each for each in arguments]


register_model(Stage)(models.OpaqueModel)


def stage(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a function a stage, with a signature of the types in `_C_TYPES`."""
    return lambda function: Stage(function, signature)


@typeof_impl.register(Stage)
def _type_of_stage(function: Stage, _context: Any) -> Any:
    return function


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """In the main thread, let a Ctrl-C wait until a callback has returned: ctypes would drop it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed:
            main = threading.main_thread().ident
            threading.Timer(_AFTER_CALLBACK, signal.pthread_kill, [main, signal.SIGINT]).start()


class LateStage:
    """A stage that many a run never calls: it is compiled when it is called for the first time.

    Compiled code finds its address in a cell. At first that is the address of a Python function, which compiles the
    stage, puts the new address in its place, and calls it.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self.signature = function, types.void(*arguments)
        self.symbol = _SYMBOL.format(function.__module__, function.__name__)
        _stages[self.symbol] = self

    @cached_property
    def _cell(self) -> ctypes.c_void_p:
        """Return the cell, whose address LLVM knows from now on."""
        self._compiler = _prototype(self.signature)(self._compile_and_call)
        cell = ctypes.cast(self._compiler, ctypes.c_void_p)
        llvmlite.binding.add_symbol(self.symbol, ctypes.addressof(cell))
        return cell

    def bind(self) -> None:
        """Make the cell known: before the code of a caller is linked."""
        _ = self._cell

    def _compile_and_call(self, *arguments: Any) -> None:
        """Compile the stage and call it: a callback, which kernels cannot do without and which cannot raise."""
        try:
            with _interrupted_later():
                self(*arguments)
        except BaseException:
            traceback.print_exc()
            os.abort()

    @cached_property
    def native(self) -> Any:
        """Return the compiled function, and let callers find it from now on."""
        native = native_call(self.signature, Kernel(self.py_func))
        self._cell.value = native.address
        return native

    @cached_property
    def type(self) -> Any:
        """Return the Numba type of the stage, and tell Numba how to call it."""
        self.bind()
        lower_builtin(self, *self.signature.args)(self._write_call)
        return types.Function(make_concrete_template(self.symbol, self, [self.signature]))

    def _write_call(self, context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [each.type for each in arguments]).as_pointer()
        cell = builder.module.globals.get(self.symbol) or ir.GlobalVariable(builder.module, function, self.symbol)
        builder.call(builder.load(cell), arguments)
        return context.get_dummy_value()

    def __call__(self, *arguments: Any) -> None:
        """Call the function from Python."""
        _prototype(self.signature)(self.native.address)(*_c_values(arguments))


def late_stage(*arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a function of arguments of these types, which returns nothing, a late stage."""
    return lambda function: LateStage(function, arguments)


@typeof_impl.register(LateStage)
def _type_of_late_stage(function: LateStage, _context: Any) -> Any:
    return function.type


def bind_stages(code: bytes) -> None:
    """Bind the stages whose names some compiled code has."""
    for name in set(_A_SYMBOL.findall(code)):
        _stages[name.decode()].bind()
