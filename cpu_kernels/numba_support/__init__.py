"""Support kernels: decorators, vectors, views, and the cache of compiled kernels."""
