"""Read documents in the background: a queue for each user, and one process that reads while nothing else computes."""
