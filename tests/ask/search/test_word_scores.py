"""BM25 over tokens, against its formula written out."""

import math

import numpy as np
import pytest

from octavo.ask.search.ranking import WordScores


def naive(documents, question, part=256, k1=1.5, b=0.75):
    """The score of each document's best piece; a piece is two parts, the last one of a document one."""
    pieces = [
        [list(tokens[start : start + 2 * part]) for start in range(0, max(len(tokens), 1), part)]
        for tokens in documents
    ]
    every = [piece for of_document in pieces for piece in of_document]
    mean = sum(map(len, every)) / len(every)

    def score(piece):
        total = 0.0
        for token, share in question.items():
            n_with, count = sum(token in each for each in every), piece.count(token)
            weight = share * math.log(1 + (len(every) - n_with + 0.5) / (n_with + 0.5))
            total += weight * count * (k1 + 1) / (count + k1 * (1 - b + b * len(piece) / mean))
        return total

    return [max(map(score, of_document)) for of_document in pieces]


@pytest.mark.parametrize("lengths", [[1], [256, 257, 1], [600, 0, 2000, 511], [3, 3, 3, 3]])
def test_scores_are_those_of_the_formula(lengths):
    rng = np.random.default_rng(len(lengths))
    documents = [rng.zipf(1.3, n).astype(np.int32) % 300 for n in lengths]
    for question in ({1: 1.0, 2: 0.3, 3: 1.0, 50: 0.5}, {299: 1.0}, {1000: 1.0}, {}):
        np.testing.assert_allclose(
            WordScores(documents).of(question), naive(documents, question), rtol=1e-9, atol=1e-12
        )


def test_the_document_with_the_rare_word_is_found():
    common = np.tile(np.arange(50, dtype=np.int32), 40)
    documents = [common, np.append(common, 77).astype(np.int32), common]
    assert WordScores(documents).of({1: 1.0, 2: 1.0, 77: 1.0}).argmax() == 1
