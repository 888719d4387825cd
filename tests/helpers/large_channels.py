"""Models whose keys have a large channel, as Qwen2's have by their K bias, and the losses of q8_0."""

import llama_cpp
import numpy as np
from helpers import tiny_models

import octavo

_Q8_0 = dict.fromkeys(("type_k", "type_v"), llama_cpp.GGML_TYPE_Q8_0)


def write_model(path, head_dim, bias):
    """A qwen2 whose keys have one channel in each KV head that is larger than the others by `bias`."""
    size = tiny_models.Size(3, 4, 2, head_dim, 4 * head_dim, 256, 1024, 32)
    recipe, rng = tiny_models.qwen2(size), np.random.default_rng(0)
    tensors = {name: draw(rng).astype(np.float32) for name, draw in tiny_models.all_tensors(recipe, 3).items()}
    for layer in range(3):
        tensors[f"blk.{layer}.attn_k.bias"][head_dim // 2 - 1 :: head_dim] = bias
    return tiny_models.write_gguf(path, "qwen2", tiny_models.common_metadata(size) | recipe.metadata, tensors)


def losses_in_q8_0(path, tokens, n_batch, device):
    """The mean KL divergence to f16 of the next token's distribution, in q8_0: octavo's on a device, and llama.cpp's.

    n_batch : tokens that octavo reads at once; each of the others is a step, whose queries the CPU rounds, too
    """
    options = {"n_ctx": 512, "n_batch": 512, "n_threads": 2, "logits_all": True, "flash_attn": True, "verbose": False}
    shares = []
    for types in ({}, _Q8_0):
        theirs = llama_cpp.Llama(str(path), **options, **types)
        theirs.eval(tokens)
        shares.append(_log_shares(theirs.scores[: len(tokens)]))
    ours = octavo.Llama(path, n_ctx=512, n_threads=2, device=device, **_Q8_0)
    rows = [ours.eval_all(tokens[:n_batch])]
    for token in tokens[n_batch:]:
        ours.eval([token])
        rows.append(np.array(ours.logits())[None])
    exact, of_llama_cpp = shares
    of_octavo = _log_shares(np.concatenate(rows))
    return [float((np.exp(exact) * (exact - each)).sum(axis=1).mean()) for each in (of_octavo, of_llama_cpp)]


def _log_shares(logits):
    logits = np.asarray(logits, np.float64)
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
