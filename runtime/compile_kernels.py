"""Compile the kernels of the default model and attention, once: `python -m octavo.runtime.compile_kernels`."""

from __future__ import annotations


def main() -> None:
    """Evaluate a batch and a token."""
    from .llama import Llama
    from .methods import DEFAULT_ATTENTION
    from .models import default_model

    llama = Llama(default_model(), attention=DEFAULT_ATTENTION, n_ctx=64)
    llama.eval([1, 2, 3])
    llama.eval([4])


if __name__ == "__main__":
    main()
