"""Attention of one layer, from queries to output."""
