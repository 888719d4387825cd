"""Find the sources of an answer by the attention of retrieval heads."""
