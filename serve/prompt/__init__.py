"""Turn conversations into prompts."""
