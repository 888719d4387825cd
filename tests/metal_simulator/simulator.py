"""Run Metal shaders on the CPU: their unchanged text, compiled as C++ (see README.md).

    library = Library(source, {"HEAD_DIM": 64})
    library.run("attention", {0: queries, 1: keys, 2: out, 3: struct.pack("I", n)}, threadgroups=4, threads=128)

A run changes arrays in place. Bytes are constants. An error raises MSLError, which names the line.
"""

import ctypes
import functools
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from metal_simulator import compiler, lints
from metal_simulator.job import Address, Buffers, Job, aligned_copy, return_arrays, size_of
from metal_simulator.program import Parameter, Program, parse
from metal_simulator.sanitized import run_sanitized
from metal_simulator.tokens import MSLError, tokenize
from metal_simulator.translate import Translator

__all__ = ["Address", "Library", "MSLError", "check", "missing", "require"]

missing = compiler.missing

MAX_THREADS = 1024
STRUCT_FORMATS = {"bool": "?", "float": "f", "half": "e", "char": "b", "uchar": "B", "short": "h", "ushort": "H"}
STRUCT_FORMATS |= {"int": "i", "uint": "I", "long": "q", "ulong": "Q", "size_t": "Q"}

Size = int | Sequence[int]


def require() -> None:
    """Skip a test or module if the simulator cannot run. If $OCTAVO_REQUIRE_METAL_SIM is set, fail instead."""
    import pytest

    reason = missing()
    if reason and os.environ.get("OCTAVO_REQUIRE_METAL_SIM"):
        pytest.fail(reason, pytrace=False)
    if reason:
        pytest.skip(reason, allow_module_level=True)


def read(source: str, defines: Mapping[str, int | str], name: str, include: Path | None) -> Program:
    return parse(tokenize(compiler.preprocess(source, dict(defines), name, include), name))


def check(
    source: str,
    defines: Mapping[str, int | str] | None = None,
    name: str = "shader.metal",
    include: Path | None = None,
) -> None:
    """Check a source as Metal would: the lints, then clang with address spaces as types.

    Parameters
    ----------
    source : str
        Text of the shader, or several concatenated.
    defines : mapping of str to int or str, optional
        Macros, as for the preprocessor.
    name : str
        Name of the source in messages.
    include : Path, optional
        Folder for the source's own #include lines.

    Raises
    ------
    MSLError
        If Metal would refuse the source.
    """
    program = read(source, defines or {}, name, include)
    lints.check(program)
    compiler.check_syntax(Translator(program, check=True).text())


class Launch(ctypes.Structure):
    """Mirror struct msl_launch of shim/msl/engine.h."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
        ("threadgroup_bytes", ctypes.c_void_p),
        ("groups", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32 * 3),
        ("schedule", ctypes.c_uint32),
        ("timeout_seconds", ctypes.c_uint32),
    )


class Library:
    """Compile a shader source and run its kernels.

    Parameters
    ----------
    source : str
        Text of the shader, or several concatenated.
    defines : mapping of str to int or str, optional
        Macros, as for the preprocessor.
    sanitizer : {None, "address", "thread"}
        None runs in this process, fast. The sanitizers run in another process: "address" also finds accesses outside
        buffers and threadgroup arrays, misaligned vectors and overflowing shifts, "thread" finds races.
    name : str
        Name of the source in messages.
    include : Path, optional
        Folder for the source's own #include lines.
    checked : bool
        Whether to run `check` first.

    Raises
    ------
    MSLError
        If the source does not compile, or if `check` refuses it.
    """

    def __init__(
        self,
        source: str,
        defines: Mapping[str, int | str] | None = None,
        sanitizer: str | None = None,
        *,
        name: str = "shader.metal",
        include: Path | None = None,
        checked: bool = True,
    ) -> None:
        if sanitizer not in compiler.SANITIZE:
            raise ValueError(f"sanitizer is None, 'address' or 'thread', not {sanitizer!r}")
        self.program = read(source, defines or {}, name, include)
        if checked:
            lints.check(self.program)
            compiler.check_syntax(Translator(self.program, check=True).text())
        self.sanitizer = sanitizer
        self.path = compiler.compile_shader(Translator(self.program, check=False).text(), sanitizer)

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels: of functions, and the [[host_name]] of each template instance."""
        return list(self.program.kernels)

    @functools.cached_property
    def in_process(self) -> ctypes.CDLL:
        engine()
        return ctypes.CDLL(str(self.path))

    def run(
        self,
        kernel: str,
        buffers: Buffers,
        threadgroups: Size,
        threads: Size,
        *,
        schedule: int = 0,
        function_constants: Mapping[int | str, object] | None = None,
        threadgroup_memory: Mapping[int, int] | None = None,
        addresses: Sequence[Address | tuple[int, int, int, int]] = (),
        timeout: int = 60,
    ) -> None:
        """Run `threadgroups` groups of `threads` threads each.

        Parameters
        ----------
        kernel : str
            Name of the kernel.
        buffers : mapping of int to array or bytes
            Contents by buffer index. The run changes arrays in place.
        threadgroups, threads : int or sequence of up to three int
            Size of the grid in threadgroups, and of a threadgroup in threads.
        schedule : int
            Order of lanes, simd groups and threadgroups: 0 in order, 1 reversed, n > 1 random with seed n.
        function_constants : mapping of int or str to number, optional
            Values by index or name.
        threadgroup_memory : mapping of int to int, optional
            Bytes for each index n of a [[threadgroup(n)]] parameter.
        addresses : sequence of Address
            Addresses of buffers that lie in buffers.
        timeout : int
            Seconds after which the run stops with an error.

        Raises
        ------
        MSLError
            If an input does not fit the kernel, or if the kernel makes an error that the simulator finds.
        """
        names = list(self.program.kernels)
        if kernel not in names:
            raise MSLError(f"there is no kernel {kernel}, only {', '.join(names) or 'none'}")
        constants = self.constants(function_constants or {})
        memory = self.threadgroup_bytes(kernel, threadgroup_memory or {})
        job = Job(
            names.index(kernel), buffers, three(threadgroups), three(threads), schedule, timeout,
            constants, memory, tuple(Address(*address) for address in addresses),
        )  # fmt: skip
        self.check_job(kernel, job)
        if self.sanitizer is None:
            self.run_here(kernel, job)
        else:
            run_sanitized(self.path, self.sanitizer, job)

    def constants(self, given: Mapping[int | str, object]) -> dict[int, bytes]:
        """Return the bytes of each function constant, by index."""
        declared = self.program.function_constants
        unknown = [key for key in given if key not in declared and key not in {c.index for c in declared.values()}]
        if unknown:
            raise MSLError(f"there is no function constant {unknown[0]}")
        values = {}
        for constant in declared.values():
            value = given.get(constant.name, given.get(constant.index))
            if value is None and not constant.optional:
                raise MSLError(f"function constant {constant.name} ({constant.index}) has no value")
            if value is not None:
                values[constant.index] = struct.pack(STRUCT_FORMATS[constant.type], value)
        return values

    def threadgroup_bytes(self, kernel: str, given: Mapping[int, int]) -> tuple[int, ...]:
        function, _ = self.program.kernels[kernel]
        wanted = {parameter.index_of("threadgroup") for parameter in function.parameters} - {None}
        if wanted != set(given):
            raise MSLError(f"kernel {kernel} has threadgroup parameters {sorted(wanted)}, not {sorted(given)}")
        return tuple(given.get(index, 0) for index in range(32))

    def check_job(self, kernel: str, job: Job) -> None:
        """Check that the kernel has its buffers, that addresses are inside buffers, and that the grid is allowed."""
        function, _ = self.program.kernels[kernel]
        limit = min(MAX_THREADS, function.max_threads or MAX_THREADS)
        count = job.threads[0] * job.threads[1] * job.threads[2]
        if not 0 < count <= limit:
            raise MSLError(f"kernel {kernel} runs 1 to {limit} threads in a threadgroup, not {count}")
        if min(job.groups) < 1:
            raise MSLError(f"{job.groups} threadgroups: there is none")
        for parameter in function.parameters:
            index = parameter.index_of("buffer")
            if index is not None and index not in job.buffers and self.is_bound(parameter, job.constants):
                raise MSLError(f"kernel {kernel} needs buffer({index}), {parameter.name}")
        for index, buffer in job.buffers.items():
            if isinstance(buffer, np.ndarray) and not buffer.flags.c_contiguous:
                raise MSLError(f"buffer({index}) is not contiguous")
        for address in job.addresses:
            for buffer, offset, size in (
                (address.buffer, address.offset, 8),
                (address.target, address.target_offset, 0),
            ):
                if buffer not in job.buffers or not 0 <= offset <= size_of(job.buffers[buffer]) - size:
                    raise MSLError(f"{address}: byte {offset} is not in buffer {buffer}")

    def is_bound(self, parameter: Parameter, constants: Mapping[int, bytes]) -> bool:
        """Tell whether a parameter exists: its function constant, if any, is true."""
        condition = parameter.attributes.get("function_constant")
        if not condition:
            return True
        constant = self.program.function_constants[condition[0].text]
        return any(constants.get(constant.index, b"\0"))

    def run_here(self, kernel: str, job: Job) -> None:
        loaded = self.in_process
        least = getattr(loaded, f"msl_least_bytes_{job.kernel}")
        least.restype = ctypes.c_size_t
        for index, buffer in job.buffers.items():
            if size_of(buffer) < least(index):
                message = f"buffer({index}) of kernel {kernel} has {size_of(buffer)} bytes, not {least(index)}"
                raise MSLError(message)
        for constant in self.program.function_constants.values():
            loaded.msl_set_function_constant(constant.index, job.constants.get(constant.index))
        memory = {index: aligned_copy(buffer) for index, buffer in job.buffers.items()}
        start = {index: array.ctypes.data for index, array in memory.items()}
        for address in job.addresses:
            target = struct.pack("Q", start[address.target] + address.target_offset)
            memory[address.buffer][address.offset : address.offset + 8] = np.frombuffer(target, np.uint8)
        bound = (ctypes.c_void_p * max([64, *(index + 1 for index in start)]))()
        for index, value in start.items():
            bound[index] = value
        sizes = (ctypes.c_uint64 * 32)(*job.threadgroup_memory)
        launch = Launch(
            ctypes.cast(getattr(loaded, f"msl_kernel_{job.kernel}"), ctypes.c_void_p),
            ctypes.addressof(bound),
            ctypes.addressof(sizes),
            (ctypes.c_uint32 * 3)(*job.groups),
            (ctypes.c_uint32 * 3)(*job.threads),
            job.schedule,
            job.timeout,
        )
        failed = engine().msl_run(ctypes.byref(launch))
        return_arrays(job, memory)
        if failed:
            raise MSLError(engine().msl_error().decode())


@functools.cache
def engine() -> ctypes.CDLL:
    """Load the engine, whose functions the shaders' shared objects find by name."""
    loaded = ctypes.CDLL(str(compiler.engine()), mode=ctypes.RTLD_GLOBAL)
    loaded.msl_error.restype = ctypes.c_char_p
    return loaded


def three(size: Size) -> tuple[int, int, int]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z
