"""Executors of the fake GPU (see fake_metal.py): one that computes nothing, and one that runs the simulator."""

import ctypes
import re

from helpers.fake_metal import CompileError, Violation


class Recorder:
    """An executor that computes nothing. `text` is the last source; `broken` is the compiler's error, if any."""

    simd_width = 32

    def __init__(self, broken=None):
        self.text, self.broken = None, broken
        self.on_run = lambda name, addresses, groups, threads: None

    def compile(self, source):
        if self.broken:
            raise CompileError(self.broken)
        self.text = source
        return self

    @property
    def kernels(self):
        return {name: set() for name in re.findall(r"kernel void (\w+)", self.text)}

    def run(self, name, addresses, groups, threads):
        self.on_run(name, addresses, groups, threads)


class Simulator:
    """An executor that runs the shaders in the simulator (tests/metal_simulator), on the memory itself."""

    def compile(self, source):
        from metal_simulator import simulator

        try:
            return SimulatedProgram(simulator.Library(source, checked=False))
        except simulator.MSLError as problem:
            raise CompileError(str(problem)) from problem


class SimulatedProgram:
    simd_width = 32

    def __init__(self, library):
        self._library = library
        self.kernels = {}
        for name, (function, _) in library.program.kernels.items():
            self.kernels[name] = {parameter.index_of("buffer") for parameter in function.parameters} - {None}

    def run(self, name, addresses, groups, threads):
        from metal_simulator import simulator

        loaded, number = self._library.in_process, list(self.kernels).index(name)
        bound = (ctypes.c_void_p * 64)(*(addresses.get(index) for index in range(64)))
        sizes = (ctypes.c_uint64 * 32)()
        launch = simulator.Launch(
            ctypes.cast(getattr(loaded, f"msl_kernel_{number}"), ctypes.c_void_p),
            ctypes.addressof(bound),
            ctypes.addressof(sizes),
            (ctypes.c_uint32 * 3)(*groups),
            (ctypes.c_uint32 * 3)(*threads),
            0,
            60,
        )
        if simulator.engine().msl_run(ctypes.byref(launch)):
            raise Violation(f"{name}: {simulator.engine().msl_error().decode()}")
