"""Model files: find, check, load."""
