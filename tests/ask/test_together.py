"""Which documents are attended at once, and with which weights."""

from types import SimpleNamespace

import numpy as np
import pytest

from octavo.ask.passages import TokenText
from octavo.ask.ranking import Found
from octavo.ask.together import attend_at_once
from octavo.runtime.document.index import Index

TEXTS = ["The Petrel passed. ", "Bakers knead dough. ", "Jupiter has moons. "]


class Shelf:
    """Documents 0, 1 and so on, of 20, 21 and so on tokens."""

    n_head = 3

    def open(self, document):
        return Index(np.arange(20 + document, dtype=np.int32), []), {}


def looked(*scores):
    return SimpleNamespace(found=[Found(number, 0.0, score) for number, score in enumerate(scores)])


def test_weights_fall_with_the_scores():
    found = attend_at_once(Shelf(), looked(4.0, 3.0, 2.5))
    assert found.documents == [0, 1, 2]
    weights = np.exp([4.0, 3.0, 2.5])
    assert [weight for _, weight in found.index.parts] == pytest.approx((weights / weights.sum()).tolist())
    assert [len(index.tokens) for index, _ in found.index.parts] == [20, 21, 22]
    assert len(found.index.tokens) == 22  # the question stands behind the longest


def test_documents_that_are_unlikely_are_left_out():
    assert attend_at_once(Shelf(), looked(5.0, 1.0, 0.1)).documents == [0, 1]
    alone = attend_at_once(Shelf(), looked(9.0, 1.0))
    assert alone.documents == [0]
    assert type(alone.index) is Index


def test_what_is_attended_is_a_passage_of_its_document():
    found = attend_at_once(Shelf(), looked(1.0, 1.0, 1.0))
    texts = [TokenText.of([text.encode()] * (17 + number)) for number, text in enumerate(TEXTS)]
    attended = np.zeros((1, 20 + 21 + 22), np.float32)
    attended[0, 20 + 3 + 7] = 0.3
    attended[0, 20 + 21 + 3 + 2] = 0.2
    passages = found.passages(attended, lambda document: (texts[document], []), 5)
    assert [(number, round(each.share, 1)) for number, each in passages] == [(1, 0.3), (2, 0.2)]
    for (number, each), token in zip(passages, (7, 2), strict=True):
        assert each.start <= texts[number].starts[token] < each.stop
