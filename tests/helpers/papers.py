"""The papers' algorithms as they are printed, in NumPy float64 and for one KV head. Queries are not scaled."""

import numpy as np


def softmax(scores):
    """Of each row."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def largest(values, k):
    """The indices of the k largest, rising."""
    return np.sort(np.argsort(-values, kind="stable")[:k])


def sparq(queries, keys, values, r, k, n_recent, reallocate, chooses_by=None, covers_by=None):
    """SparQ Attention (Ribar et al. 2024), algorithm 1; which rows, and the output.

    queries : (group, head_dim). As in section 4, "Grouped query attention", components are chosen by the sum of |q|
    over the group, and rows by the sum of the approximate scores; n_recent rows, the newest, are always among the k
    chooses_by : None as it is printed; else the spread of each component, (head_dim,), by which |q| is multiplied where
    components are chosen. In this our SparQ is not the paper's
    covers_by : None as it is printed; else the spread of each component, for a temperature of the squares of
    |q| * spread. In this our SparQ is not the paper's either
    """
    queries, keys, values = (array.astype(np.float64) for array in (queries, keys, values))
    head_dim, n_rows = queries.shape[1], len(keys)
    # Step 1: approximate attention scores from r components.
    magnitude = np.abs(queries) if chooses_by is None else np.abs(queries) * chooses_by
    i1 = largest(magnitude.sum(axis=0), r)
    covered = np.abs(queries) if covers_by is None else (queries * covers_by) ** 2
    temperature = np.sqrt(head_dim * covered[:, i1].sum(axis=1) / covered.sum(axis=1))  # equation 9
    approximate = softmax(queries[:, i1] @ keys[:, i1].T / temperature[:, None])
    # Step 2: attention over the k rows with the largest approximate scores.
    is_recent = np.arange(n_rows) >= n_rows - n_recent
    i2 = largest(approximate.sum(axis=0) + 1e9 * is_recent, k)
    output = softmax(queries @ keys[i2].T / np.sqrt(head_dim)) @ values[i2]
    if not reallocate:
        return i2, output
    # Step 3: the mean value gets what the scores give to the other rows.
    alpha = approximate[:, i2].sum(axis=1, keepdims=True)
    return i2, alpha * output + (1 - alpha) * values.mean(axis=0)


def rope(rows, positions, frequencies, interleaved):
    """RoPE (Su et al. 2021, section 3.2.2): pair j of a row at position m is turned by m times its frequency.

    rows : (n, head_dim)    interleaved : pair j is the elements 2 j and 2 j + 1; else j and n_pairs + j
    """
    turned = rows.astype(np.float64)
    for j, frequency in enumerate(frequencies):
        i, k = (2 * j, 2 * j + 1) if interleaved else (j, len(frequencies) + j)
        angle = positions * frequency
        turned[:, i] = rows[:, i] * np.cos(angle) - rows[:, k] * np.sin(angle)
        turned[:, k] = rows[:, i] * np.sin(angle) + rows[:, k] * np.cos(angle)
    return turned


def streaming(queries, keys, values, n_sinks, n_recent, frequencies, interleaved):
    """StreamingLLM (Xiao et al. 2023), section 3.2: the output of a sequence's newest token.

    queries : (group, head_dim), keys : (n_tokens, head_dim), both before RoPE. The keys are cached before RoPE, and
    positions are those within the cache, whatever they were in the text
    """
    n_tokens = len(keys)
    kept = [row for row in range(n_tokens) if row < n_sinks or row >= n_tokens - n_recent]
    positions = np.arange(len(kept))
    queries = rope(queries, positions[-1:], frequencies, interleaved)
    cached = rope(keys[kept], positions, frequencies, interleaved)
    return softmax(queries @ cached.T / np.sqrt(queries.shape[1])) @ values[kept].astype(np.float64)


class H2O:
    """Heavy hitters (Zhang et al. 2023), algorithm 1: what a KV head keeps of a sequence.

    The cache evicts after a step, of one token or of a batch; a token counts as attended by itself.
    """

    def __init__(self, head_dim):
        self.positions, self.keys, self.mass = np.zeros(0, int), np.zeros((0, head_dim)), np.zeros(0)
        self.n_tokens = 0

    def step(self, queries, keys, n_kept, n_recent):
        """queries : (n_tokens, group, head_dim)    keys : (n_tokens, head_dim)    Returns the positions that stay."""
        for query, key in zip(queries, keys, strict=True):
            self.positions = np.append(self.positions, self.n_tokens)
            self.keys = np.vstack([self.keys, key])
            self.mass = np.append(self.mass, 0.0)
            self.mass += softmax(query @ self.keys.T / np.sqrt(len(key))).sum(axis=0)
            self.n_tokens += 1
        is_recent = self.positions >= self.n_tokens - n_recent
        stays = largest(np.where(is_recent, np.inf, self.mass), n_kept)
        self.positions, self.keys, self.mass = self.positions[stays], self.keys[stays], self.mass[stays]
        return self.positions


def quest_by_head(queries, keys, values, page_rows, k):
    """Quest (Tang et al. 2024), algorithm 1, for each query head by itself: the rows of any, and the outputs."""
    alone = [quest(queries[g : g + 1], keys, values, page_rows, k) for g in range(len(queries))]
    return np.unique(np.concatenate([rows for rows, _ in alone])), np.concatenate([output for _, output in alone])


def squeeze_budgets(similarity, initial, p):
    """SqueezeAttention (Wang et al. 2024), algorithm 1, lines 9 to 11: each layer's budget.

    similarity : mean cosine similarity of each layer    initial : b_init    p : share that the third group keeps
    """
    similarity = np.asarray(similarity, np.float64)
    order = similarity.argsort(kind="stable")
    splits = [(i, j) for i in range(1, len(order)) for j in range(i + 1, len(order))]
    groups = [np.split(order, split) for split in splits]  # K-means of numbers: each group is a run of them
    *g1_g2, g3 = min(groups, key=lambda each: sum(((similarity[g] - similarity[g].mean()) ** 2).sum() for g in each))
    budgets = np.zeros(len(similarity))
    budgets[g3] = initial * p
    others = np.concatenate(g1_g2)
    budgets[others] = (len(similarity) * initial - len(g3) * initial * p) / len(others)
    return budgets


def compressed_prompt(queries, keys, n_kept, n_recent):
    """SqueezeAttention (Wang et al. 2024), algorithm 1, lines 12 to 18, with H2O: the positions that stay of a prompt.

    The prompt was read with the full cache. The mass of a row is the attention of all later tokens, and its own.
    queries : (n_tokens, group, head_dim), scaled    keys : (n_tokens, head_dim)
    """
    n_tokens = len(keys)
    mass = np.zeros(n_tokens)
    for token in range(n_tokens):
        mass[: token + 1] += softmax(queries[token].astype(np.float64) @ keys[: token + 1].astype(np.float64).T).sum(0)
    return largest(np.where(np.arange(n_tokens) >= n_tokens - n_recent, np.inf, mass), n_kept)


def quest(queries, keys, values, page_rows, k):
    """Quest (Tang et al. 2024), algorithm 1: the rows of the k pages with the largest upper bounds, and the output.

    queries : (group, head_dim). The paper has one query head; the bounds of several are each made a softmax and added
    up. The newest page, to which rows are still added, is always among the k
    """
    queries, keys, values = (array.astype(np.float64) for array in (queries, keys, values))
    scale, group = np.sqrt(queries.shape[1]), len(queries)
    pages = [np.arange(i, min(i + page_rows, len(keys))) for i in range(0, len(keys), page_rows)]
    scores = np.zeros((group, len(pages)))
    for page, rows in enumerate(pages):
        low, high = keys[rows].min(axis=0), keys[rows].max(axis=0)
        for g in range(group):
            for i, q in enumerate(queries[g]):
                scores[g, page] += max(q * low[i], q * high[i])
    importance = scores[0] if group == 1 else softmax(scores / scale).sum(axis=0)
    importance[-1] = np.inf
    rows = np.concatenate([pages[page] for page in largest(importance, k)])
    return rows, softmax(queries @ keys[rows].T / scale) @ values[rows]


def importance_of(queries, centroids, sizes):
    """Squeezed Attention (Hooper et al. 2024), section 3.2: S_i of the clusters, averaged over all queries.

    queries : (group, head_dim), or (n_tokens, group, head_dim) of a batch, which selects by the mean (appendix D)
    sizes : N_j, of each cluster
    """
    importance = np.zeros(len(centroids))
    queries = queries.reshape(-1, queries.shape[-1]).astype(np.float64)
    for query in queries / np.sqrt(queries.shape[1]):
        scores = np.exp(centroids.astype(np.float64) @ query)
        importance += scores / sum(n * score for n, score in zip(sizes, scores, strict=True)) / len(queries)
    return importance


def squeezed_rows(queries, exact, clusters, centroids, threshold):
    """One level, section 3.2: the rows of clusters above the threshold, and those that are in no cluster.

    clusters : the rows of each    exact : rows that are always attended: the last of the fixed context, and all that
    came after it (appendix F). They take no part in S_i
    """
    importance = importance_of(queries, centroids, [len(rows) for rows in clusters])
    kept = [rows for rows, share in zip(clusters, importance, strict=True) if share > threshold]
    return np.sort(np.concatenate([*kept, exact]))


def squeezed_rows_of_two_levels(
    queries, exact, clusters, centroids, threshold, coarse, coarse_centroids, coarse_threshold
):
    """Two levels, section 3.3: `squeezed_rows` over the clusters of the coarse clusters above their own threshold.

    coarse : the clusters of each coarse cluster
    """
    sizes = [sum(len(clusters[i]) for i in members) for members in coarse]
    importance = importance_of(queries, coarse_centroids, sizes)
    kept = [i for members, share in zip(coarse, importance, strict=True) if share > coarse_threshold for i in members]
    return squeezed_rows(queries, exact, [clusters[i] for i in kept], centroids[kept], threshold)


def attended(queries, keys, values, rows):
    """These rows, and the attention of one token's query heads to them."""
    scores = queries.astype(np.float64) @ keys[rows].astype(np.float64).T / np.sqrt(queries.shape[1])
    return rows, softmax(scores) @ values[rows].astype(np.float64)


def squeezed_threshold(queries, centroids, sizes, share):
    """The threshold that a share of the keys of all heads exceeds (section 3.2): a quantile of their mean S_i.

    queries : of each head, (n_tokens, group, head_dim): the last ones of the fixed context
    centroids, sizes : of each head's clusters
    """
    of_heads = (importance_of(*head) for head in zip(queries, centroids, sizes, strict=True))
    of_keys = [np.repeat(importance, counts) for importance, counts in zip(of_heads, sizes, strict=True)]
    return np.quantile(np.concatenate(of_keys), 1 - share)


def duo_chunk(n_rows, n_tokens, n_sinks, n_recent):
    """DuoAttention (Xiao et al. 2024), section 2.3, chunked pre-filling: what a chunk sees in a streaming head.

    Before the chunk, the head's cache is pruned to the sinks and the recent tokens. Attention in the chunk is causal.
    Returns the rows that each of the newest n_tokens tokens sees.
    """
    before = n_rows - n_tokens
    cached = [row for row in range(before) if row < n_sinks or row >= before - n_recent]
    return [cached + list(range(before, token + 1)) for token in range(before, n_rows)]


def duo_full_heads(gates, sparsity):
    """DuoAttention's published files: heads at or above the quantile of the gates at the sparsity see everything.

    gates : (n_layers, n_kv_head); those beyond 0 and 1 count as these
    sparsity : share of the heads that stream, more than 0 and less than 1
    Returns whether each head sees everything. Equal gates are not told apart here.
    """
    gates = np.clip(gates, 0, 1)
    return gates >= np.quantile(gates, sparsity)
