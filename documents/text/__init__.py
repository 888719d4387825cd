"""Plain text, subtitles and notebooks, and the encodings of text."""
