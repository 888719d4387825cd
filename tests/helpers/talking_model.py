"""A tiny model whose answers end by themselves: it always says the same."""

import itertools

import numpy as np
from helpers import tiny_models
from helpers.word_model import succession

#: What it answers. No character comes twice: each leads to the next one, and the last to the end.
ANSWER = "Ship, 90."
#: What it writes in the quotes of JSON.
QUOTED = "W"
#: What a model that never ends repeats, likewise.
LOOP = "He-go/by,"
#: Control tokens around the texts beside a gap, of a model that fills gaps, which it does with the answer.
GAP_MARKS = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]


def write_model(path, chat_template=tiny_models.CHAT_TEMPLATE, fills_gaps=False, loops=False):
    """Write the model. Its vocabulary is that of the other tiny models, and GAP_MARKS if it fills gaps."""
    ordinary = tiny_models.ordinary_tokens(tiny_models.MERGES)
    number = {text: ordinary.index(token) for text, token in (("\n", "Ċ"), (" ", "Ġ"))}
    number |= {text: i for i, text in enumerate(ordinary) if len(text) == 1 and text not in "ĊĠ"}
    said = "\n" + LOOP + LOOP[0] if loops else "\n" + ANSWER
    texts = [*itertools.pairwise(said), ('"', QUOTED), (QUOTED, '"')]
    ends = [(number[text], tiny_models.IM_END) for text in ("" if loops else ANSWER[-1], "}") if text]
    pairs = [(number[before], number[after]) for before, after in texts]
    marks = GAP_MARKS if fills_gaps else []
    ends += [(tiny_models.N_VOCAB + 2, number[ANSWER[0]])] if fills_gaps else []
    size = tiny_models.Size(2, 4, 2, 64, 512, 256, 4096, 32)
    metadata, tensors = succession(np.random.default_rng(0), size, tiny_models.N_VOCAB + len(marks), pairs + ends)
    return tiny_models.write_gguf(path, "llama", metadata, tensors, chat_template=chat_template, control=marks)
