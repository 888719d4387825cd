"""Attention methods: which stored rows a step reads, and which rows are stored at all."""

#: How a document is attended unless another attention is named.
DEFAULT_ATTENTION = "squeezed"

#: Share of the KV bytes that a step may read unless another budget is given.
DEFAULT_BUDGET = 0.125
