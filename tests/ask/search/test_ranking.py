"""Which excerpts of documents a question is about."""

import numpy as np
import pytest

from octavo.ask.search.question_queries import attention_shares
from octavo.ask.search.ranking import PIECE, Ranking, Span, WordScores


def made_ranking(n_tokens, seed=0):
    """Documents of some lengths, with random tokens and scores."""
    rng = np.random.default_rng(seed)
    texts = [rng.integers(0, 500, n).astype(np.int32) for n in n_tokens]
    pieces = [rng.normal(0, 3, (2, 5, max(-(-n // PIECE), 1))).astype(np.float32) for n in n_tokens]
    names = [f"document {i}" for i in range(len(n_tokens))]
    return Ranking(names, texts, {3: 1.0, 7: 0.3, 11: 1.0}, rng.random(len(n_tokens)), pieces)


def scores_of(ranking):
    """Score of each piece, by document and number, in float64."""
    words = np.concatenate(WordScores(ranking.texts, PIECE).of_pieces(ranking.question))
    joined = np.concatenate(ranking.pieces, axis=2).astype(np.float64)
    weights = np.exp(joined - joined.max(axis=2, keepdims=True))
    shares = (weights / weights.sum(axis=2, keepdims=True)).mean(axis=(0, 1))
    scores = sum(w * (v - v.mean()) / v.std() for w, v in ((1, words), (0.5, shares)))
    numbered = [
        (name, i) for name, own in zip(ranking.documents, ranking.pieces, strict=True) for i in range(own.shape[2])
    ]
    return dict(zip(numbered, scores, strict=True))


def taken(excerpts, ranking):
    """The pieces that excerpts have; they begin and end between two."""
    pieces = []
    for excerpt in excerpts:
        n_tokens = len(ranking.texts[ranking.documents.index(excerpt.document)])
        assert excerpt.start % PIECE == 0
        assert excerpt.stop % PIECE == 0 or excerpt.stop == n_tokens
        assert excerpt.start < excerpt.stop
        pieces += [(excerpt.document, i) for i in range(excerpt.start // PIECE, -(-excerpt.stop // PIECE))]
    assert len(set(pieces)) == len(pieces)
    return set(pieces)


@pytest.mark.parametrize("n_tokens", [1, 300, 1000, 2000])
def test_the_best_pieces_and_the_ones_after_them_are_taken(n_tokens):
    ranking = made_ranking([1000, 90, 2500, 129, 700])
    found, scores = ranking.excerpts(n_tokens), scores_of(ranking)
    expected, n_expected = set(), 0
    for name, i in sorted(scores, key=lambda piece: -scores[piece]):
        for piece in ((name, i), (name, i + 1)):
            if piece in scores and piece not in expected:
                expected.add(piece)
                n_expected += min(PIECE, len(ranking.texts[ranking.documents.index(name)]) - piece[1] * PIECE)
        if n_expected >= n_tokens:
            break
    assert taken(found, ranking) == expected
    assert sum(each.stop - each.start for each in found) == n_expected >= n_tokens
    [best] = [each for each in found if max(scores, key=scores.get) in taken([each], ranking)]
    assert best == found[-1]


def test_all_tokens_are_taken_of_documents_that_have_fewer():
    ranking = made_ranking([200, 0, 129])
    assert sorted(ranking.excerpts(10_000)) == [Span("document 0", 0, 200), Span("document 2", 0, 129)]


def test_documents_share_the_attention_of_their_best_pieces():
    ranking = made_ranking([1000, 90, 2500])
    best = np.stack([own.max(axis=2) - 0.5 * np.log(own.shape[2]) for own in ranking.pieces], axis=2)
    by_name = {each.document: each for each in ranking.candidates}
    for name, share in zip(ranking.documents, attention_shares(best), strict=True):
        assert by_name[name].share == pytest.approx(share)
    assert [each.score for each in ranking.candidates] == sorted(
        (each.score for each in ranking.candidates), reverse=True
    )


def test_a_long_document_does_not_win_by_its_length():
    """Scores without meaning, of a novel and nine notes: by the highest score alone the novel wins half of the time."""
    rng = np.random.default_rng(0)
    n_tokens = [300 * PIECE, *[PIECE] * 9]
    wins = 0
    for _ in range(100):
        texts = [np.zeros(n, np.int32) for n in n_tokens]
        pieces = [rng.normal(0, 1, (2, 5, n // PIECE)).astype(np.float32) for n in n_tokens]
        ranking = Ranking(list(range(10)), texts, {1: 1.0}, np.zeros(10), pieces)
        wins += ranking.candidates[0].document == 0
    assert wins < 50
