"""HTML, and the kinds that become HTML on the way: EPUB and FictionBook."""
