"""Rank documents and their pieces for a question."""
