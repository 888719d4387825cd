"""Write durations for people."""

from __future__ import annotations


def clock(seconds: float) -> str:
    """Write a duration as minutes and seconds, such as "2:05", or with hours: "1:02:05"."""
    minutes, whole_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{whole_seconds:02d}" if hours else f"{minutes}:{whole_seconds:02d}"
