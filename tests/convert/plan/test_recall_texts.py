"""The texts that a model must look back in: what is hidden in them, and that it is recalled."""

import re

import numpy as np
import pytest
from helpers import tiny_models

import octavo
from octavo import OctavoError
from octavo.convert.plan.recall_texts import (
    PASSKEYS,
    REPETITION,
    SHIPPED_NOVEL,
    Haystack,
    passkey_text,
    recall_text,
    repetition_text,
)


def draw(seed=0):
    return np.random.default_rng(seed)


def assert_recalls(text, n_tokens):
    tokens = np.array(text.tokens)
    assert len(tokens) == n_tokens
    np.testing.assert_array_equal(tokens[text.recalled], tokens[text.sources])
    assert text.sources.max() < text.n_read <= text.recalled.min()
    assert len(set(text.sources.tolist())) == len(text.sources)


def test_passkeys_are_hidden_and_recalled_in_order(llama, haystack):
    text = passkey_text(haystack, 6000, draw(), haystack.words, n_words=8)
    assert_recalls(text, 6000)
    assert text.n_words == 8
    hidden, recalled = (
        llama.detokenize(part).decode() for part in (text.tokens[: text.n_read], text.tokens[text.n_read :])
    )
    found = re.findall(r"\n\nThe pass key of (\w+) is((?: [a-z]+){8})", recalled)
    assert len({person for person, _ in found}) == len(found) == 10
    assert recalled == "".join(f"\n\nThe pass key of {person} is{words}" for person, words in found)
    places = [hidden.index(f"\n\nThe pass key of {person} is{words}\n\n") for person, words in found]
    assert places == sorted(places)
    assert places[-1] - places[0] > len(hidden) / 4
    words = [word for _, key in found for word in key.split()]
    assert len(set(words)) == 80
    assert set(words) <= set(haystack.words)
    keys = [llama.detokenize([text.tokens[i] for i in key]).decode() for key in text.passkeys]
    assert keys == [words for _, words in found]


def test_a_passkey_text_without_its_passkeys_is_the_novel(llama, haystack):
    text = passkey_text(haystack, 4000, draw(3), haystack.words, n_words=4)
    read = llama.detokenize(text.tokens[: text.n_read]).decode()
    prose = re.sub(r"\n\nThe pass key of \w+ is(?: [a-z]+){4}\n\n", "", read)
    assert prose in haystack.text * 2


def test_passkeys_are_shorter_in_a_short_text(haystack):
    text = passkey_text(haystack, 1024, draw(), haystack.words)
    assert_recalls(text, 1024)
    assert 1 <= text.n_words < 32
    longer = passkey_text(haystack, 1024, draw(), haystack.words, n_words=2 * text.n_words)
    assert longer.n_words == text.n_words
    with pytest.raises(OctavoError, match=r"do not fit a text of 300 tokens: give more \(--tokens\)"):
        passkey_text(haystack, 300, draw(), haystack.words)


@pytest.mark.parametrize("n_tokens", [64, 1024, 5000])
def test_passages_are_repeated(haystack, n_tokens):
    text = repetition_text(haystack, n_tokens, draw())
    assert_recalls(text, n_tokens)
    tokens = np.array(text.tokens)
    length = (n_tokens - text.n_read) // 4
    repeated = tokens[text.n_read :].reshape(4, length)
    for passage in repeated:
        windows = np.lib.stride_tricks.sliding_window_view(tokens[: text.n_read], length)
        assert (windows == passage).all(axis=1).any()
    assert 0 < len(text.recalled) < repeated.size  # the cues do not count


@pytest.mark.parametrize("task", [PASSKEYS, REPETITION])
def test_a_seed_gives_one_text(haystack, task):
    one, again, other = (recall_text(task, haystack, 1024, seed) for seed in (1, 1, 2))
    assert one.tokens == again.tokens
    assert one.tokens != other.tokens


def test_a_novel_goes_on_at_its_beginning(llama):
    short = Haystack(llama, "One.\n\nTwo.")
    assert llama.detokenize(short.tokens(40, draw())).decode() in "One.\n\nTwo.\n\n" * 10


def test_a_text_begins_as_the_model_wants(tmp_path):
    path = tiny_models.write_model(tmp_path / "bos.gguf", "llama", add_bos=True)
    haystack = Haystack(octavo.Llama(path), SHIPPED_NOVEL.read_text("utf-8"))
    for task in (PASSKEYS, REPETITION):
        text = recall_text(task, haystack, 1024, 0)
        assert_recalls(text, 1024)
        assert text.tokens[0] == tiny_models.END_OF_TEXT


def test_too_few_words_for_passkeys_are_refused(haystack):
    with pytest.raises(OctavoError, match=r"has 3 words to draw passkeys from, and they take 20"):
        passkey_text(haystack, 1024, draw(), haystack.words[:3], n_words=2)
