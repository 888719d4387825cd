"""Hooks as native functions: they do what their kernels do."""

import numpy as np
from helpers.kernel_heads import queries_of, random_head
from helpers.kernel_inputs import SHAPE, address, halves

from octavo.cpu_kernels.layout.spans import SPAN
from octavo.cpu_kernels.methods import squeezed
from octavo.cpu_kernels.methods.dense import select_all
from octavo.cpu_kernels.numba_support.compile import native


def test_native_functions_are_the_kernels():
    rng = np.random.default_rng(3)
    starts = np.int32([0, 4, 9])
    centroids, queries = halves(rng, 2, 64), queries_of(rng, SHAPE)
    head = random_head(rng, SHAPE, 12, 5, method=squeezed, n_clusters=2, threshold=0.05, n_bytes=-1)
    head.set(centroids=address(centroids), cluster_starts=address(starts))
    for score, select, n_spans in ((None, select_all, 2), (squeezed.score_clusters, squeezed.select_clusters, 3)):
        spans = np.zeros(4, SPAN)
        if score:
            native(score).ctypes(head.address, address(queries), 0, 1)
        n = native(select).ctypes(head.address, address(queries), 1, address(spans))
        assert n <= n_spans
        assert head.rows(spans[:n])[-5:] == list(range(12, 17))
