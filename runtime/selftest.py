"""Does llama.cpp, as it was built, run on this CPU? `python -m octavo.runtime.selftest` crashes or exits with 0.

`--cmake-args` prints the arguments of a build that does where the usual one, for all that this CPU advertises,
does not: without AMX, which some virtual machines advertise and do not have.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

_OPTIONS = {
    "avx512f": "GGML_AVX512",
    "avx512vbmi": "GGML_AVX512_VBMI",
    "avx512_vnni": "GGML_AVX512_VNNI",
    "avx512_bf16": "GGML_AVX512_BF16",
}


def cmake_args() -> str:
    """llama.cpp's build options for this CPU, AMX left out."""
    if platform.machine() not in ("x86_64", "AMD64") or not Path("/proc/cpuinfo").exists():
        return "-DGGML_NATIVE=OFF"
    flags = set(Path("/proc/cpuinfo").read_text("utf-8").split())
    options = [option for flag, option in _OPTIONS.items() if flag in flags]
    return " ".join(["-DGGML_NATIVE=OFF", *(f"-D{option}=ON" for option in options)])


def main() -> None:
    """Evaluate a batch with the default model."""
    if "--cmake-args" in sys.argv:
        print(cmake_args())
        return
    import llama_cpp

    from .models import default_model

    llama_cpp.Llama(str(default_model()), n_ctx=64, verbose=False).eval(list(range(100, 132)))


if __name__ == "__main__":
    main()
