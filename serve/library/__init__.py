"""The documents that the server answers from."""
