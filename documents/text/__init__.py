"""Plain text, subtitles and notebooks."""
