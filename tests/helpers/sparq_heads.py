"""What tests of SparQ's kernels ask of a head: its spread, its selection, and the bytes that these read."""

from helpers import oracle

from octavo.cpu_kernels.methods.sparq import MEASURED_CHUNKS, score_rows, select_rows
from octavo.cpu_kernels.numba_support.shape import F16
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS


def spread_of(head):
    return oracle.spread(head.keys, CHUNK_ROWS, MEASURED_CHUNKS)


def bytes_of_moments(head):
    return max(1, min(head.n_tail // CHUNK_ROWS, MEASURED_CHUNKS)) * 8 * head.shape.head_dim


def bytes_of_scores(shape, n_rows, n_components):
    """Of n components of the transposed copy, and of the scales of q8_0."""
    n_components = min(n_components, shape.head_dim)
    return n_rows * (n_components + 2 if shape.kv_type != F16 else 2 * n_components)


def select(head, queries, n_selected):
    """The rows that are selected; there is a list of rows for each chunk, unless all are selected."""
    head.set(n_rows=n_selected)
    spans = head.score_and_select(score_rows, select_rows, queries, len(head.chunks))
    assert ((spans["rows"] == 0) == (n_selected >= head.n_tail)).all()
    return head.rows(spans)
