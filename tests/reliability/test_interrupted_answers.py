"""Ctrl-C at random moments of reading, answering, going back and attaching: what follows is as if it never came."""

import os
import random
import signal
import threading
import time

import numpy as np
import pytest
from helpers import tiny_models, zoo
from helpers.index_builds import build, library_of

import octavo
from octavo.runtime.store.index_files import open_index

pytestmark = pytest.mark.sampled

N_BATCH, N_PROMPT = 64, 1344
TOKENS = np.random.default_rng(5).integers(32, 127, 1420).tolist()
PROMPT, ANSWER = TOKENS[:N_PROMPT], TOKENS[N_PROMPT:]
#: In standard deviations of the logits: as in other batches.
SAME = 0.01


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    hybrid = zoo.HYBRID["lfm2"] | {"context_length": 4096}
    return {
        "plain": tiny_models.write_model(folder / "plain.gguf", "llama", n_layer=6),
        "hybrid": zoo.write_model(folder / "hybrid.gguf", "lfm2", **hybrid),
    }


class Interrupter:
    """Sends Ctrl-C to this thread, at random moments of what it is given to do."""

    def __init__(self, seed):
        self._random, self._armed = random.Random(seed), False

    def _came(self, *_):
        if self._armed:
            raise KeyboardInterrupt

    def run(self, work, seconds):
        """Return whether the signal ended the work, rather than coming after it."""
        before = signal.signal(signal.SIGINT, self._came)
        timer = threading.Timer(self._random.uniform(0, seconds), os.kill, (os.getpid(), signal.SIGINT))
        try:
            self._armed = True
            timer.start()
            work()
            self._armed = False
            return False
        except KeyboardInterrupt:
            return True
        finally:
            self._armed = False
            timer.cancel()
            timer.join()
            time.sleep(0)  # a late signal is handled here
            signal.signal(signal.SIGINT, before)


def read_rest(llama):
    """Read what is missing of the prompt, in whole batches."""
    llama.rewind(llama.n_tokens // N_BATCH * N_BATCH if llama.n_tokens < N_PROMPT else llama.n_tokens)
    for start in range(llama.n_tokens, N_PROMPT, N_BATCH):
        llama.prefill(PROMPT[start : min(start + N_BATCH, N_PROMPT)])
        llama.context.keep_state()


def answer(llama):
    """Answer from where the model is; return the logits after each token of the answer that it evaluates."""
    rows = {}
    for place in range(llama.n_tokens - N_PROMPT, len(ANSWER)):
        llama.eval(ANSWER[place : place + 1])
        rows[place] = llama.logits()
    return rows


def assert_same(rows, expected):
    for place, row in rows.items():
        np.testing.assert_allclose(row, expected[place], rtol=0, atol=SAME * expected[place].std())


@pytest.mark.parametrize("model", ["plain", "hybrid"])
@pytest.mark.parametrize("attention", ["dense", "sketch", "quest", "squeezed", "h2o"])
def test_interrupted_answers(models, model, attention, amount, tally):
    llama = octavo.Llama(
        models[model], n_ctx=2048, n_batch=N_BATCH, n_threads=2, device="cpu", attention=attention, budget=0.3
    )
    read_rest(llama)
    answer(llama)  # compiles kernels
    llama.rewind(N_PROMPT)
    began = time.monotonic()
    expected = answer(llama)
    interrupter, seconds = Interrupter(f"{model} {attention}"), time.monotonic() - began
    draw = random.Random(1)

    def work(first):
        llama.rewind(first)
        read_rest(llama)
        answer(llama)

    n_ended, n_rounds = 0, amount(100, 4)
    for number in range(20 * n_rounds):
        if number >= n_rounds and n_ended:
            break
        first = draw.choice([N_PROMPT + draw.randrange(len(ANSWER)), draw.randrange(N_PROMPT)])
        n_ended += interrupter.run(lambda first=first: work(first), seconds)
        assert llama.n_tokens == llama.context.cache.n_tokens
        assert llama.sequence.tokens.tolist() == TOKENS[: llama.n_tokens]
        read_rest(llama)
        assert_same(answer(llama), expected)
        tally("Ctrl-C at a moment of an answer", "nothing wrong afterwards")
    assert n_ended


@pytest.mark.parametrize("attention", ["sketch", "quest", "squeezed"])
def test_interrupted_questions_to_a_document(models, attention, amount, tally, tmp_path):
    reading = octavo.Llama(models["plain"], n_ctx=4096, n_threads=2)
    document = open_index(build(reading, tmp_path), library_of(reading, tmp_path).model_hash)[0]
    llama = octavo.Llama(models["plain"], n_ctx=4096, n_threads=2, device="cpu", attention=attention, budget=0.3)

    def asked():
        if llama.context.cache.document is None:
            llama.attach(document)
        else:
            llama.rewind(len(document.tokens))
        rows = []
        for token in ANSWER[:12]:
            llama.eval([token])
            rows.append(llama.logits())
        return dict(enumerate(rows))

    expected = asked()
    began = time.monotonic()
    llama.reset()
    assert_same(asked(), expected)
    interrupter, seconds = Interrupter(attention), time.monotonic() - began
    for _ in range(amount(40, 3)):
        document.extras.clear()  # so that they are derived again
        interrupter.run(lambda: (llama.reset(), asked()), seconds)
        assert llama.n_tokens == llama.context.cache.n_tokens
        assert_same(asked(), expected)
        tally("Ctrl-C while a document is attached or asked", "nothing wrong afterwards")
