"""The index of a document in memory."""
