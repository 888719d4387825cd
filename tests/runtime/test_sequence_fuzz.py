"""Any sequence of readings, steps, ways back, copies and saved states gives what one straight run gives."""

import random

import numpy as np
import pytest
from helpers import tiny_models, zoo

import octavo
from octavo.runtime.sequence_pool import SequencePool

pytestmark = pytest.mark.sampled

METHODS = [
    "dense",
    "h2o",
    "h2o:prefill=full",
    "quest",
    "quest:select=head",
    "sketch",
    "sparq",
    "squeezed",
    "squeezed2",
    "streaming",
    "streaming:prefill=full",
    "streaming:tokens=400",
    "window",
]
N_LAYER, N_CTX = 3, 4096
#: Keys and values have 11 bits, so each layer may be off by 2 ** -11 of itself; logits are five deviations of 3.
SAME = N_LAYER * 2**-11 * 5 * tiny_models.LOGIT_SPREAD


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    more = {**zoo.HYBRID["lfm2/one slides"], "context_length": N_CTX, "attention.sliding_window": 0}
    return {
        "plain": tiny_models.write_model(folder / "plain.gguf", "llama", n_layer=N_LAYER),
        "sliding": tiny_models.write_model(folder / "sliding.gguf", "gemma2", n_layer=N_LAYER, window=100),
        "hybrid": zoo.write_model(folder / "hybrid.gguf", "lfm2", **more),
    }


def new_llama(path, attention):
    return octavo.Llama(
        path, n_ctx=N_CTX, n_batch=256, n_threads=2, device="cpu", attention=attention, budget=0.3, n_parallel=2
    )


class Walk:
    """A model that takes a random way, and the straight way to the same place: (token, whether it is a step)."""

    def __init__(self, llama, seed):
        self.llama, self.random = llama, random.Random(seed)
        self.pool, self.straight = SequencePool(llama), []
        # K-means turns the rounding of a row into other clusters, and llama.cpp rounds a token alone in its own way.
        self.is_clustered = str(llama.attention) in ("sketch", "squeezed", "squeezed2")
        self.least = 2 if self.is_clustered else 1

    def tokens(self, most):
        n_tokens = self.random.randint(1, most) * self.least
        return [self.random.randint(32, 126) for _ in range(n_tokens)]

    def read(self):
        tokens = self.tokens(300 // self.least)
        self.llama.n_batch = self.random.choice([self.least, 6, 64, 256])
        self.llama.prefill(tokens)
        if self.random.random() < 0.5:
            self.llama.context.keep_state()
        self.straight += [(token, False) for token in tokens]

    def step(self):
        for token in self.tokens(30):
            self.llama.eval([token])
            self.straight.append((token, True))

    def go_back(self):
        n_tokens = self.random.randint(len(self.straight) // 3, len(self.straight)) // self.least * self.least
        self.llama.rewind(n_tokens)
        del self.straight[n_tokens:]

    def copy(self):
        """Go on with a copy, while the other one goes elsewhere."""
        sequence = self.pool.current
        if sequence.cache.evicts or not self.straight:
            return
        n_tokens = sequence.usable(self.random.randint(len(self.straight) // 2, len(self.straight)))
        forked = self.pool.fork(sequence, n_tokens)
        self.pool.take(sequence)
        self.llama.eval(self.tokens(40))
        self.pool.take(forked)
        del self.straight[n_tokens:]

    def save(self):
        if self.pool.current.cache.evicts:
            return
        state = self.llama.save_state()
        self.llama.reset()
        self.llama.prefill(self.tokens(50))
        self.llama.load_state(state)

    def step_together(self):
        """Beside another sequence, in one step."""
        sequence = self.pool.current
        other = self.pool.new()
        self.llama.prefill(self.tokens(20))
        for token in self.tokens(10):
            self.pool.step([sequence, other], [token, 50])
            self.straight.append((token, True))
        self.pool.take(sequence)


def straight_run(path, attention, way):
    """The logits after the last token of a way that nothing interrupts."""
    llama, unread = new_llama(path, attention), []
    for token, is_step in way:
        if is_step:
            llama.prefill(unread)
            llama.eval([token])
            unread = []
        else:
            unread.append(token)
    return llama.logits()


@pytest.mark.parametrize("attention", METHODS)
@pytest.mark.parametrize("model", ["plain", "sliding", "hybrid"])
@pytest.mark.parametrize("seed", range(10))
def test_any_way_gives_what_the_straight_one_gives(models, model, attention, seed):
    walk = Walk(new_llama(models[model], attention), f"{model} {attention} {seed}")
    doings = [walk.read, walk.read, walk.step, walk.go_back, walk.copy, walk.save]
    if not walk.is_clustered:
        doings.append(walk.step_together)  # the straight way has these tokens alone
    walk.read()
    for _ in range(10):
        walk.random.choice(doings)()
    walk.step()
    assert [token for token, _ in walk.straight] == walk.llama.sequence.tokens.tolist()
    expected = straight_run(models[model], attention, walk.straight)
    np.testing.assert_allclose(walk.llama.logits(), expected, rtol=0, atol=SAME)
