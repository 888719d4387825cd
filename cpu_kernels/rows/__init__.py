"""Store rows of keys and values, and compute products with them."""
