"""Locate the folder of what octavo keeps for a user: lists, questions, and what is to be read."""

from __future__ import annotations

from pathlib import Path


def state_folder() -> Path:
    """Return the folder, which may not exist yet."""
    import platformdirs

    return Path(platformdirs.user_state_dir("octavo"))
