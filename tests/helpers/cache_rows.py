"""Rows to fill a cache with: those of each layer, as `KVCache.append_rows` takes them."""

import numpy as np


def random_rows(cache, n_rows, seed=0):
    """Keys and values of each layer: any bytes, of q8_0 rows even in their scales."""
    rng = np.random.default_rng(seed)
    layers = []
    for layer in cache.layers:
        rows = layer.new_rows(n_rows)
        for array in rows:
            array[...] = rng.integers(0, 256, array.shape)
        layers.append(rows)
    return layers


def part(layers, start, stop):
    return [(keys[:, start:stop], values[:, start:stop]) for keys, values in layers]
