"""Check that llama.cpp runs on this CPU: `python -m octavo.runtime.selftest` crashes if it does not."""

from __future__ import annotations


def main() -> None:
    """Evaluate one batch with the default model: 32 tokens, enough for llama.cpp to use AMX if available."""
    import llama_cpp

    from .models.find_model import default_model

    llama_cpp.Llama(str(default_model()), n_ctx=64, verbose=False).eval(list(range(100, 132)))


if __name__ == "__main__":
    main()
