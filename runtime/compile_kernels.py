"""Compile the default model's kernels once: `python -m octavo.runtime.compile_kernels` counts them."""

from __future__ import annotations

#: Tokens of a document long enough to need every kernel.
_DOCUMENT = 8192


def main() -> None:
    """Compile the kernels of reading a document in this process, and those of questions in another one."""
    from ..cpu_kernels.numba_support import background_compile
    from .llama import Llama
    from .methods import DEFAULT_ATTENTION, DENSE
    from .models.find_model import default_model

    llama = Llama(default_model(), attention=DEFAULT_ATTENTION, n_ctx=64)
    llama.compile_ahead(llama.attention, _DOCUMENT)
    total = background_compile.n_awaited()
    Llama(default_model(), attention=DENSE, n_ctx=64).prefill([1, 2, 3])
    background_compile.wait(after_each=lambda left: print(f"[{total - left}/{total}]", flush=True))


if __name__ == "__main__":
    main()
