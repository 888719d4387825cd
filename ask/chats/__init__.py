"""Conversations: their messages, and their files."""
