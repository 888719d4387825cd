"""Run a job in a separate process, under a sanitizer."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from metal_simulator import compiler
from metal_simulator.job import Job, encode, return_arrays
from metal_simulator.tokens import MSLError


def run_sanitized(path: Path, sanitizer: str, job: Job) -> None:
    """Run a job in the sanitizer's executable. Raise MSLError with its findings."""
    symbolizer = f"external_symbolizer_path={compiler.symbolizer()}"
    common = f"{symbolizer}:abort_on_error=0:exitcode=66"
    environment = {
        **os.environ,
        "ASAN_OPTIONS": f"{common}:detect_leaks=0:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": f"{common}:print_stacktrace=1",
        "TSAN_OPTIONS": f"{common}:halt_on_error=1:report_thread_leaks=0",
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job"
        file.write_bytes(encode(path, job))
        # the thread sanitizer fails under address space randomisation
        command = ["setarch", "-R", str(compiler.runner(sanitizer)), str(file)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, timeout=job.timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise MSLError(f"the kernel does not end: stopped after {job.timeout} seconds") from None
        if done.returncode:
            raise MSLError(readable(done.stderr))
        results = np.frombuffer(file.with_suffix(".out").read_bytes(), np.uint8).copy()
    memory, start = {}, 0
    for index, buffer in job.buffers.items():
        if isinstance(buffer, np.ndarray):
            memory[index] = results[start : start + buffer.nbytes]
            start += buffer.nbytes
    return_arrays(job, memory)


def readable(report: str) -> str:
    """Return what a sanitizer found: those lines of its report that name lines of the shader."""
    found = re.search(r"^MSL: (.*)", report, re.MULTILINE)
    if found:
        return found[1]
    lines = []
    for line in report.splitlines():
        kind = re.search(r"(?:ERROR: |WARNING: )(\w+Sanitizer): ([\w -]*?)(?: \(pid| on |$)", line)
        access = re.search(r"(?:previous )?(?:atomic )?(?:read|write) of size \d+", line, re.IGNORECASE)
        frame = re.search(r"#0 (?:0x\w+ in )?(?:void )?(\w+)\b.*?([^\s/]+\.\w+:\d+)(?::\d+)?( |$)", line)
        runtime = re.search(r"([^\s/]+:\d+):\d+: runtime error: (.*)", line)
        if runtime:
            lines.append(f"{runtime[1]}: {runtime[2]}")
        elif kind:
            lines.append(f"{kind[1]}: {kind[2]}")
        elif access:
            lines.append(access[0].lower())
        elif frame:
            lines.append(f"    at {frame[2]}, in {frame[1]}")
    return "\n".join(lines) or report.strip()[-4000:] or "the simulator's process died without a word"
