"""Tokens of a sequence."""

from itertools import takewhile

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from octavo.runtime.sequences.sequence import n_common

tokens = st.lists(st.integers(0, 2), max_size=6)


@given(tokens, tokens)
def test_the_common_prefix_of_two_lists_of_tokens(one, other):
    same = list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    assert n_common(one, other) == n_common(np.array(one, np.int32), other) == len(same)
