"""Draft functions for other kernels: turn each into LLVM's language once, and leave all else to what calls it.

Numba's compiler resolves each use of an operator anew, among all that strings, dates and NumPy make of it; counts the
references to arrays; and checks after each call whether it raised an exception. Kernels count no references and raise
nothing. So a draft takes only the steps of Numba's compiler that kernels need, and resolves an operator once for each
combination of types.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import llvmlite.binding
from numba import types
from numba.core import bytecode, cgutils, event, funcdesc, interpreter, sigutils, ssa, typed_passes, typing
from numba.core.analysis import dead_branch_prune, rewrite_semantic_constants
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Flags, _make_subtarget
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext
from numba.core.ir_utils import build_definitions
from numba.core.lowering import Lower
from numba.core.postproc import PostProcessor
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.targetconfig import ConfigStack
from numba.extending import models, register_model


class _Resolved(types.Function):
    """The type of one of Numba's own functions or of an intrinsic: it remembers what it returns for which types."""

    def __init__(self, templates: Any) -> None:
        super().__init__(templates)
        self._calls: dict[Any, Any] = {}

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call."""
        if kws:
            return super().get_call_type(context, args, kws)
        key = tuple(args)
        if key not in self._calls:
            self._calls[key] = super().get_call_type(context, args, kws)
        return self._calls[key]


register_model(_Resolved)(models.OpaqueModel)


class _Types(typing.Context):
    """What Numba knows about types of functions: the tables of its own context, with functions that remember."""

    def __init__(self) -> None:
        self.__dict__.update(vars(cpu_target.typing_context))
        self._resolved: dict[Any, _Resolved] = {}

    def _lookup_global(self, value: Any) -> Any:
        found = super()._lookup_global(value)
        if type(found) is not types.Function:
            return found
        if found not in self._resolved:
            self._resolved[found] = _Resolved(found.templates)
        return self._resolved[found]


class _Target(CPUContext):
    """How Numba writes LLVM's language: the tables of its own context, with shorter calls of drafts."""

    def __init__(self, typing_context: _Types) -> None:
        self.__dict__.update(vars(cpu_target.target_context))
        self.typing_context = typing_context
        self._sizes: dict[str, int] = {}

    def get_abi_sizeof(self, ty: Any) -> int:
        """Return the size of an LLVM type, for which LLVM reads a module that has it."""
        name = str(ty)
        if name not in self._sizes:
            self._sizes[name] = super().get_abi_sizeof(ty)
        return self._sizes[name]

    def insert_user_function(self, func: Any, fndesc: Any, libs: Sequence[Any] = ()) -> None:
        """Let other functions call a draft, which raises no exception."""

        def call(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            callee = context.declare_function(builder.module, fndesc)
            _status, value = context.call_conv.call_function(builder, callee, fndesc.restype, fndesc.argtypes, args)
            return value

        call.libs = tuple(libs)  # type: ignore[attr-defined]
        self._defns[func].append(call, fndesc.argtypes)


@functools.cache
def _target() -> _Target:
    return _Target(_Types())


class _Library(JITCodeLibrary):
    """The code of one draft, neither optimised nor emitted: its callers link it."""

    def add_ir_module(self, ir_module: Any) -> None:
        """Read the code, such that callers may link it several times."""
        module = llvmlite.binding.parse_assembly(cgutils.normalize_ir_text(str(ir_module)))
        module.name, module.data_layout = ir_module.name, self._codegen._data_layout
        for function in module.functions:
            if not function.is_declaration and function.linkage == llvmlite.binding.Linkage.external:
                function.linkage = "linkonce_odr"
        self._final_module = self._shared_module = module

    def finalize(self) -> None:
        """Leave the code as it is, and the functions that it calls to the caller."""
        self._finalized = True


class _Drafted(NamedTuple):
    """What Numba wants to know about a compiled function."""

    entry_point: object  # the key by which callers find it
    signature: Any
    objectmode: bool = False


@contextmanager
def _no_collection() -> Iterator[None]:
    """Let garbage wait: to look for it among all that Numba keeps takes a tenth of the time of drafting."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_strip_phi_nodes = typed_passes.PreLowerStripPhis()._strip_phi_nodes


class Drafts(CPUDispatcher):
    """Draft a function for the types with which kernels call it."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return how to call it; a constant integer is any integer, so that it makes no draft of its own."""
        args = [types.int64 if isinstance(each, types.IntegerLiteral) else each for each in args]
        return super().get_call_template(args, kws)

    def compile(self, signature: Any) -> Any:
        """Return a key by which Numba finds the draft for a signature."""
        with global_compiler_lock:
            arguments, return_type = sigutils.normalize_signature(signature)
            made = self.overloads.get(tuple(arguments))
            if made is None:
                told = event.trigger_event("numba:compile", data={"dispatcher": self, "args": arguments})
                with told, _no_collection():
                    made = self.overloads[tuple(arguments)] = self._draft(arguments, return_type)
        return made.entry_point

    def _draft(self, arguments: Any, return_type: Any) -> _Drafted:
        flags = Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.nrt = False  # no references are counted
        with ConfigStack().enter(flags):
            target = _make_subtarget(_target(), flags)
            identity = bytecode.FunctionIdentity.from_function(self.py_func)
            code = interpreter.Interpreter(identity).interpret(bytecode.ByteCode(identity))
            PostProcessor(code).run()
            rewrite_semantic_constants(code, arguments)
            dead_branch_prune(code, arguments)
            code = ssa.reconstruct_ssa(code)
            code._definitions = build_definitions(code.blocks)
            inferred = typed_passes.type_inference_stage(target.typing_context, target, code, arguments, return_type)
            code = _strip_phi_nodes(code)
            code._definitions = build_definitions(code.blocks)
            described = funcdesc.PythonFunctionDescriptor.from_specialized_function(
                code,
                inferred.typemap,
                inferred.return_type,
                inferred.calltypes,
                mangler=target.mangler,
                inline=False,
                noalias=False,
                abi_tags=[flags.get_mangle_string()],
            )
            library = _Library(target.codegen(), identity.func_qualname)
            with target.push_code_library(library):
                Lower(target, library, described, code).lower()
        library.finalize()
        key, libraries = object(), [library, *library._linking_libraries]  # LLVM links a function after its callers
        target.insert_user_function(key, described, libraries)
        return _Drafted(key, typing.signature(inferred.return_type, *arguments))
