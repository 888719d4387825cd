"""Attention of a batch of tokens."""
