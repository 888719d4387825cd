"""What draws the tokens of an answer."""

import numpy as np
import pytest

import octavo
from octavo.serve.engine.grammar import Grammars
from octavo.serve.engine.request import Generation, Request
from octavo.serve.engine.sampler import TokenSampler, check_bias, token_logprob
from octavo.serve.request_error import RequestError
from octavo.settings import Sampling

TOKENS = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def llama(tiny_model):
    """The model, which has read a few tokens."""
    made = octavo.Llama(tiny_model, n_ctx=256, n_threads=2)
    made.eval(TOKENS)
    yield made
    made.close()


def drawn(llama, n=1, **how):
    """Tokens drawn one after another from the same logits."""
    more = {name: how.pop(name) for name in ("logit_bias", "presence_penalty", "n_logprobs") if name in how}
    sampler = TokenSampler(llama, Request(tokens=TOKENS, generation=Generation(sampling=Sampling(**how), **more)))
    tokens = [sampler.draw(-1)[0] for _ in range(n)]
    sampler.close()
    return tokens


def test_without_temperature_the_likeliest_token_is_drawn(llama):
    assert drawn(llama, 3, temperature=0) == 3 * [int(np.argmax(llama.logits()))]


def test_seeds_repeat_draws(llama):
    how = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "n": 20}
    assert drawn(llama, seed=3, **how) == drawn(llama, seed=3, **how) != drawn(llama, seed=4, **how)
    assert drawn(llama, **how) != drawn(llama, **how)


def test_biases_and_penalties_change_what_is_drawn(llama):
    [best] = drawn(llama, temperature=0)
    assert drawn(llama, temperature=0, logit_bias={best: -100.0}) != [best]
    assert drawn(llama, temperature=0, logit_bias={9: 100.0}) == [9]
    near = {token: float(value - llama.logits()[token]) for token, value in ((10, 100.0), (11, 99.5))}
    assert drawn(llama, 2, temperature=0, logit_bias=near) == [10, 10]
    assert drawn(llama, 2, temperature=0, logit_bias=near, presence_penalty=2.0) == [10, 11]


def test_a_grammar_is_kept_to(llama):
    grammars, before = Grammars(llama), llama.logits().copy()
    grammar = grammars.made('start: "no"', "form")
    request = Request(tokens=TOKENS, generation=Generation(sampling=Sampling(temperature=0)), grammar=grammar)
    for _ in range(2):  # each answer begins anew
        sampler = TokenSampler(llama, request)
        drawn = [sampler.draw(-1)[0] for _ in range(3)]
        assert b"".join(map(llama.piece, drawn[:2])) == b"no"
        assert llama.ends(drawn[2])
        sampler.close()
    assert np.array_equal(llama.logits(), before)
    with pytest.raises(RequestError, match="This form of an answer cannot be used"):
        grammars.made("start: (((", "form")
    grammars.close()


def test_log_probabilities_are_those_of_the_softmax(llama):
    logits = llama.logits()
    expected = logits - np.log(np.exp(logits.astype(np.float64)).sum())
    known = token_logprob(llama, logits, 9, 4)
    assert known.logprob == pytest.approx(expected[9], abs=1e-5)
    best = np.argsort(-logits)[:4]
    assert [token for token, _, _ in known.top] == best.tolist()
    np.testing.assert_allclose([value for _, _, value in known.top], expected[best], atol=1e-5)
    assert token_logprob(llama, logits, 9, 0).top == []


def test_log_probabilities_are_of_the_model_whatever_is_drawn(llama):
    generation = Generation(sampling=Sampling(temperature=0), logit_bias={9: 100.0}, n_logprobs=2)
    sampler = TokenSampler(llama, Request(tokens=TOKENS, generation=generation))
    token, known = sampler.draw(-1)
    assert token == known.token == 9
    assert known.logprob < known.top[0][2]
    sampler.close()


def test_biases_are_of_tokens_that_exist():
    check_bias({0: 1.0, 9: 1.0}, 10)
    for token in (-1, 10):
        with pytest.raises(RequestError, match=f"no token {token}"):
            check_bias({token: 1.0}, 10)
