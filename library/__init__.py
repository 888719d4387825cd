"""Indexes on disk: make, find, list, check and remove them."""
