"""A tiny model that tells a story without end, in words that llama.cpp's server tests expect of theirs."""

import itertools

import numpy as np
from helpers import tiny_models
from helpers.talking_model import GAP_MARKS
from helpers.word_model import pieces, succession

#: What it tells, again and again: each word leads to the next one. Two words may lead to the first one, too, so
#: that stories differ by their seeds.
STORY = " going Suddenly small Dad Jack little Whiskers said princesses"


def write_model(path, chat_template=tiny_models.CHAT_TEMPLATE, fills_gaps=False):
    """Write the model; it has GAP_MARKS if it fills gaps. Tokens outside of the story lead to its first word."""
    words = pieces(STORY)
    merges = list(dict.fromkeys(f"{word[:i]} {word[i]}" for word in words for i in range(1, len(word))))
    tokens, marks = tiny_models.ordinary_tokens(merges), GAP_MARKS if fills_gaps else []
    told = [tokens.index(word) for word in words]
    rng, n_vocab = np.random.default_rng(0), len(tokens) + len(tiny_models.SPECIALS) + len(marks)
    size = tiny_models.Size(2, 4, 2, 64, 512, 256, 4096, 32)
    metadata, tensors = succession(
        rng, size, n_vocab, [*itertools.pairwise([*told, told[0]]), *((word, told[0]) for word in told[-3:-1])]
    )
    outside = rng.normal(0.0, 1.0, size.n_embd).astype(np.float32)
    others = [token for token in range(n_vocab) if token not in told]
    tensors["token_embd.weight"][others] += outside
    tensors["output.weight"][told[0]] += 10.0 / size.n_embd * outside
    tensors["output.weight"][0] = 0.0  # theirs has no text for token 0, and never says it
    more = {"merges": merges, "chat_template": chat_template, "control": marks, "add_bos": True}
    return tiny_models.write_gguf(path, "llama", metadata, tensors, **more)
