"""Prompts of a conversation by a model's chat template, and the thoughts and calls in its answers."""
