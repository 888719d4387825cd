"""Drafts: what followed the longest match, as long as it pays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.runtime.sequences.drafter import Drafter, Experience, longest_match

TEXT = [5, 6, 7, 8, 9, 10, 11, 12]


def drafted(drafter, tokens, room=64):
    return drafter.draft(np.array(tokens, np.intc), room)


def matches_naively(tokens):
    """Compare every place with the end of the text, token by token: the end and the length of each match."""
    matches = {}
    for end in range(1, len(tokens)):
        n = 0
        while n < min(end, 32) and tokens[end - 1 - n] == tokens[len(tokens) - 1 - n]:
            n += 1
        matches[end] = n
    return matches


def longest_match_naively(tokens):
    matches = matches_naively(tokens)
    end = max(matches, key=lambda end: (matches[end], end), default=0)
    if matches.get(end, 0) < 2:
        return 0, 0, False
    following = [tokens[each] for each in matches if matches[each] >= max(matches[end] - 3, 1)]
    return end, matches[end], following.count(tokens[end]) < len(following) / 2


@given(st.lists(st.integers(0, 3), max_size=80))
def test_the_longest_match_is_found(tokens):
    assert longest_match(np.array(tokens, np.intc)) == longest_match_naively(tokens)


def test_a_match_is_disputed_where_most_shorter_ones_went_on_in_other_ways():
    assert longest_match(np.array([1, 2, 5, 9, 1, 2])) == (2, 2, False)
    assert longest_match(np.array([1, 2, 5, 7, 2, 6, 9, 1, 2])) == (2, 2, False)
    assert longest_match(np.array([1, 2, 5, 7, 2, 6, 8, 2, 6, 9, 1, 2])) == (2, 2, True)


def test_disputed_matches_have_odds_of_their_own():
    """What they taught keeps no undisputed match from being drafted."""
    disputed, clear = [1, 2, 5, 7, 2, 6, 8, 2, 6, 9, 1, 2], [1, 2, 5, 7, 8, 9, 1, 2]
    drafter = Drafter()
    for _ in range(30):
        drafted(drafter, disputed)
        drafter.note(6)
        drafted(drafter, clear)
        drafter.note(5)
    assert drafted(drafter, clear)[:1] == [5]
    assert drafted(drafter, disputed) == []


def test_what_followed_the_last_tokens_is_drafted():
    assert drafted(Drafter(4), [*TEXT, 1, 6, 7]) == [8, 9, 10, 11]
    assert drafted(Drafter(4), [*TEXT, 1, 6, 7], room=2) == [8, 9]
    assert drafted(Drafter(4), [*TEXT, 1, 7]) == []  # one token is no match
    assert drafted(Drafter(4), [*TEXT, 1, 6, 7], room=0) == []


def test_the_longer_match_wins_and_of_equals_the_later():
    assert drafted(Drafter(2), [4, 5, 6, 1, 1, 9, 5, 6, 2, 2, 4, 5, 6]) == [1, 1]
    assert drafted(Drafter(2), [3, 5, 6, 1, 1, 9, 5, 6, 2, 2, 4, 5, 6]) == [2, 2]


def test_a_prediction_is_a_text_of_its_own():
    drafter = Drafter(9, prediction=TEXT)
    assert drafted(drafter, [1, 2, 6, 7]) == TEXT[3:]
    assert drafted(drafter, [11, 12]) == []  # nothing follows, not even the beginning of the prompt


def test_a_draft_is_as_long_as_pays():
    """A long match is worth a long draft, a short one is worth none, until it has proved right."""
    copied = list(range(100, 160))
    assert len(drafted(Drafter(), [*copied, 1, *copied[:20]])) >= 2
    short = [*copied, 1, *copied[:2]]
    drafter = Drafter()
    assert drafted(drafter, short) == []
    for _ in range(30):
        drafted(drafter, short)
        drafter.note(copied[2])
    assert len(drafted(drafter, short)) > 0


def test_drafts_pause_after_misfires_and_go_on_once_they_would_hit():
    copied = list(range(100, 160))
    text = [*copied, 1, *copied[:20]]
    drafter = Drafter()
    n_drafts = 0
    while drafted(drafter, text):
        drafter.note(3)
        n_drafts += 1
        assert n_drafts < 40
    for _ in range(60):
        drafted(drafter, text)
        drafter.note(copied[20])
    assert drafted(drafter, text)


@pytest.mark.parametrize("cost", [0.05, 0.3, 0.9, 3.0])
def test_what_a_longer_step_takes_counts(cost):
    drafter = Drafter()
    drafter.note_step(1, 0.1)
    for _ in range(4):
        drafter.note_step(5, 0.1 * (1 + 4 * cost))
    least, most = {0.05: (6, 24), 0.3: (1, 12), 0.9: (0, 0), 3.0: (0, 0)}[cost]
    assert least <= len(drafted(drafter, [*range(100, 160), 1, *range(100, 120)])) <= most
    assert drafter.n_drafted == 16


def test_a_slow_step_alone_ends_no_drafts():
    drafter = Drafter()
    drafter.note_step(1, 0.1)
    drafter.note_step(5, 9.0)
    assert drafted(drafter, [*range(100, 160), 1, *range(100, 120)])


def test_drafts_that_took_too_long_are_tried_again():
    drafter, text = Drafter(), [*range(100, 160), 1, *range(100, 120)]
    for _ in range(5):
        drafter.note_step(1, 0.1)
        drafter.note_step(5, 9.0)
    n_steps = 0
    while not drafted(drafter, text):
        drafter.note_step(1, 0.1)
        n_steps += 1
        assert n_steps < 1000
    assert n_steps > 30


def test_an_answer_profits_from_those_before_it():
    copied, experience = list(range(100, 160)), Experience()
    short = [*copied, 1, *copied[:2]]
    assert drafted(Drafter(experience=experience), short) == []
    for _ in range(30):
        drafter = Drafter(experience=experience)
        drafted(drafter, short)
        drafter.note(copied[2])
    assert drafted(Drafter(experience=experience), short)
    assert drafted(Drafter(), short) == []


def test_a_paused_drafter_learns_but_drafts_nothing():
    drafter = Drafter(4)
    drafter.is_paused = True
    assert drafted(drafter, [*TEXT, 1, 6, 7]) == []
    drafter.is_paused = False
    assert drafted(drafter, [*TEXT, 1, 6, 7]) == [8, 9, 10, 11]
