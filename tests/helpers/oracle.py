"""What attention and selection should give, in NumPy float64 and so plainly that nobody doubts it."""

import numpy as np


def attention(queries, keys, values, *, softcap=0.0, sinks=None, visible=None):
    """softmax(queries . keys) . values for one KV head.

    queries : (n_queries, head_dim), scaled    keys, values : (n_rows, head_dim)
    sinks : (n_queries,) scores that take part in the softmax with no value, or None
    visible : (n_queries, n_rows) bool, or None where every query sees every row
    """
    queries, keys, values = (array.astype(np.float64) for array in (queries, keys, values))
    scores = capped(queries @ keys.T, softcap)
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    if sinks is not None:  # a sink is one more row, whose value is 0
        scores = np.column_stack([scores, sinks.astype(np.float64)])
        values = np.vstack([values, np.zeros(values.shape[1])])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ values


def capped(scores, softcap):
    """Scores under a soft cap; 0 is none."""
    return softcap * np.tanh(scores / softcap) if softcap else scores


def visible(query_positions, row_positions, window=0):
    """Which rows each query sees: none that come after it, and of a window only the newest, itself included.

    A window below 0 is a chunk: a query sees the rows whose positions have the same quotient by its length.
    """
    distance = query_positions[:, None] - row_positions[None, :]
    if window < 0:
        return (distance >= 0) & (query_positions[:, None] // -window == row_positions[None, :] // -window)
    return (distance >= 0) & (distance < window) if window else distance >= 0


def centroid_importance(queries, centroids, sizes, softcap=0.0):
    """S_i = exp(q.C_i) / sum_j N_j exp(q.C_j), averaged over a group, the largest of all tokens': (n_clusters,).

    queries : (group, head_dim) or (n_tokens, group, head_dim), scaled    centroids : (n_clusters, head_dim)
    sizes : (n_clusters,), N_j
    """
    queries = queries.reshape(-1, *queries.shape[-2:]).astype(np.float64)
    scores = capped(queries @ centroids.astype(np.float64).T, softcap)
    scores = np.where(sizes > 0, scores, -np.inf)  # a cluster without keys takes no part
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / (weights @ sizes)[..., None]).mean(axis=1).max(axis=0)


def selected_rows(importance, threshold, starts, n_document):
    """Rows of a document, in storage order: the clusters above the threshold, and all rows that are in no cluster."""
    clustered = [
        np.arange(start, stop)
        for start, stop, share in zip(starts, starts[1:], importance, strict=False)
        if share > threshold
    ]
    return np.concatenate([*clustered, np.arange(starts[-1], n_document)]).astype(int)


def two_level_importance(queries, coarse_centroids, coarse_starts, coarse_threshold, centroids, starts, softcap=0.0):
    """`centroid_importance` among the clusters of the coarse clusters above their threshold; 0 for all others.

    coarse_starts : clusters sorted by coarse cluster    starts : rows sorted by cluster
    """
    rows_of_coarse = starts[coarse_starts[1:]] - starts[coarse_starts[:-1]]
    coarse = centroid_importance(queries, coarse_centroids, rows_of_coarse, softcap)
    kept = np.repeat(coarse > coarse_threshold, np.diff(coarse_starts))
    importance = np.zeros(len(centroids))
    if kept.any():
        importance[kept] = centroid_importance(queries, centroids[kept], np.diff(starts)[kept], softcap)
    return importance


def shares(scores):
    """Each query head's softmax over all items, added up over the heads: (n_heads, n_items) to (n_items,)."""
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).sum(axis=0)


def top(values, k):
    """Indices of the k largest, rising; of equal ones the first. None that is below 0, and no NaN."""
    falling = [i for i in np.argsort(-values, kind="stable") if values[i] >= 0]
    return sorted(falling[: max(k, 0)])


def choices_apart(scores, n_own, n_all):
    """Which of its best items each query head chooses, if at most n_all in all may be chosen: (n_heads, n_items) bool.

    n_own each, or the largest number each that is not too much for all, and of the first heads one more; 1 at least.
    """
    counts = np.full(len(scores), n_own)
    while counts[0] > 1 and chosen_by(scores, counts).any(axis=0).sum() > n_all:
        counts -= 1
    for g in range(len(scores)):
        if counts[g] < n_own and chosen_by(scores, counts).any(axis=0).sum() < n_all:
            counts[g] += 1
    return chosen_by(scores, counts)


def chosen_by(scores, counts):
    """Which items each query head chooses if it chooses so many: (n_heads, n_items) bool."""
    chosen = np.zeros(scores.shape, bool)
    for own, values, k in zip(chosen, scores, counts, strict=True):
        own[top(values, k)] = True
    return chosen


def page_bounds(keys, page_rows):
    """The smallest and the largest element of each column of each page: (n_pages, 2, head_dim)."""
    pages = [keys[first : first + page_rows] for first in range(0, len(keys), page_rows)]
    return np.array([[page.min(axis=0), page.max(axis=0)] for page in pages])


def page_scores(queries, bounds):
    """Quest, algorithm 1: sum over i of max(q_i * smallest_i, q_i * largest_i), (n_heads, n_pages)."""
    queries, bounds = queries.astype(np.float64)[:, None], bounds.astype(np.float64)
    return np.maximum(queries * bounds[:, 0], queries * bounds[:, 1]).sum(axis=-1)


def spread(keys, chunk_rows, most):
    """The standard deviation of each component over evenly spaced full chunks, at most so many, or over fewer rows."""
    n_full = len(keys) // chunk_rows
    if n_full > most:
        chunks = [j * n_full // most for j in range(most)]
        keys = np.concatenate([keys[i * chunk_rows : (i + 1) * chunk_rows] for i in chunks])
    elif n_full > 0:
        keys = keys[: n_full * chunk_rows]
    return keys.astype(np.float64).std(axis=0)


def partial_scores(queries, keys, n_components, spread, components="spread", temperature="spread"):
    """SparQ, algorithm 1, before its softmax: (n_heads, n_rows). The components are chosen for the heads together.

    components : "spread" where |q| * spread chooses them, "query" where |q| does, as in the paper
    temperature : "spread" for the squares of |q| * spread, "l1" for |q|, as in equation 9
    queries : (n_heads, head_dim), scaled by 1 / sqrt(head_dim), which equation 9 does itself
    """
    head_dim = queries.shape[1]
    queries, keys = queries.astype(np.float64) * np.sqrt(head_dim), keys.astype(np.float64)
    varied = np.abs(queries) * spread
    chosen = top((varied if components == "spread" else np.abs(queries)).sum(axis=0), n_components)
    covered = varied**2 if temperature == "spread" else np.abs(queries)
    part, whole = covered[:, chosen].sum(axis=1), covered.sum(axis=1)
    share = np.divide(part, whole, out=np.ones_like(part), where=part > 0)
    return queries[:, chosen] @ keys[:, chosen].T / np.sqrt(head_dim * share)[:, None]


#: What each method that only scores gives the items of a head, by the method's name: a function of the queries,
#: (n_heads, head_dim), of the keys, (n_rows, head_dim), and of the head's state, that gives (n_heads, n_items).
ITEM_SCORES = {
    "topk": lambda queries, keys, state: queries @ keys.astype(np.float64).T,
    "quest": lambda queries, keys, state: page_scores(queries, page_bounds(keys, 16).astype(np.float16)),
    "sparq": lambda queries, keys, state: partial_scores(queries, keys, state["n_components"], spread(keys, 256, 8)),
}


def attention_got(queries, keys, softcap=0.0):
    """The attention that each row gets from all query heads of a batch, whose tokens are the last rows: (n_rows,).

    queries : (n_tokens, n_heads, head_dim), scaled
    """
    n_rows, total = len(keys), np.zeros(len(keys))
    for i, query in enumerate(queries.astype(np.float64)):
        n_visible = n_rows - len(queries) + i + 1
        total[:n_visible] += shares(capped(query @ keys[:n_visible].astype(np.float64).T, softcap))
    return total


def nearest_centroids(points, centroids, weights):
    """Numbers of the nearest centroids, by squared distances whose columns have weights: (n_points,).

    points : (n_points, size)    centroids : (n_centroids, size)    weights : (size,)
    """
    points, centroids = points.astype(np.float64), centroids.astype(np.float64)
    return (weights * (points[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)


def lloyd(points, n_centroids, weights, n_rounds):
    """Centroids of Lloyd's algorithm, from evenly spaced points: (n_centroids, size)."""
    points = points.astype(np.float64)
    centroids = points[np.arange(n_centroids) * len(points) // n_centroids].copy()
    for _ in range(n_rounds):
        numbers = nearest_centroids(points, centroids, weights)
        for i in set(numbers):
            centroids[i] = points[numbers == i].mean(axis=0)
    return centroids


def rotate(rows, split=0):
    """Rows times the Hadamard matrix of each block of 2 ** k elements, the most that divides a row: (n, head_dim).

    Element i, j of the matrix is 1 or -1, by whether i and j have an even or an odd number of bits in common.
    split : columns of the first part of latent keys, whose parts are rotated apart; 0 for other rows
    """
    if split:
        return np.hstack([rotate(rows[:, :split]), rotate(rows[:, split:])])
    head_dim = rows.shape[-1]
    size = head_dim & -head_dim
    signs = np.array([[(-1.0) ** (i & j).bit_count() for j in range(size)] for i in range(size)])
    with np.errstate(invalid="ignore"):  # inf - inf
        return (rows.reshape(-1, head_dim // size, size) @ signs / np.sqrt(size)).reshape(rows.shape)


def pack(rows, split=0):
    """Rows, (n, head_dim) f64, as q4_0 stores them, with the scales of least error last: (n, bytes) uint8."""
    rotated, codes, scales = rotate(rows, split), [], []
    for first in range(0, rows.shape[1], 32):
        block = rotated[:, first : first + 32]
        finite = np.isfinite(block).all(axis=1, keepdims=True)
        block = np.where(finite, block, 0)
        extreme = np.take_along_axis(block, np.abs(block).argmax(axis=1, keepdims=True), axis=1)
        with np.errstate(over="ignore"):
            tried = (extreme / (-8, -7, -7.5, -8.5, -9)).astype(np.float16)
        divisors = np.where((tried != 0) & np.isfinite(tried), tried.astype(np.float64), np.inf)[:, :, None]
        steps = np.clip(np.rint(block[:, None] / divisors), -8, 7)
        errors = (steps * np.where(np.isinf(divisors), 0, divisors) - block[:, None]) ** 2
        best = errors.sum(axis=2).argmin(axis=1)[:, None]
        numbers = np.take_along_axis(steps + 8, best[:, :, None], axis=1)[:, 0].astype(np.uint8)
        half = block.shape[1] // 2
        codes.append(numbers[:, :half] | numbers[:, half:] << 4)
        scales.append(np.where(finite, np.take_along_axis(tried, best, axis=1), np.float16(np.nan)))
    return np.hstack([np.hstack(codes), np.hstack(scales).view(np.uint8)])


def unpack(stored, head_dim):
    """What such rows stand for, still rotated: (n, head_dim) f64."""
    scales = np.ascontiguousarray(stored[:, head_dim // 2 :]).view(np.float16).astype(np.float64)
    parts = []
    for block, first in enumerate(range(0, head_dim, 32)):
        codes = stored[:, first // 2 : min(first + 32, head_dim) // 2]
        parts.append((np.hstack([codes & 15, codes >> 4]) - 8.0) * scales[:, block : block + 1])
    return np.hstack(parts)


def block_shares(queries, keys, visible, block, softcap=0.0):
    """The share of each block of rows in the attention of queries: (n_queries, n_blocks)."""
    scores = np.where(visible, capped(queries.astype(np.float64) @ keys.astype(np.float64).T, softcap), -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.add.reduceat(weights, np.arange(0, weights.shape[1], block), axis=1)
