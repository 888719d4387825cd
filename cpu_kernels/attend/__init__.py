"""Compute the attention of one layer, from queries to output."""
