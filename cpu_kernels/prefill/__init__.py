"""Compute the attention of a batch of tokens."""
