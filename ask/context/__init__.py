"""The context of an answer: a whole document, excerpts of documents, or passages found by words."""
