"""Stand in for the `Metal` module of pyobjc-framework-Metal (12.2), for tests on Linux.

It has the selectors that octavo uses, under their Python names: methods with an NSError out parameter take None for it
and return (object, error). Whatever Apple's Metal would refuse, or would accept and then fail on, raises Violation:
memory that is not whole pages, buffers that are not exactly as long as said, objects outside an autorelease pool,
use of encoders and command buffers out of order, missing arguments, too many threads, memory that was unmapped, and
addresses in records that are of no resident buffer.

A GPU has addresses of its own for shared memory: here a second mapping of the same pages. Kernels run when a command
buffer is committed, in the order in which they were encoded, by an executor (see metal_executors.py).
"""

import ctypes
import mmap
import os
import time
from collections import namedtuple
from contextlib import contextmanager

import numpy as np

from octavo.cpu_kernels.layout.head import HEAD
from octavo.metal.gpu import Frameworks
from octavo.metal.records import GPU_STEP
from octavo.metal.shader_library import method_names
from octavo.runtime.methods import method_class

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mremap.restype = ctypes.c_void_p
_LIBC.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_MAY_MOVE, _FAILED = 1, ctypes.c_void_p(-1).value


class Violation(AssertionError):
    """What Apple's Metal would refuse, or worse."""


def demand(condition, message):
    if not condition:
        raise Violation(message)


class NSError:
    def __init__(self, message):
        self._message = message

    def localizedDescription(self):
        return self._message


class FakeMetal:
    """The module, with one GPU, which tests can have fail.

    Parameters
    ----------
    executor : Recorder or Simulator
        Runs kernels (see metal_executors.py).

    Attributes
    ----------
    max_threads : dict
        Most threads of a threadgroup, by kernel; 1024 by default.
    fail : str or None
        Message of the error with which the next command buffer ends.
    runs : list
        (kernel, threadgroups, threads) of all dispatches that ran: a list for each command buffer.
    """

    MTLGPUFamilyApple7, MTLGPUFamilyMetal3 = 1007, 5001
    MTLResourceStorageModeShared = 0
    MTLResourceUsageRead, MTLResourceUsageWrite = 1, 2
    MTLLanguageVersion3_0 = 196608
    MTLMathModeSafe = 0
    MTLCommandBufferStatusNotEnqueued, MTLCommandBufferStatusCompleted, MTLCommandBufferStatusError = 0, 4, 5
    MTLSize = namedtuple("MTLSize", ["width", "height", "depth"])

    def __init__(self, executor):
        self.executor = executor
        self.pools = 0
        self.max_threads = {}
        self.fail = None
        self.runs = []
        self.waits = 0
        self.families = {self.MTLGPUFamilyApple7, self.MTLGPUFamilyMetal3}
        self.max_buffer_length = self.working_set = 1 << 34
        self.problems = []  # of objects that were freed too early
        self.has_device = True
        self.MTLCompileOptions = type("MTLCompileOptions", (CompileOptions,), {})

    def MTLCreateSystemDefaultDevice(self):
        self.in_pool("the device")
        return Device(self) if self.has_device else None

    @contextmanager
    def autorelease_pool(self):
        self.pools += 1
        try:
            yield
        finally:
            self.pools -= 1

    @property
    def frameworks(self):
        return Frameworks(self, self.autorelease_pool)

    def in_pool(self, what):
        demand(self.pools > 0, f"{what} is made outside an autorelease pool: it would never be freed")


class CompileOptions:
    """MTLCompileOptions, whose `settings` hold what was set."""

    @classmethod
    def alloc(cls):
        return cls()

    def init(self):
        self.settings = {}
        return self

    def setLanguageVersion_(self, version):
        self.settings["version"] = version

    def setMathMode_(self, mode):
        self.settings["math"] = mode

    def setFastMathEnabled_(self, enabled):
        self.settings["fast"] = enabled


class Device:
    def __init__(self, metal):
        self._metal = metal

    def name(self):
        return "Fake M1"

    def supportsFamily_(self, family):
        return family in self._metal.families

    def maxBufferLength(self):
        return self._metal.max_buffer_length

    def maxThreadgroupMemoryLength(self):
        return 32768

    def recommendedMaxWorkingSetSize(self):
        return self._metal.working_set

    def newCommandQueue(self):
        return Queue(self._metal)

    def newBufferWithBytesNoCopy_length_options_deallocator_(self, memory, length, options, deallocator):
        view = memoryview(memory)
        demand(view.nbytes == length, f"a buffer of {view.nbytes} bytes is said to have {length}")
        demand(options == FakeMetal.MTLResourceStorageModeShared, "memory is not shared")
        demand(deallocator is None, "nothing else may free this memory")
        start = np.frombuffer(view, np.uint8).ctypes.data
        demand(start % mmap.PAGESIZE == 0 and length % mmap.PAGESIZE == 0 and length > 0, "memory is not whole pages")
        return Buffer(start, length)

    def newLibraryWithSource_options_error_(self, source, options, error):
        demand(error is None, "pyobjc wants None for an error")
        settings = options.settings
        demand(settings["version"] == FakeMetal.MTLLanguageVersion3_0, "a language without GPU addresses")
        safe = settings.get("math") == FakeMetal.MTLMathModeSafe or settings.get("fast") is False
        demand(safe, "fast math is on")
        try:
            return Library(self._metal.executor.compile(source)), None
        except CompileError as problem:
            return None, NSError(str(problem))

    def newComputePipelineStateWithFunction_error_(self, function, error):
        demand(error is None, "pyobjc wants None for an error")
        return Pipeline(function, self._metal.max_threads.get(function.name, 1024)), None


class CompileError(Exception):
    """The compiler's message."""


class Library:
    def __init__(self, program):
        self.program = program

    def newFunctionWithName_(self, name):
        return Function(self.program, name) if name in self.program.kernels else None


Function = namedtuple("Function", ["program", "name"])


class Pipeline:
    def __init__(self, function, max_threads):
        self.function, self.max_threads = function, max_threads

    def maxTotalThreadsPerThreadgroup(self):
        return self.max_threads

    def threadExecutionWidth(self):
        return self.function.program.simd_width

    def staticThreadgroupMemoryLength(self):
        return 1024


class Buffer:
    """A buffer over memory of the CPU, whose address on the GPU is another."""

    def __init__(self, start, n_bytes):
        self.start, self.n_bytes = start, n_bytes
        self._gpu = _LIBC.mremap(start, 0, n_bytes, _MAY_MOVE)
        demand(self._gpu != _FAILED, f"mremap: {os.strerror(ctypes.get_errno())}")

    def __del__(self):
        _LIBC.munmap(self._gpu, self.n_bytes)

    def gpuAddress(self):
        return self._gpu

    def length(self):
        return self.n_bytes

    def contents(self):
        return Contents(self.start)

    @property
    def is_mapped(self):
        """Return whether the CPU's memory is still mapped."""
        pages = np.empty(self.n_bytes // mmap.PAGESIZE, np.uint8)
        return _LIBC.mincore(self.start, self.n_bytes, pages.ctypes.data) == 0


class Contents:
    """objc.varlist"""

    def __init__(self, start):
        self._start = start

    def as_buffer(self, count):
        return memoryview((ctypes.c_ubyte * count).from_address(self._start)).cast("B")


class Queue:
    def __init__(self, metal):
        self._metal = metal

    def commandBuffer(self):
        self._metal.in_pool("a command buffer")
        return CommandBuffer(self._metal)


class CommandBuffer:
    def __init__(self, metal):
        self._metal = metal
        self._encoders = []
        self._status = FakeMetal.MTLCommandBufferStatusNotEnqueued
        self._committed = self._waited = False
        self._error = None
        self._seconds = 0.0

    def computeCommandEncoder(self):
        self._metal.in_pool("an encoder")
        demand(not self._committed, "a command buffer is used after commit")
        demand(all(encoder.ended for encoder in self._encoders), "two encoders at once")
        self._encoders.append(Encoder(self._metal))
        return self._encoders[-1]

    def commit(self):
        demand(not self._committed, "a command buffer is committed twice")
        demand(all(encoder.ended for encoder in self._encoders), "a command buffer is committed before endEncoding")
        self._committed = True
        if self._metal.fail:
            self._status, self._error = FakeMetal.MTLCommandBufferStatusError, NSError(self._metal.fail)
            self._metal.fail = None
            return
        self._metal.runs.append([])
        start = time.perf_counter()
        for encoder in self._encoders:
            for dispatch in encoder.dispatches:
                dispatch.run(self._metal)
        self._seconds = time.perf_counter() - start
        self._status = FakeMetal.MTLCommandBufferStatusCompleted

    def GPUStartTime(self):
        demand(self._waited, "times are looked at before the GPU is done")
        return 7.0

    def GPUEndTime(self):
        return 7.0 + self._seconds

    def waitUntilCompleted(self):
        demand(self._committed, "waits for a command buffer that is not committed")
        self._metal.waits += 1
        self._waited = True

    def status(self):
        demand(self._waited, "the status is looked at before the GPU is done")
        return self._status

    def error(self):
        return self._error


class Encoder:
    def __init__(self, metal):
        self._metal = metal
        self.dispatches, self.ended = [], False
        self._pipeline, self._bound, self._resident = None, {}, []

    def __del__(self):
        if not self.ended:
            self._metal.problems.append("an encoder went without endEncoding")

    def useResources_count_usage_(self, resources, count, usage):
        self._open()
        demand(len(resources) == count, f"{len(resources)} resources are said to be {count}")
        demand(usage == FakeMetal.MTLResourceUsageRead | FakeMetal.MTLResourceUsageWrite, "resources are not writable")
        self._resident = self._resident + list(resources)

    def setBuffer_offset_atIndex_(self, buffer, offset, index):
        self._open()
        demand(isinstance(buffer, Buffer), f"{buffer} is no buffer")
        demand(0 <= offset < buffer.n_bytes and offset % 4 == 0, f"offset {offset}")
        self._bound = self._bound | {index: (buffer, offset)}

    def setBytes_length_atIndex_(self, content, length, index):
        self._open()
        demand(isinstance(content, bytes) and len(content) == length <= 4096, "setBytes takes 4096 bytes at most")
        self._bound = self._bound | {index: content}

    def setComputePipelineState_(self, pipeline):
        self._open()
        self._pipeline = pipeline

    def dispatchThreadgroups_threadsPerThreadgroup_(self, groups, threads):
        self._open()
        demand(self._pipeline is not None, "a dispatch without a pipeline")
        demand(all(size >= 1 for size in (*groups, *threads)), f"{groups} threadgroups of {threads}")
        demand(np.prod(threads) <= self._pipeline.max_threads, f"{threads} threads are more than the pipeline has")
        function = self._pipeline.function
        missing = function.program.kernels[function.name] - self._bound.keys()
        demand(not missing, f"{function.name} lacks its arguments {sorted(missing)}")
        self.dispatches.append(Dispatch(function, groups, threads, self._bound, self._resident))

    def endEncoding(self):
        self._open()
        self.ended = True

    def _open(self):
        demand(not self.ended, "an encoder is used after endEncoding")


class Dispatch(namedtuple("Dispatch", ["function", "groups", "threads", "bound", "resident"])):
    """A kernel that is to run."""

    def run(self, metal):
        buffers = {id(each): each for each in self.resident}
        buffers |= {id(each[0]): each[0] for each in self.bound.values() if not isinstance(each, bytes)}
        demand(all(each.is_mapped for each in buffers.values()), "memory was unmapped before the GPU was done")
        if 3 in self.bound:  # spans: this is attention
            self._check_addresses()
        addresses, kept = {}, []
        for index, argument in self.bound.items():
            if isinstance(argument, bytes):
                kept.append(np.frombuffer(argument + bytes(512), np.uint8).copy())
                kept[-1] = kept[-1][-kept[-1].ctypes.data % 256 :]
                kept[-1][: len(argument)] = np.frombuffer(argument, np.uint8)
                addresses[index] = kept[-1].ctypes.data
            else:
                addresses[index] = argument[0].gpuAddress() + argument[1]
        metal.runs[-1].append((self.function.name, tuple(self.groups), tuple(self.threads)))
        self.function.program.run(self.function.name, addresses, tuple(self.groups), tuple(self.threads))

    def _check_addresses(self):
        """Check that all addresses in the layer's records are the GPU's, of resident memory."""
        starts = sorted((buffer.gpuAddress(), buffer.gpuAddress() + buffer.n_bytes) for buffer in self.resident)

        def check(address, what):
            inside = any(start <= address < stop for start, stop in starts)
            demand(inside, f"{what} is at {address:#x}, which is no resident memory of the GPU")

        (buffer, offset), step = self.bound[0], np.frombuffer(self.bound[1], GPU_STEP)[0]
        n_heads = int(step["n_kv_head"])
        for head in self._read(buffer.gpuAddress() + offset, HEAD, n_heads):
            for name in ("select", "append"):
                demand(0 <= int(head[name]) < len(method_names()), f"{head[name]} is no method")
            if head["n_document"]:
                check(int(head["document_keys"]), "document_keys")
                check(int(head["document_values"]), "document_values")
            method = method_class(method_names()[int(head["select"])])().for_metal()
            if method.state.itemsize:
                check(int(head["state"]), "state")
                state = self._read(int(head["state"]), method.state, 1)[0]
                counts = {"centroids": "n_clusters", "coarse_centroids": "n_coarse"}
                for name in method.document_arrays:
                    if state[counts[name]] if name in counts else head["n_document"]:
                        check(int(state[name]), name)
            check(int(head["scratch"]), "scratch")
            check(int(head["tail_chunks"]), "tail_chunks")
            for chunk in self._read(int(head["tail_chunks"]), np.int64, -(-int(head["n_tail"]) // 256)).tolist():
                if chunk:
                    check(chunk, "a chunk")

    @staticmethod
    def _read(address, dtype, count):
        dtype = np.dtype(dtype)
        return np.frombuffer((ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address), dtype)
