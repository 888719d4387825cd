"""Stored rows of keys and values, and products with them."""
