"""Conversations to prompts."""
