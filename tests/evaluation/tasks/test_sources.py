"""Whether sources are right: where the passage with the answer stands, and what counts."""

from dataclasses import replace

import numpy as np
import pytest

import octavo
from octavo.ask.sources.find_sources import TokenText
from octavo.evaluation.samples import Outcome, Sample
from octavo.evaluation.tasks import task_class
from octavo.evaluation.tasks.sources import _TASKS, Sources

pytestmark = pytest.mark.sampled

TEXT = "Ann lives in Leith. " + "Nobody came that day. " * 60 + "Bob lives in Dover. The end."
SAMPLE = Sample([1], answers=("Dover",), passage="Bob lives in Dover.", text=TokenText.of([c.encode() for c in TEXT]))


def outcome(text, paid):
    """Tokens are characters; two more come before the text."""
    attended = np.zeros((1, len(TEXT) + 2), np.float32)
    for part, share in paid.items():
        start = TEXT.index(part) + 2
        attended[0, start : start + len(part)] = share / len(part)
    return Outcome([], text, np.zeros((0, 0)), [], None, 0.0, 0.0, attended, [(text, attended)])


@pytest.mark.parametrize(
    ("text", "paid", "score", "first_three", "none_named", "right_marks", "marked_facts"),
    [
        (" Dover.", {"Bob lives": 0.5, "Ann": 0.1}, 1, 1, 0, 1, 1),
        (" Dover.", {"Bob lives": 0.1, "Ann": 0.5}, 0, 1, 0, 0, 1),
        (" Dover.", {"Ann": 0.5}, 0, 0, 0, 0, 1),
        (" Dover.", {"Ann": 0.01}, 0, 0, 1, None, 0),
        (" Leith.", {"Bob lives": 0.5}, None, None, None, None, None),
    ],
)
def test_scores(text, paid, score, first_three, none_named, right_marks, marked_facts):
    made = Sources().score(SAMPLE, outcome(text, paid), None)
    assert made == {
        "score": score,
        "first_three": first_three,
        "none_named": none_named,
        "right_answers": float(score is not None),
        "right_marks": right_marks,
        "marked_facts": marked_facts,
    }


def test_each_sentence_counts():
    """Half of the marks are right, and one of two facts has one; the blank sentence between them has none."""
    sentences = [("In Dover.", {"Bob lives": 0.5}), ("Not far.", {}), ("So Dover.", {}), ("Ann too.", {"Ann": 0.5})]
    made = [(text, outcome(text, paid).attended) for text, paid in sentences]
    scored = Sources().score(SAMPLE, replace(outcome("Dover", {"Bob lives": 0.5}), sentences=made), None)
    assert (scored["right_marks"], scored["marked_facts"]) == (0.5, 0.5)


def test_half_of_a_passage_is_enough():
    long = replace(SAMPLE, passage=TEXT[TEXT.index("Bob") - 66 :])
    assert Sources().score(long, outcome("Dover", {"Bob lives": 0.5}), None)["score"] == 1


@pytest.mark.parametrize("of", list(_TASKS))
def test_every_sample_has_its_passage(real_model, of):
    llama = octavo.Llama(real_model, n_ctx=4096, n_threads=2)
    task = task_class("sources")(of=of)
    for text in task.texts(llama, task.data, 2500, 6, 0):
        for sample in text.samples:
            assert sample.text.text.count(sample.passage) == 1
            assert any(answer in sample.passage for answer in sample.answers)
            assert len(sample.text.starts) <= len(text.tokens)
            assert "AI assistant" not in sample.text.text
