"""A tiny model that says what llama-cpp-python's tests expect of a real one."""

import itertools
import re

import numpy as np
from helpers import tiny_models

#: What the model of words says, token by token: just what the tests of a real model ask for. A bar ends a token.
SAYINGS = ["The quick brown fox jumps over the lazy dog.", "\ntrue", " par|rot"]
#: Further words of the prompts, which have to fit a context of 32 tokens: after a blank, and without one.
AFTER_BLANKS, ALONE = " The capital of france is paris or a number from to", ["The", "Pick", "true", "false", "rot"]
N_EMBD = 512


def write_model(path):
    """Write a model that says SAYINGS: each token leads to the next one, and attention adds a little to that."""
    rng = np.random.default_rng(0)
    tokens, merges = vocabulary()
    number = {token: i for i, token in enumerate(tokens)}
    n_vocab = len(tokens) + len(tiny_models.SPECIALS)
    said = [[number[piece] for piece in pieces(saying)] for saying in SAYINGS]
    size = tiny_models.Size(2, 4, 2, 64, N_EMBD, 256, 256, 32)
    pairs = [pair for each in said for pair in itertools.pairwise(each)]
    metadata, tensors = succession(rng, size, n_vocab, pairs)
    return tiny_models.write_gguf(path, "llama", metadata, tensors, merges=merges)


def succession(rng, size, n_vocab, pairs):
    """Metadata and tensors of a model in which the first token of each pair leads to the second."""
    embeddings = rng.normal(0.0, 1.0, (n_vocab, size.n_embd))
    output = rng.normal(0.0, 1.0 / np.sqrt(size.n_embd), (n_vocab, size.n_embd))
    for before, after in pairs:
        output[after] += 10.0 / size.n_embd * embeddings[before]
    recipe = tiny_models.llama(size)
    tensors = {name: draw(rng) for name, draw in tiny_models.all_tensors(recipe, size.n_layer).items()}
    tensors |= {"token_embd.weight": embeddings, "output.weight": output}
    for name in tensors:
        if name.endswith(("attn_output.weight", "ffn_down.weight")):
            tensors[name] *= 0.02
    tensors = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
    return tiny_models.common_metadata(size) | recipe.metadata, tensors


def pieces(text):
    """Cut a text as the tokenizer does, if all its words are tokens, and write blanks as it does."""
    return [piece.replace(" ", "Ġ").replace("\n", "Ċ") for piece in re.findall(r" ?[A-Za-z]+|[^A-Za-z|]", text)]


def vocabulary():
    """Return tokens and merges: those that make each word, letter by letter. Words after a blank come first."""
    spelled = [piece for text in (*SAYINGS, AFTER_BLANKS) for piece in pieces(text)] + ALONE
    ordered = sorted(spelled, key=lambda piece: not piece.startswith("Ġ"))
    merges = list(dict.fromkeys(f"{piece[:i]} {piece[i]}" for piece in ordered for i in range(1, len(piece))))
    return tiny_models.ordinary_tokens(merges), merges
