"""What an `estimate` hook adds to the rows that are attended exactly."""

import numpy as np
from helpers.kernel_inputs import Room

from octavo.cpu_kernels.attend import decode as layout


def estimated(head, hook, n_parts=1):
    """The partial results of a hook's shares: (values (group, value_dim), largest scores, sums of weights) of each."""
    group, value_dim = head.shape.group, head.shape.value_dim
    partials = []
    for part in range(n_parts):
        room = Room(4 * layout.partial_size(head.shape))
        layout.clear_partial(head.shape, room.address)
        hook(head.shape, head.address, room.address, part, n_parts)
        room.check()
        sums = room.view(np.float32, group * (value_dim + 2)).astype(np.float64)
        values, largest, totals = np.split(sums, [group * value_dim, group * (value_dim + 1)])
        partials.append((values.reshape(group, value_dim), largest, totals))
    return partials


def merged(head, query, attended, partials, softcap=0.0):
    """The output of rows and partial results: (group, value_dim). attended : (group, n_rows) bool"""
    scores = query.astype(np.float64) @ head.keys.T.astype(np.float64)
    scores = softcap * np.tanh(scores / softcap) if softcap else scores
    scores = np.where(attended, scores, -np.inf)
    top = np.maximum(scores.max(axis=1), np.max([largest for _, largest, _ in partials], axis=0))
    weights = np.exp(scores - top[:, None])
    above, below = weights @ head.values.astype(np.float64), weights.sum(axis=1)
    for values, largest, totals in partials:
        above += values * np.exp(largest - top)[:, None]
        below += totals * np.exp(largest - top)
    return above / below[:, None]
