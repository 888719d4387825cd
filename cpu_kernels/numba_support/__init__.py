"""What kernels are made with: the decorators, vectors, views, the cache of compiled kernels."""
