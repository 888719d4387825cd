"""One thread that computes the answers of many requests."""
