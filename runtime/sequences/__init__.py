"""Token sequences that a model holds, their copies and checkpoints."""
