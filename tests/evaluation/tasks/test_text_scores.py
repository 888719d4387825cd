"""What tasks make of outcomes: by hand, by chance, and where all is right."""

import numpy as np
import pytest
from helpers.evaluation_runs import (
    certain,
    decoded,
    distributions,
    documents_of,
    mean_score,
    noise,
    outcome,
    perfect,
    random_log_probs,
)

from octavo.evaluation.samples import Sample
from octavo.evaluation.tasks.fixed_context import FixedContext
from octavo.evaluation.tasks.needle import Needle, Passkey
from octavo.evaluation.tasks.prediction import Agreement, Perplexity, output_errors
from octavo.evaluation.tasks.qa import QA
from octavo.evaluation.tasks.repetition import Repetition
from octavo.evaluation.tasks.text_scores import contains, squad_scores, words

# By hand.


def test_perplexity_is_bits_over_characters():
    sample = Sample([7], continuation=[1, 0, 2], answers=("four",))
    predicted = outcome(log_probs=distributions([[0.25, 0.5, 0.25], [0.125, 0.5, 0.375], [0.25, 0.25, 0.5]]))
    assert Perplexity().score(sample, predicted, predicted)["score"] == pytest.approx((1 + 3 + 1) / 4)
    assert not Perplexity.higher_is_better


@pytest.mark.parametrize(
    ("written", "score"),
    [
        ("Emma was handsome", 17),
        ("Emma was handsome, and more", 17),
        ("Emma is handsome", 5),
        ("Emma", 4),
        ("emma was handsome", 0),
        (" Emma was handsome", 0),
        ("", 0),
    ],
)
def test_repetition_counts_characters_until_the_first_difference(written, score):
    sample = Sample([1], n_predict=8, answers=("Emma was handsome",))
    assert Repetition().score(sample, outcome(written), outcome()) == {"score": score}


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (" 12345.", 1),
        ("12345", 1),
        ("The key is 12345, I think.", 1),
        (" 123456", 0),
        (" 912345", 0),
        (" x12345", 0),
        (" 1234", 0),
        (" 12 345", 0),
        ("", 0),
    ],
)
def test_a_passkey_is_a_whole_number(written, found):
    sample = Sample([1], n_predict=8, answers=("12345",))
    assert Passkey().score(sample, outcome(written), outcome()) == {"score": found}


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (" velvet", 1),
        (" Velvet.", 1),
        (" the VELVET one", 1),
        (" velvety", 0),
        (" velv", 0),
        (" thunder", 0),
        ("", 0),
    ],
)
def test_a_needle_is_a_whole_word_in_any_case(written, found):
    sample = Sample([1], n_predict=8, answers=("velvet",))
    assert Needle().score(sample, outcome(written), outcome()) == {"score": found}


def test_contains_takes_one_of_the_answers_as_it_is_written():
    assert contains("about 3.5 million", ("4", "3.5")) == 1
    assert contains("about 305 million", ("4", "3.5")) == 0  # a dot is a dot


def test_words_are_those_of_squad():
    plain = ["quickbrown", "fox", "cat", "end", "of", "theatres"]
    assert words("The  Quick-brown fox, a cat; AN end of theatres.") == plain
    assert words("a, the.") == []


@pytest.mark.parametrize(
    ("written", "answers", "f1", "exact"),
    [
        ("Denver Broncos", ("Denver Broncos",), 1, 1),
        ("the Denver Broncos!", ("Denver Broncos",), 1, 1),
        ("Broncos Denver", ("Denver Broncos",), 1, 0),
        ("the Broncos of Denver won", ("Denver Broncos",), 2 * 2 / (4 + 2), 0),
        ("Denver", ("Denver Broncos",), 2 * 1 / (1 + 2), 0),
        ("no no", ("no",), 2 * 1 / (2 + 1), 0),  # a word counts as often as both have it
        ("Carolina Panthers", ("Denver Broncos",), 0, 0),
        ("", ("Denver Broncos",), 0, 0),
        ("308 points", ("Denver", "308", "308 of all points"), 2 * 2 / (2 + 4), 0),
        ("308", ("308 of all points", "308"), 1, 1),
    ],
)
def test_qa_has_the_measures_of_squad(written, answers, f1, exact):
    expected = {"score": pytest.approx(f1), "exact_match": exact}
    assert squad_scores(written, answers) == expected
    sample = Sample([1], n_predict=8, answers=answers)
    assert QA().score(sample, outcome(written), outcome()) == expected


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("It was Kawann Short, of course.", 1),
        ("it was the kawann short", 1),
        ("Kawann the Short", 1),
        ("Short Kawann", 0),
        ("Kawann Shorty", 0),
        ("SKawann Short", 0),
        ("four", 1),
        ("fourteen", 0),
        ("", 0),
    ],
)
def test_fixed_context_tells_whether_the_answer_is_there(written, found):
    sample = Sample([1], n_predict=8, answers=("Kawann Short", "four"))
    score = FixedContext().score(sample, outcome(written), outcome())
    assert score["contains_answer"] == found
    assert score.keys() == {"score", "exact_match", "contains_answer"}


def test_agreement_is_the_share_of_the_same_top_tokens():
    dense = outcome(log_probs=distributions([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.4, 0.5, 0.1], [0.4, 0.3, 0.3]]))
    other = outcome(log_probs=distributions([[0.4, 0.3, 0.3], [0.2, 0.1, 0.7], [0.5, 0.4, 0.1], [0.9, 0.05, 0.05]]))
    assert Agreement().score(Sample([1], [1, 2, 0, 0]), other, dense) == {"score": 0.75}


def test_output_errors_are_relative_and_of_each_layer():
    dense = np.array([[[3, 4], [1, 0]], [[0, 2], [0, 1]]], np.float32)  # two steps, two layers
    other = np.array([[[3, 4], [1, 2]], [[0, 1], [0, 2]]], np.float32)
    errors = output_errors(outcome(attention=other), outcome(attention=dense))
    assert errors == pytest.approx([(0 + 1 / 2) / 2, (2 + 1) / 2])


def test_output_errors_of_nothing_are_finite():
    nothing = np.zeros((1, 1, 2), np.float32)
    assert output_errors(outcome(attention=nothing), outcome(attention=nothing)) == [0]


def steps(own, dense, forced=False, own_steps=None, dense_steps=None):
    """Count the comparable steps of two answers. ..._steps : one more than tokens if the last step ended the answer"""
    outcomes = (
        outcome(tokens=tokens, log_probs=np.zeros((n or len(tokens), 2)))
        for tokens, n in ((own, own_steps), (dense, dense_steps))
    )
    return next(outcomes).comparable(next(outcomes), forced)


def test_forced_steps_are_all_comparable():
    assert steps([1, 2, 3], [4, 5, 6], forced=True) == 3


def test_answers_are_comparable_up_to_where_they_part():
    assert steps([1, 2, 3], [1, 2, 3]) == 3
    assert steps([1, 2, 3, 4], [1, 2, 9, 4]) == 3  # the third step follows the same tokens
    assert steps([1, 2, 3], [7, 2, 3]) == 1


def test_answers_of_different_lengths_are_comparable_up_to_the_shorter_end():
    assert steps([1, 2], [1, 2, 3, 4], own_steps=3) == 3  # the step that ended it counts
    assert steps([1, 2, 3, 4], [1, 2], dense_steps=3) == 3
    assert steps([], [1, 2], own_steps=1) == 1
    assert steps([1, 5], [1, 2, 3, 4], own_steps=3) == 2


# By chance, and where all is right.


@pytest.mark.parametrize("task", [Passkey(), Needle(), Repetition()], ids=lambda task: task.name)
def test_noise_finds_nothing(llama, task):
    texts = task.texts(llama, task.data, 4000, 40, 0)
    rng = np.random.default_rng(0)
    right = {Passkey: 1, Needle: 1, Repetition: np.mean([len(s.answers[0]) for t in texts for s in t.samples])}
    assert mean_score(task, llama, texts, lambda sample: perfect(llama, sample)) == pytest.approx(right[type(task)])
    assert mean_score(task, llama, texts, lambda sample: noise(llama, sample, rng)) < 0.1


def test_noise_answers_no_question(llama):
    texts = QA().texts(llama, QA.data, 6000, 40, 0)
    rng = np.random.default_rng(0)
    assert mean_score(QA(), llama, texts, lambda sample: perfect(llama, sample)) == 1
    assert mean_score(QA(), llama, texts, lambda sample: noise(llama, sample, rng)) < 0.02


def test_noise_answers_no_question_on_a_document(llama, tmp_path):
    texts = FixedContext().texts(llama, documents_of(tmp_path / "data.json", 20, 30), 0, 4, 0)
    rng = np.random.default_rng(0)
    assert mean_score(FixedContext(), llama, texts, lambda sample: perfect(llama, sample)) == 1
    assert mean_score(FixedContext(), llama, texts, lambda sample: noise(llama, sample, rng)) == 0


def test_noise_has_the_perplexity_of_chance(llama):
    texts = Perplexity().texts(llama, Perplexity.data, 300, 16, 0)
    samples = [sample for text in texts for sample in text.samples]
    rng = np.random.default_rng(0)
    uniform = np.mean([np.log2(llama.n_vocab()) * len(s.continuation) / len(s.answers[0]) for s in samples])
    assert mean_score(Perplexity(), llama, texts, lambda sample: perfect(llama, sample)) < 1e-6
    noisy = mean_score(Perplexity(), llama, texts, lambda sample: noise(llama, sample, rng))
    assert 0.98 * uniform < noisy < 1.3 * uniform


def test_noise_agrees_by_chance():
    n_vocab, rng = 50, np.random.default_rng(0)
    dense = outcome(log_probs=random_log_probs(rng, 4000, n_vocab))
    noisy = outcome(log_probs=random_log_probs(rng, 4000, n_vocab))
    sample = Sample([0], [0] * 4000)
    assert Agreement().score(sample, dense, dense) == {"score": 1}
    assert 0.5 / n_vocab < Agreement().score(sample, noisy, dense)["score"] < 2 / n_vocab


def test_certainty_is_one_token(llama):
    """What these tests call perfect is the continuation itself."""
    [text] = Perplexity().texts(llama, Perplexity.data, 300, 1, 0)
    [sample] = text.samples
    expected = certain(sample.continuation, llama.n_vocab()).argmax(axis=1).tolist()
    assert decoded(llama, expected) == sample.answers[0]
