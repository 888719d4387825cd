"""Compile kernels: functions of the hot path, without Python objects and without the GIL.

Numba compiles a function that others call as often as it meets it: for Python, for C, and once more, optimised again,
in each of its callers. Here each function is drafted once, in LLVM's language, and the draft is optimised only as a
part of what is called from outside: a kernel that Python calls, a hook, a function for C, a stage. Only these are kept
on disk. A large function that many kernels call is a `stage`: it is compiled once, and called by its address.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
from numba import types
from numba.core import event, sigutils, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.registry import CPUDispatcher
from numba.extending import models, register_model, typeof_impl

from .kernel_cache import folder_of, is_usable, keep_kernels, kernel_folder
from .shape import SHAPE, Shape

#: Sums may be reordered, and multiplications fused into additions. Never "nnan" or "ninf": a NaN in the cache must
#: reach the output, and -inf masks scores.
FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": FAST_MATH}


@cache
def compiled_before() -> bool:
    """Return whether kernels of this code were on disk when this process started."""
    return folder_of(Path(__file__).parents[1] / "rows" / "rows.py").exists()


@cache
def keeps_kernels() -> bool:
    """Return whether kernels are kept on disk. Otherwise each process compiles its own."""
    compiled_before()
    return is_usable(kernel_folder())


def _is_kept(function: Callable[..., Any]) -> bool:
    """Return whether a function's compiled code is kept on disk; if so, tell Numba where."""
    if keeps_kernels():
        keep_kernels(Path(function.__code__.co_filename), bind_stages)
    return keeps_kernels()


class _Draft(JITCodeLibrary):
    """The code of one function, neither optimised nor emitted: its callers link it."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        """Leave the code as it is, and the functions that it calls to the caller."""
        self._raise_if_finalized()
        self._finalized = True


class _Drafting(CompilerBase):
    """The passes of Numba's compiler that kernels need: they have no closures, `with` blocks, or array expressions."""

    def define_pipelines(self) -> list[PassManager]:
        """Return the passes."""
        passes = PassManager("draft")
        for each in (
            untyped_passes.TranslateByteCode,
            untyped_passes.FixupArgs,
            untyped_passes.IRProcessing,
            untyped_passes.RewriteSemanticConstants,
            untyped_passes.DeadBranchPrune,
            untyped_passes.ReconstructSSA,
            typed_passes.NopythonTypeInference,
            typed_passes.PreLowerStripPhis,
            typed_passes.IRLegalization,
            typed_passes.NativeLowering,
            typed_passes.NoPythonBackend,
        ):
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]


class _Drafts(CPUDispatcher):
    """Draft a function for the types with which kernels call it."""

    def compile(self, signature: Any) -> Any:
        """Return a key by which Numba finds the draft for a signature."""
        with global_compiler_lock:
            arguments, return_type = sigutils.normalize_signature(signature)
            made = self.overloads.get(tuple(arguments))
            if made is None:
                with event.trigger_event("numba:compile", data={"dispatcher": self, "args": arguments}):
                    made = self._draft(arguments, return_type)
                self.overloads[tuple(arguments)] = made
        return made.entry_point

    def _draft(self, arguments: Any, return_type: Any) -> Any:
        flags, target = Flags(), self.targetdescr.target_context
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        library = _Draft(target.codegen(), self.py_func.__qualname__)
        made = compile_extra(
            self.targetdescr.typing_context, target, self.py_func, arguments, return_type, flags, {}, library, _Drafting
        )
        made.library._ensure_finalized()
        key, libraries = object(), [library, *library._linking_libraries]  # LLVM links a function after its callers
        target.insert_user_function(key, made.fndesc, libraries)
        return made._replace(entry_point=key)


class Kernel:
    """A function that kernels call, and Python too: Numba compiles it for Python when that happens first."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function

    @cached_property
    def drafts(self) -> _Drafts:
        """Return what compiles it for other kernels."""
        return _Drafts(self.py_func, targetoptions={"nopython": True, **_OPTIONS}, pipeline_class=_Drafting)

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


#: How compiled code names a stage. Names may follow each other without a gap.
_SYMBOL = "octavo.stage${}.{}$"
_A_SYMBOL = re.compile(rb"octavo\.stage\$[\w.]+\$")

_stages: dict[str, Stage] = {}

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
        native = native_callback(self.sig)(self.py_func)
        llvmlite.binding.add_symbol(self.symbol, native.address)
        return native

    def bind(self) -> None:
        """Compile the function, unless it is compiled: before the code of a caller is linked."""
        assert self._native.address

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Return the type of a call in a kernel."""
        self.bind()
        return super().get_call_type(context, args, kws)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function from Python."""
        prototype = ctypes.CFUNCTYPE(_C_TYPES[self.sig.return_type], *[_C_TYPES[each] for each in self.sig.args])
        values = [each.packed if isinstance(each, Shape) else each for each in arguments]
        return prototype(self._native.address)(*values)


register_model(Stage)(models.OpaqueModel)


def stage(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a function a stage, with a signature of the types in `_C_TYPES`."""
    return lambda function: Stage(function, signature)


@typeof_impl.register(Stage)
def _type_of_stage(function: Stage, _context: Any) -> Any:
    return function


def bind_stages(code: bytes) -> None:
    """Bind the stages whose names some compiled code has."""
    for name in set(_A_SYMBOL.findall(code)):
        _stages[name.decode()].bind()
