"""KV heads whose rows have codes, and what their method makes of a query."""

import numpy as np
from helpers.estimates import estimated, merged
from helpers.kernel_heads import random_head

from octavo.cpu_kernels.methods import sketch
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.cpu_kernels.select.product_quantisation import BLOCK_ROWS
from octavo.cpu_kernels.select.tail_codes import RECENT, TRAINED, tend_codes

#: Columns that share a code.
COLUMNS = 4


def field(head, name, *shape):
    """A field of the head's state, as far as its head_dim goes."""
    return head.state[name][0].ravel()[: np.prod(shape)].reshape(shape)


def codes_of_block(block, n_codes):
    """Codes of a block's rows, (BLOCK_ROWS, n_codes). block : uint8 array"""
    halves = block.reshape(n_codes, -1)
    return np.hstack([halves & 15, halves >> 4]).T


class SKETCH:
    """The kernel module, with extras of as many codes."""

    STATE, HOOKS = sketch.STATE, sketch.HOOKS

    @staticmethod
    def extras_bytes(shape):
        return sketch.extras_bytes(shape, shape.head_dim // COLUMNS)


def coded_head(rng, shape, n_rows=TRAINED + 3 * BLOCK_ROWS + RECENT + 5, n_exact=100):
    """A head in a step of one token, the newest row: the others have codes."""
    n_codes = shape.head_dim // COLUMNS
    head = random_head(rng, shape, 0, n_rows, method=SKETCH, n_codes=n_codes, n_rows=n_exact)
    return before_the_newest(head)


def before_the_newest(head):
    """Tend all rows of a head but the newest, as the step before did."""
    head.n_tail -= 1
    head.set(n_tail=head.n_tail)
    tend(head, 0)
    head.n_tail += 1
    head.set(n_tail=head.n_tail)
    return head


def tend(head, n_tokens):
    tend_codes(head.shape, head.address, n_tokens, 0)
    for chunk in head.chunks:
        chunk.check()


def scores_of(head, query, n_parts):
    """The scores of all rows, (group, n_tail) f64. Checks that each chunk has exp of them, relative to its largest."""
    weights = head.score(sketch.score_codes, query, n_parts)[:, : head.n_tail].astype(np.float64)
    if np.isnan(weights).any() or not sketch.used_blocks(head.record[0], 1):
        return weights
    sums = head.scratch.view(np.float32, len(head.chunks), 2, head.shape.group, at=4 * head.n_items)
    own = [weights[:, i : i + CHUNK_ROWS] for i in range(0, head.n_tail, CHUNK_ROWS)]
    assert all((part.max(axis=1) == 1).all() for part in own)
    np.testing.assert_allclose(sums[:, 1], [part.sum(axis=1) for part in own], rtol=1e-5)
    largest = np.repeat(sums[:, 0], CHUNK_ROWS, axis=0)[: head.n_tail].T
    return np.log(weights) + largest


def attended(head, query, n_parts=1):
    """The rows that are attended exactly, the scores of all, and the output: (group, head_dim)."""
    scores = scores_of(head, query, n_parts)
    rows = np.sort(head.rows(head.pick(sketch.rank_coded, sketch.pick_coded, query, 40, n_parts)))
    exact = np.zeros((head.shape.group, len(head.keys)), bool)
    exact[:, rows] = True
    return rows, scores, merged(head, query[0], exact, estimated(head, sketch.estimate_rest, n_parts))
