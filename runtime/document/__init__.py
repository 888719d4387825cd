"""Hold the index of a document in memory."""
