"""Memory that kernels share: the record of a head, its hooks, spans, scores and partial sums."""
