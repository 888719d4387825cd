"""Facts about the model for the APIs: sizes, context, quantization, capabilities."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import llama_cpp

from ...errors import OctavoError
from ...prompts.chat_template import TEMPLATE_NAME
from ...runtime.models.gguf_header import header_values
from ..raw_prompt import fills_gaps
from ..services import Server


class ModelCard:
    """Facts about a server's model.

    Attributes
    ----------
    name : str
        Its name for clients.
    path : Path
        Its file.
    sha256 : str
        Hash of the file.
    created : int
        Time of the server's start, in seconds since 1970.
    architecture : str
        Such as "qwen3".
    quantization : str
        Such as "Q4_K_M".
    n_params, n_bytes, n_embd, n_vocab : int
        Parameters, bytes of the tensors, numbers of a hidden state, tokens of the vocabulary.
    n_ctx, n_ctx_train : int
        Tokens of the context that is served, and of the one that the model was trained on.
    template : str
        The chat template, as the model's file has it; empty if it has none.
    attention : str
        Words of the server's attention.
    embeds, thinks, fills_gaps : bool
        Whether it computes embeddings (and no answers, as such models do), thinks, and fills gaps in texts.
    """

    def __init__(self, server: Server) -> None:
        llama = server.engine.llama
        model = llama._model
        kind = llama_cpp.llama_ftype_name(llama_cpp.llama_model_ftype(model.model)).decode()
        self.name, self.path, self.sha256 = server.engine.name, Path(llama.model_path), server.library.model_hash
        self.created, self.attention = server.started, str(server.attention)
        self.architecture, self.quantization = llama.metadata.get("general.architecture", ""), quantization_of(kind)
        self.n_params, self.n_bytes, self.n_embd = model.n_params(), model.size(), model.n_embd()
        self.n_vocab, self.n_ctx, self.n_ctx_train = llama.n_vocab(), llama.n_ctx(), model.n_ctx_train()
        self.template = llama.metadata.get(TEMPLATE_NAME, "")
        self.embeds, self.thinks = server.embeddings.works, server.thoughts is not None
        self.fills_gaps = fills_gaps(llama)

    @property
    def capabilities(self) -> list[str]:
        """Return the model's capabilities, in Ollama's words."""
        can = {"completion": not self.embeds, "tools": not self.embeds, "thinking": self.thinks}
        return [name for name, works in {**can, "insert": self.fills_gaps, "embedding": self.embeds}.items() if works]

    def as_openai(self) -> dict[str, Any]:
        """Return it in OpenAI's form, with the context where clients of other servers look for it.

        `meta` is llama.cpp's, `max_model_len` vLLM's, `context_length` OpenRouter's, and the rest is LM Studio's.
        """
        meta: dict[str, Any] = {"n_ctx": self.n_ctx, "n_ctx_train": self.n_ctx_train, "n_vocab": self.n_vocab}
        meta |= {"n_embd": self.n_embd, "n_params": self.n_params, "size": self.n_bytes, "attention": self.attention}
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "octavo",
            "meta": meta,
            "max_model_len": self.n_ctx,
            "context_length": self.n_ctx,
            "max_context_length": self.n_ctx_train,
            "loaded_context_length": self.n_ctx,
            "type": "embeddings" if self.embeds else "llm",
            "arch": self.architecture,
            "quantization": self.quantization,
            "capabilities": self.capabilities,
            "state": "loaded",
        }


def described_header(path: Path) -> dict[str, Any]:
    """Describe a model that is not loaded, by its file's header, as far as `as_openai` does that."""
    try:
        return _described_header(path, path.stat().st_mtime_ns)
    except (OSError, OctavoError):  # loading it says why
        return {}


@lru_cache(64)
def _described_header(path: Path, mtime_ns: int) -> dict[str, Any]:
    values = header_values(path)
    architecture = str(values.get("general.architecture", ""))
    kind, n_ctx = values.get("general.file_type"), values.get(f"{architecture}.context_length")
    described = {"type": "embeddings" if f"{architecture}.pooling_type" in values else "llm", "arch": architecture}
    if isinstance(kind, int):
        described["quantization"] = quantization_of(llama_cpp.llama_ftype_name(kind).decode())
    return {**described, **({"max_context_length": n_ctx} if isinstance(n_ctx, int) else {})}


def quantization_of(kind: str) -> str:
    """Return the usual name of llama.cpp's kind of a file, such as "Q4_K - Medium"."""
    name, _, size = kind.removeprefix("(guessed) ").removeprefix("all ").partition(" - ")
    return f"{name}_{size[0]}" if size in ("Small", "Medium", "Large") else name.partition(" ")[0]
